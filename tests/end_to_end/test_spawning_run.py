"""Tasks that make tasks: split, parts, join, with real listeners that are killed in between."""

from __future__ import annotations

import os
import signal
import sys

import pytest
from handlers import ended, is_sound, ledger, let_go, owner, pid_of, running
from running import patched, state_of, until

from blueque import Retry
from blueque.model.new import spawned_id
from blueque.spool.attempt import Attempt

# A master would let a second pass before it replaces a listener that has not lived for as long.
ENVIRON = patched({"node.slots._YOUNG": 0.1})
WORK = """
    import os, time
    from pathlib import Path

    from blueque import New, NotOwner, Then, current_task

    PARTS = ("a", "b", "c")

    def run(task):
        ledger = os.open("ledger", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(ledger, f"{task.id} {task.attempt} {os.getpid()}\\n".encode())
        os.close(ledger)
        return globals()[task.parameters](task)

    def part(task):
        return "part"

    def join(task):
        return "joined"

    def split(task):
        parts = [task.spawn("work", "part", key=key) for key in PARTS]
        assert parts == [task.spawned_id(key) for key in PARTS]
        return Then([part.is_new for part in parts], [New("work", "join", key="join", after=parts)])

    def split_at_the_end(task):
        parts = [New("work", "part", key=key) for key in PARTS]
        wait(task)
        join = New("work", "join", key="join", after=[task.spawned_id(key) for key in PARTS])
        return Then("split", [*parts, join])

    def wait(task):
        while not Path("go").exists():
            time.sleep(0.005)

    def split_at_the_second_try(task):
        parts = current_task().spawn_many(New("work", "part", key=key) for key in PARTS)
        if task.attempt == 1:
            raise ValueError("not yet")
        return [part.is_new for part in parts]

    def make_too_many(task):
        return Then("all", [New("work", "part", key=n) for n in range(101)])

    def make_too_much(task):
        return Then("all", [New("work", "x" * 700_000, key=n) for n in range(3)])

    def spawn_many_for_its_end(task):
        count = 90 if task.attempt == 1 else 210
        new = (
            New("work", "part", key=key, after=task.id, broken="cancel") for key in range(count)
        )
        made = task.spawn_many(new)
        if task.attempt == 1:
            raise ValueError("not yet")
        return sum(part.is_new for part in made)

    def hand_over_what_is_no_task(task):
        return Then("all", ["part"])

    def spawn_when_it_is_too_late(task):
        wait(task)
        task.spawn("work", "part", key="a")
"""
PARTS = ("a", "b", "c")


def enqueue(programs, parameters, **options):
    return programs.client.get_queue("work").enqueue(parameters, **options)


def ids_of(task_id, *keys):
    return [spawned_id(task_id, key) for key in keys]


def are_run_once(programs, *ids):
    """Tell whether each of these tasks has run, once, and no other."""
    assert sorted(run.task for run in ledger(programs)) == sorted(ids)
    return is_sound(programs.client)


def test_a_task_makes_parts_and_one_that_waits_for_all_of_them(programs):
    listener = programs.listener("work:run")

    split = ended(programs.client, enqueue(programs, "split"))

    assert (split.status, split.result) == ("complete", [True, True, True]), split.error
    *parts, join = ids_of(split.id, *PARTS, "join")
    done = ended(programs.client, join)
    assert (done.result, done.fields["spawned_by"]) == ("joined", split.id)
    assert done.fields["after"] == "3"
    ends = [programs.client.get_task(part) for part in parts]
    assert max(part.finished for part in ends) <= done.started
    assert are_run_once(programs, split.id, join, *parts)
    assert listener.lines(f"spawn tasks=1 by={split.id}")


def test_a_task_needs_no_redis_to_make_tasks_with_its_end(programs):
    programs.listener("work:run", environ={"BLUEQUE_TASK_REDIS": "false"})
    let_go(programs)

    split = ended(programs.client, enqueue(programs, "split_at_the_end"))

    assert (split.status, split.result) == ("complete", "split"), split.error
    *parts, join = ids_of(split.id, *PARTS, "join")
    assert ended(programs.client, join).result == "joined"
    assert are_run_once(programs, split.id, join, *parts)


def test_what_a_task_makes_with_its_end_is_made_by_the_listener_that_adopts_it(programs):
    listener = programs.listener("work:run")
    split = running(programs, enqueue(programs, "split_at_the_end", retry=Retry(max=0)))
    slot = pid_of(split.node)
    listener.send(signal.SIGSTOP)  # else the master has another one at once
    until(lambda: state_of(listener.pid) == "T", what="the standing still of the master")
    os.kill(slot, signal.SIGSTOP)
    until(lambda: state_of(slot) == "T", what="the standing still of the listener")
    let_go(programs)
    attempt = Attempt(str(programs.directory / "spool" / f"{split.id}@1"), "")
    record = until(attempt.read_exit, what="the exit record")
    *parts, join = ids_of(split.id, *PARTS, "join")
    assert [new[0] for new in record["then"]] == [*parts, join]
    assert owner(programs.client, split.id) == split.node
    assert programs.client.get_task(join).status is None

    os.kill(slot, signal.SIGKILL)
    listener.send(signal.SIGCONT)

    done = ended(programs.client, split.id)
    assert (done.status, done.result, done.attempt, done.pid) == ("complete", "split", 1, split.pid)
    assert ended(programs.client, join).result == "joined"
    assert are_run_once(programs, split.id, join, *parts)


def test_a_task_that_is_tried_again_makes_nothing_twice(programs):
    programs.listener("work:run")

    task = enqueue(programs, "split_at_the_second_try", retry=Retry(max=1, backoff=0))

    done = ended(programs.client, task)
    assert (done.attempt, done.result) == (2, [False, False, False]), done.error
    for part in (parts := ids_of(task, *PARTS)):
        assert ended(programs.client, part).status == "complete"
    assert are_run_once(programs, task, task, *parts)


def test_an_attempt_that_has_lost_its_task_makes_nothing(programs, cli):
    programs.listener("work:run")
    task = running(programs, enqueue(programs, "spawn_when_it_is_too_late"))
    slot = pid_of(task.node)
    os.kill(slot, signal.SIGSTOP)  # else it ends the task as soon as it sees that
    until(lambda: state_of(slot) == "T", what="the standing still of the listener")
    cli.hset(f"blueque_task_{task.id}", "token", "of another attempt")

    let_go(programs)

    attempt = Attempt(str(programs.directory / "spool" / f"{task.id}@1"), "")
    record = until(attempt.read_exit, what="the exit record")
    assert record["error_type"] == "blueque.errors.NotOwner"
    assert "does not belong to this process" in record["error"]
    assert programs.client.get_task(*ids_of(task.id, "a")).status is None


@pytest.mark.parametrize(
    ("how", "error"),
    [
        ("make_too_many", "more than 100 tasks cannot be made at once"),
        ("make_too_much", "the result and the new tasks take 2,100,3"),
        ("hand_over_what_is_no_task", "a new task is a blueque.New, not str"),
    ],
)
def test_an_end_with_what_cannot_be_made_is_a_failure_that_says_so(programs, how, error):
    programs.listener("work:run")

    task = ended(programs.client, enqueue(programs, how))

    assert task.status == "failed" and error in task.error
    assert are_run_once(programs, task.id)


@pytest.mark.parametrize("retry", [Retry(1, 0), None], ids=["tried again", "put in line again"])
def test_more_tasks_than_an_end_takes_run_if_and_only_if_their_task_completes(programs, retry):
    """What an attempt that has failed has made waits for the next one, or is cancelled and waits
    for it when it is requeued.
    """
    client = programs.client
    programs.listener("work:run", "--reuse", "300", slots=2)

    task_id = enqueue(programs, "spawn_many_for_its_end", retry=retry)

    parts = [spawned_id(task_id, str(key)) for key in range(210)]
    if retry is None:
        assert ended(client, task_id).status == "failed"
        made = client.wait(parts[:90], timeout=60)
        assert {task.status for task in made} == {"cancelled"}
        assert [run.task for run in ledger(programs)] == [task_id]
        assert client.get_task(parts[90]).status is None
        for each in (*parts[:90], task_id):
            client.get_queue("work").requeue(each)
    until(lambda: client.get_task(task_id).status == "complete", what="it is complete")
    made = client.wait(parts, timeout=60)

    assert {part.status for part in made} == {"complete"}
    task = client.get_task(task_id)
    assert task.result == 120, "the second attempt has made the rest"
    assert min(part.started for part in made) >= task.finished
    assert sorted(run.task for run in ledger(programs)) == sorted([task_id, task_id, *parts])
    assert is_sound(client)


def test_a_program_that_a_task_runs_spawns_if_it_may_use_redis(programs):
    program = "from blueque import current_task; print(current_task().spawn('other', 1, key='a'))"
    programs.listener("--task-redis", "--exec", sys.executable, "-c", program)

    task = ended(programs.client, enqueue(programs, ""))

    assert [task.result] == ids_of(task.id, "a"), task.error
    assert programs.client.get_task(task.result).status == "pending"
