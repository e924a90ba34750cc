"""What is left of runs that nobody has ended: Leftovers, and what `blueque doctor` says of them."""

from __future__ import annotations

import pytest
from faults import Fault

from blueque import Client
from blueque.audit.audit import audit, repair
from blueque.audit.doctor import Doctor
from blueque.errors import WrongRun
from blueque.model import keys
from blueque.producer.abandoned_runs import Leftovers

Q = "video"
DAY = 86400.0
# What an earlier version has left of a run with two tasks that it had not committed.
STAGED_RUN = {"run": "r", "queue": Q, "kind": "staged", "state": "open", "keep": 7776000}
STAGED_TASKS = ("aeb1c1c8-f8b2-4082-bf31-856b8020dd09", "b2232d8a-4b2c-4baa-82c0-79851a21747e")


@pytest.fixture
def leftovers(client):
    return Leftovers(client.connections)


def age(cli, run, seconds):
    """Have a run lie there for so long."""
    cli.zincrby(keys.runs(Q), -seconds, run)


def found(leftovers, older_than=DAY):
    return [one.run for one in leftovers.find([Q], older_than)]


def test_only_what_is_old_and_has_not_ended_is_left_over(queue, leftovers, cli):
    for name in ("new", "old", "done"):
        queue.open_run(name).put(["a"], [b"1"])
    queue.open_run("done").close(1)
    for name in ("old", "done"):
        age(cli, name, 2 * DAY)

    assert found(leftovers) == ["old"]
    assert found(leftovers, 0) == ["old", "new"]
    assert leftovers.find([], 0) == []


def test_what_was_not_committed_is_forgotten_and_its_tasks_stay(queue, leftovers, cli):
    queue.open_run("keyed", shards=3).put(["a", "b", "c"], [b"1"] * 3)

    assert [leftovers.end(one) for one in leftovers.find([Q], 0)] == [True]
    assert leftovers.find([Q], 0) == []
    assert sorted(cli.keys("*")) == sorted(
        [
            keys.QUEUES,
            keys.pending(Q),
            keys.tasks(Q),
            keys.wake(Q),
            *[keys.task(task) for task in cli.lrange(keys.pending(Q), 0, -1)],
        ]
    )
    assert len(cli.keys(keys.task("*"))) == 3


def test_dropping_forgets_a_run_that_was_committed_too(queue, leftovers):
    queue.open_run("r").close(0)
    assert leftovers.drop(Q, "r")
    assert not leftovers.drop(Q, "r")


def test_the_doctor_names_old_runs_with_the_way_out(queue, client, cli):
    queue.open_run("-old $1").put(["a"], [b"1"])
    queue.open_run("new")
    age(cli, "-old $1", 2 * DAY)

    (check,) = [check for check in Doctor(client.connections).check() if check.name == "runs"]
    assert (check.level, check.sentence) == (
        "ok",
        "queue video: run -old $1 has been open for 2 d. If no producer will end it: blueque runs --forget='-old $1' video.",
    )
    assert Doctor(client.connections).audit(0).findings == []


@pytest.mark.parametrize("fault", Fault)
def test_a_lost_answer_while_clearing_up_does_no_harm(url, proxy, queue, cli, fault):
    for number in range(1, 6):
        cli.flushall()
        queue.open_run("r").put(["a"], [b"1"])
        client = Client(proxy.url, patience=5)
        leftovers = Leftovers(client.connections)
        (left,) = leftovers.find([Q], 0)
        proxy.arm(fault, number)
        leftovers.end(left)
        proxy.release()
        assert cli.llen(keys.pending(Q)) == len(cli.keys(keys.task("*"))) == 1
        assert audit(client.connections) == []
        client.close()


def test_a_run_that_is_begun_again_is_left_alone_however_old_it_is(queue, leftovers, cli):
    queue.open_run("r", shards=2).put(["a", "b"], [b"1"] * 2)
    age(cli, "r", 8 * DAY)
    (seen,) = leftovers.find([Q], DAY)
    run = queue.open_run("r")

    assert found(leftovers) == []
    assert not leftovers.end(seen)  # by who has found it before
    assert run.put(["a", "b", "c"], [b"1"] * 3) == 1


def test_a_run_that_moves_is_left_alone_however_long_ago_it_was_opened(queue, leftovers, cli):
    run = queue.open_run("r")
    age(cli, "r", 8 * DAY)
    (seen,) = leftovers.find([Q], DAY)
    run.put(["a"], [b"1"])

    assert found(leftovers) == []
    assert not leftovers.end(seen)


@pytest.fixture
def staged(cli):
    """A run whose tasks an earlier version has written out of sight."""
    made = {"status": "pending", "queue": Q, "parameters": "1", "parameters_encoding": "json"}
    for task in STAGED_TASKS:
        cli.hset(keys.task(task), mapping={**made, "created": 1.5, "updated": 1.5, "run": "r"})
    cli.rpush(keys.staged("c"), 1.5, STAGED_TASKS[0], f"{STAGED_TASKS[1]}  1795975031.5")
    cli.zadd(keys.staging(Q, "r"), {"c": 1.5})
    cli.hset(keys.run(Q, "r"), mapping={**STAGED_RUN, "created": 1.5})
    cli.zadd(keys.runs(Q), {"r": 1.5})
    cli.zadd(keys.QUEUES, {Q: 0})


@pytest.mark.parametrize("is_committed", [False, True])
def test_repairs_leave_the_staged_tasks_of_an_earlier_version_alone(
    client, cli, state, staged, is_committed
):
    if is_committed:
        cli.delete(keys.staging(Q, "r"))
        cli.rpush(keys.manifest(Q, "r"), "c")
    before = state()

    (finding,) = found = audit(client.connections)
    assert not any(repair(client.connections, each, 9.0) for each in found)
    assert state() == before
    assert (finding.code, finding.fix) == ("leftover", None)
    assert "end the run, or discard it, with the version of Blueque that has made it" in (
        finding.sentence
    )


def test_staged_tasks_that_no_run_knows_are_named_and_left_alone(client, cli, state, staged):
    cli.delete(keys.staging(Q, "r"))
    before = state()

    (finding,) = audit(client.connections)
    assert not repair(client.connections, finding, 9.0)
    assert state() == before
    assert (finding.code, finding.key) == ("leftover", keys.staged("c"))


def test_a_run_of_an_earlier_version_is_forgotten_once_its_tasks_are_not_held_back(
    leftovers, cli, staged
):
    with pytest.raises(WrongRun, match="in no line yet: end the run, or discard it, with the ver"):
        leftovers.drop(Q, "r")
    cli.delete(keys.staging(Q, "r"), keys.staged("c"), *map(keys.task, STAGED_TASKS))

    assert [leftovers.end(one) for one in leftovers.find([Q], 0)] == [True]
    assert cli.keys("*run*") == []
