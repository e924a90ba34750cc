"""blueque.queries.dependencies and task_graph: what waits for what, within bounds; and what the
overview says of it.
"""

from __future__ import annotations

import time

import pytest
from dependent import NODE, block, end, enqueue, finish, start
from test_document import Monitor
from transactions import protocol

from blueque.model import keys
from blueque.model.attempt_ref import AttemptRef
from blueque.model.task import Task
from blueque.protocol.ends import End
from blueque.queries import dependencies, task_graph
from blueque.queries.holders import Holder
from blueque.queries.inspector import Inspector
from blueque.queries.listing import entered


@pytest.fixture
def inspector(redis):
    return Inspector(redis)


def line_of(inspector, queue="video"):
    return next(line for line in inspector.overview().lines if line.queue == queue)


# The overview


def test_the_overview_counts_blocked_tasks_and_names_those_that_hold_them(inspector, redis):
    end(redis, "bad-1", exit_code=1)
    end(redis, "bad-2", exit_code=1)
    end(redis, "good-1")
    enqueue(redis, "gone-1")
    protocol.cancel(redis, "video", "gone-1", "ada", None, time.time())
    for n in range(3):
        block(redis, f"child-{n}", "bad-1", "audio")
    block(redis, "child-3", {"gone-1": "ok", "good-1": "ok"}, "audio")
    block(redis, "child-4", {"bad-2": "any"}, "audio")
    for task in ("bad-1", "gone-1"):
        protocol.settle(redis, task, time.time())

    video, audio = line_of(inspector), line_of(inspector, "audio")

    assert (video.counts.blocked, audio.counts.blocked, audio.counts.pending) == (0, 4, 1)
    assert sorted(video.holders) == [Holder("bad-1", "failed", 3), Holder("gone-1", "cancelled", 1)]
    assert audio.holders == ()


def test_a_failed_task_holds_its_dependents_before_they_are_told(inspector, redis):
    enqueue(redis, "bad-1")
    block(redis, "child-1", "bad-1")
    start(redis, "bad-1")
    attempt = AttemptRef("video", "bad-1", "secret-bad-1", NODE)
    protocol.end(redis, attempt, End.fail("boom", {"exit_code": 1}), time.time())
    before = line_of(inspector)

    protocol.settle(redis, "bad-1", time.time())

    assert (before.counts.blocked, before.counts.failed) == (1, 1)
    assert before.holders == line_of(inspector).holders == (Holder("bad-1", "failed", 1),)


def test_without_blocked_tasks_no_cancelled_task_is_read(inspector, redis, server):
    enqueue(redis, "gone-1")
    protocol.cancel(redis, "video", "gone-1", "ada", None, time.time())

    def reads():
        monitor = Monitor(server)
        inspector.overview()
        commands = monitor.commands_until_now(redis)
        monitor.close()
        return [command for command in commands if command[:2] == ["HMGET", keys.task("gone-1")]]

    assert reads() == []
    enqueue(redis, "parent-1")
    block(redis, "child-1", "parent-1")
    assert len(reads()) == 1


# Lists


def test_blocked_tasks_are_listed_between_those_that_wait_and_those_that_ended(inspector, redis):
    now = time.time()
    end(redis, "bad-1", exit_code=1)
    enqueue(redis, "pending-1", now=now)
    block(redis, "young-1", "pending-1", now=now - 10)
    block(redis, "old-1", "pending-1", now=now - 20)

    found = inspector.listing(["video"], ["failed", "blocked", "pending"], 10)

    assert [task.id for task in found.tasks] == ["pending-1", "old-1", "young-1", "bad-1"]


def test_a_blocked_task_is_found_by_the_beginning_of_its_id(inspector, redis):
    task = "abcd0001-0000-4000-8000-000000000000"
    enqueue(redis, "pending-1")
    block(redis, task, "pending-1")
    redis.read(("ZREM", keys.tasks("video"), task))  # as if the index were very long

    assert inspector.find("abcd") == [task]


@pytest.mark.parametrize(("queued", "since"), [(None, 100.0), (170.0, 170.0)])
def test_a_task_is_blocked_since_it_was_made_or_requeued(queued, since):
    fields = {"status": "blocked", "created": "100", "eta": "150", "updated": "200"}
    requeued = {} if queued is None else {"queued": str(queued)}

    assert entered(Task("task-1", fields | requeued)) == since


# One task


def test_conditions_have_the_verdict_that_they_get_soon(inspector, redis, cli):
    for task in ("ok-1", "any-1", "not-1", "hold-1"):
        enqueue(redis, task)
    wanted = {"ok-1": "ok", "any-1": "any", "not-1": "not_ok", "hold-1": "ok", "left-1": "ok"}
    enqueue(redis, "left-1")
    block(redis, "child-1", wanted, now=100.0)
    for task in ("ok-1", "any-1", "not-1", "hold-1"):
        cli.hset(keys.task(task), "status", "complete" if task in ("ok-1", "not-1") else "failed")
    cli.delete(keys.task("left-1"))

    found = inspector.dependencies(inspector.task("child-1"))

    assert {each.task.id: each.verdict for each in found.conditions} == {
        "ok-1": "+complete",
        "any-1": "+failed",
        "not-1": "-complete",
        "hold-1": None,
        "left-1": "-gone",
    }
    assert [each.task.id for each in found.conditions if each.is_broken] == ["hold-1"]
    assert sorted(task.id for task in inspector.broken(["child-1"])["child-1"]) == [
        "hold-1",
        "left-1",
    ]


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


def test_of_dependents_the_number_is_told_and_the_first(inspector, redis):
    enqueue(redis, "parent-1")
    for n in range(7):
        block(redis, f"child-{n}", "parent-1", now=100.0 + n)

    found = inspector.dependencies(inspector.task("parent-1"))

    assert (found.dependents, [task.id for task in found.first]) == (
        7,
        [f"child-{n}" for n in range(dependencies.FIRST)],
    )


def test_a_task_without_dependencies_costs_no_round_trip(inspector, redis, server):
    enqueue(redis, "task-1")
    task = inspector.task("task-1")
    monitor = Monitor(server)

    found = inspector.dependencies(task)

    commands = monitor.commands_until_now(redis)
    monitor.close()
    assert (found, commands) == (dependencies.NONE, [])


# Graphs


def test_a_graph_has_what_it_waits_for_and_what_waits_for_it(inspector, redis):
    enqueue(redis, "top-1")
    block(redis, "left-1", "top-1")
    block(redis, "right-1", {"top-1": "any"})
    block(redis, "join-1", {"left-1": "ok", "right-1": "not_ok"})
    block(redis, "last-1", {"join-1": "any"})
    block(redis, "aside-1", "top-1")

    found = inspector.graph("join-1")

    assert found.tasks.keys() == {"join-1", "left-1", "right-1", "top-1", "last-1"}
    assert found.parents["join-1"] == {"left-1": "ok", "right-1": "not_ok"}
    assert (found.parents["left-1"], found.parents["right-1"]) == (
        {"top-1": "ok"},
        {"top-1": "any"},
    )
    assert (found.children["join-1"], found.counts["join-1"]) == ({"last-1": "any"}, 1)
    assert found.is_whole


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


def test_a_wide_graph_is_read_within_its_bounds(inspector, redis, server, monkeypatch):
    monkeypatch.setattr(task_graph, "MAX_TASKS", 20)
    monkeypatch.setattr(task_graph, "MAX_DEPENDENTS", 30)
    monkeypatch.setattr(task_graph, "TASKS_AT_ONCE", 5)
    enqueue(redis, "top-1")
    for n in range(40):
        block(redis, f"child-{n}", "top-1", now=100.0 + n)
        block(redis, f"leaf-{n}", f"child-{n}")
    monitor = Monitor(server)

    found = inspector.graph("top-1")

    commands = monitor.commands_until_now(redis)
    monitor.close()
    assert (len(found.tasks), found.counts["top-1"], len(found.children["top-1"])) == (20, 40, 30)
    assert len(found.children) == 6 and len(commands) < 100
    assert not found.is_whole


def test_a_graph_without_all_dependents_is_not_whole(inspector, redis, monkeypatch):
    monkeypatch.setattr(task_graph, "MAX_DEPENDENTS", 2)
    enqueue(redis, "top-1")
    for n in range(3):
        block(redis, f"child-{n}", "top-1")

    assert not inspector.graph("top-1").is_whole


def test_what_is_gone_has_no_status(inspector, redis, cli):
    enqueue(redis, "parent-1")
    block(redis, "child-1", "parent-1")
    cli.delete(keys.task("parent-1"))

    assert inspector.graph("child-1").tasks["parent-1"].status is None


def test_a_graph_of_what_has_run_keeps_its_past(inspector, redis):
    end(redis, "parent-1")
    block(redis, "child-1", "parent-1")
    finish(redis, "child-1")

    found = inspector.graph("child-1")

    assert found.parents["child-1"] == {"parent-1": "+complete"} and found.counts["child-1"] == 0
