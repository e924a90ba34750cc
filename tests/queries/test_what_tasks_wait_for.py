"""blueque.queries.dependencies and task_graph: what waits for what, within bounds; and what the
overview says of it.
"""

from __future__ import annotations

import pytest
from dependent import block, end, enqueue
from test_document import Monitor

from blueque.model import keys
from blueque.queries import dependencies, task_graph
from blueque.queries.inspector import Inspector


@pytest.fixture
def inspector(redis):
    return Inspector(redis)


# Lists


def test_a_blocked_task_is_found_by_the_beginning_of_its_id(inspector, redis):
    task = "abcd0001-0000-4000-8000-000000000000"
    enqueue(redis, "pending-1")
    block(redis, task, "pending-1")
    redis.read(("ZREM", keys.tasks("video"), task))  # as if the index were very long

    assert inspector.find("abcd") == [task]


# One task


@pytest.mark.parametrize(("levels", "is_found"), [(4, True), (3, False)])
def test_what_holds_up_a_task_is_searched_so_many_levels_up(
    inspector, redis, cli, monkeypatch, levels, is_found
):
    monkeypatch.setattr(dependencies, "LEVELS", levels)
    end(redis, "bad-1", exit_code=1)
    enqueue(redis, "next-1")
    block(redis, "task-0", "bad-1")
    for n in range(1, 4):
        block(redis, f"task-{n}", {f"task-{n - 1}": "ok", "next-1": "ok"})
    cli.hset(keys.conditions("task-0"), "task-3", "ok")  # a circle, by hand

    found = inspector.broken(["task-3"])

    assert [task.id for task in found.get("task-3", [])] == (["bad-1"] if is_found else [])


def test_what_holds_up_tasks_is_searched_in_so_many_of_them(inspector, redis, monkeypatch):
    monkeypatch.setattr(dependencies, "BLOCKED_AT_ONCE", 2)
    monkeypatch.setattr(dependencies, "MOST", 4)
    end(redis, "bad-1", exit_code=1)
    for n in range(7):
        block(redis, f"task-{n}", "bad-1")

    assert len(inspector.broken([f"task-{n}" for n in range(7)])) == 4


def test_a_task_without_dependencies_costs_no_round_trip(inspector, redis, server):
    enqueue(redis, "task-1")
    task = inspector.task("task-1")
    monitor = Monitor(server)

    found = inspector.dependencies(task)

    commands = monitor.commands_until_now(redis)
    monitor.close()
    assert (found, commands) == (dependencies.NONE, [])


# Graphs


def test_a_circle_has_an_end(inspector, redis, cli, server):
    enqueue(redis, "seed-1")
    block(redis, "one-1", "seed-1")
    block(redis, "two-1", "one-1")
    # By hand: a circle cannot come to be.
    cli.hset(keys.conditions("one-1"), "two-1", "ok")
    cli.zadd(keys.dependents("two-1"), {"one-1": 1.0})
    cli.hset(keys.task("two-1"), "dependents", 1)
    monitor = Monitor(server)

    found = inspector.graph("one-1")

    commands = monitor.commands_until_now(redis)
    monitor.close()
    assert found.tasks.keys() == {"seed-1", "one-1", "two-1"} and found.is_whole
    assert len(commands) < 20


@pytest.mark.parametrize("task", ["task-0", "task-29", "task-15"])
def test_a_long_chain_is_read_so_many_levels_far(inspector, redis, monkeypatch, task):
    monkeypatch.setattr(task_graph, "DEPTH", 4)
    enqueue(redis, "task-0")
    for n in range(1, 30):
        block(redis, f"task-{n}", f"task-{n - 1}")
    place = int(task.partition("-")[2])

    found = inspector.graph(task)

    near = range(max(place - 4, 0), min(place + 5, 30))
    assert found.tasks.keys() == {f"task-{n}" for n in near}
    assert not found.is_whole
