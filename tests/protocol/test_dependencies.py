"""Tasks that wait for others: each is put in line once, when all that it waits for has ended as
wanted, and none is forgotten.

Parents are of the queue `parents`, most of those that wait of the queue `video`.
"""

from __future__ import annotations

import pytest
from transactions import protocol

from blueque.connection.redis import as_hash
from blueque.errors import InvalidInput
from blueque.model import keys
from blueque.model.attempt_ref import AttemptRef
from blueque.model.new_task import NewTask
from blueque.protocol import children
from blueque.protocol.ends import End
from blueque.protocol.settling import Settled

ABOVE, BELOW, NODE = "parents", "video", "host_1"
NOW = 9.5


@pytest.fixture(autouse=True)
def listener(redis):
    protocol.register(redis, ABOVE, NODE, "i1", {}, now=1.5)


# What is done


def parent(redis, *tasks, **options):
    for task in tasks:
        protocol.enqueue(redis, ABOVE, task, "in", 1.5, options)


def child(redis, task="c", after=None, eta=None, queue=BELOW, **options):
    """Make a task that waits for these others, by default until p is complete."""
    new = NewTask(task, queue, "in", options, {"p": "ok"} if after is None else after, eta)
    return protocol.enqueue_after(redis, [new], 2.5)


def attempt(task):
    return AttemptRef(ABOVE, task, f"token-{task}", NODE)


def start(redis, task="p"):
    """Have the task started, wherever it stands in line."""
    redis.read(("LREM", keys.pending(ABOVE), 0, task), ("LPUSH", keys.reserved(ABOVE, NODE), task))
    assert protocol.reserve(redis, attempt(task), "i1", 3.5) is not None
    protocol.start(redis, attempt(task), 77, 4.5)


def end(redis, task="p", how="complete", result="out", **facts):
    """End a started task, or cancel one that is in line."""
    if how == "complete":
        protocol.end(redis, attempt(task), End.complete(result, facts), 5.5)
    elif how == "failed":
        protocol.end(redis, attempt(task), End.fail("why"), 5.5)
    else:
        protocol.cancel(redis, ABOVE, task, "ann", None, 5.5)


def run(redis, *tasks, how="complete", **facts):
    """Have each task run to its end, and tell those that wait for it."""
    for task in tasks:
        if how != "cancelled":
            start(redis, task)
        end(redis, task, how, **facts)
    settle_all(redis)


def settle_all(redis, now=NOW):
    """Do what listeners and schedulers do, until there is nothing left to tell."""
    for _ in range(1000):
        (ids,) = redis.read(("ZRANGE", keys.UNSETTLED_TASKS, 0, -1))
        if not ids:
            return
        for task in ids:
            protocol.settle(redis, task, now)
    raise AssertionError(f"never settled: {ids}")


def recheck_all(redis, now=NOW):
    for queue in (BELOW, ABOVE):
        (ids,) = redis.read(("ZRANGE", keys.blocked(queue), 0, -1))
        for task in ids:
            protocol.recheck(redis, queue, task, now)
    settle_all(redis, now)


# What is seen


def fields(redis, task="c"):
    return as_hash(*redis.read(("HGETALL", keys.task(task))))


def status(redis, task="c"):
    return fields(redis, task).get("status")


def statuses(redis, *tasks):
    return [status(redis, task) for task in tasks]


def conditions(redis, task="c"):
    return as_hash(*redis.read(("HGETALL", keys.conditions(task))))


def inputs(redis, task="c"):
    return as_hash(*redis.read(("HGETALL", keys.inputs(task))))


def line(redis, queue=BELOW):
    """Return the tasks in line, the next one first."""
    (ids,) = redis.read(("LRANGE", keys.pending(queue), 0, -1))
    return ids[::-1]


def dependents(redis, task="p"):
    (ids,) = redis.read(("ZRANGE", keys.dependents(task), 0, -1))
    return ids


def is_forgotten(redis, *parents):
    """Tell whether nothing is left of what these knew about others that waited for them."""
    known = [dependents(redis, task) or fields(redis, task).get("dependents") for task in parents]
    (unsettled,) = redis.read(("ZCARD", keys.UNSETTLED_TASKS))
    return not any(known) and not unsettled


# Making them


def test_a_transaction_takes_a_hundred_tasks_a_hundred_parents_and_a_thousand_conditions(redis):
    some = [f"p{number}" for number in range(101)]
    parent(redis, *some)
    all_but_one = dict.fromkeys(some[:100], "ok")
    for new in (
        [NewTask(f"c{number}", BELOW, "in", {}, {"p0": "ok"}) for number in range(101)],
        [NewTask(task, BELOW, "in", {}, dict.fromkeys(some, "ok")) for task in ("c", "d")],
        [NewTask(f"c{number}", BELOW, "in", {}, all_but_one) for number in range(11)],
    ):
        with pytest.raises(InvalidInput):
            protocol.enqueue_after(redis, new, 2.5)

    new = [NewTask(f"c{number}", BELOW, "in", {}, all_but_one) for number in range(10)]
    assert all(protocol.enqueue_after(redis, new, 2.5))
    alone = NewTask("alone", BELOW, "in", {}, dict.fromkeys(some, "ok"))
    assert protocol.enqueue_after(redis, [alone], 2.5) == [True]


def test_nothing_stays_of_a_task_with_that_key_that_1_0_0_has_deleted(redis):
    parent(redis, "p", "q")
    child(redis, after={"p": "ok", "q": "ok"}, inputs=0)
    run(redis, "p")
    redis.read(("DEL", keys.task("c")))

    child(redis, after={"q": "ok"}, inputs=0, key="a", keep=60, enqueued_by="m")

    assert (conditions(redis), inputs(redis)) == ({"q": "ok"}, {})


# More than a hundred parents

MANY = [f"p{number:03}" for number in range(250)]


def make_one_of_many(redis, **options):
    parent(redis, *MANY)
    child(redis, after=dict.fromkeys(MANY, "ok"), **options)


# Results


def test_results_beyond_what_a_task_may_have_are_left(redis, monkeypatch):
    monkeypatch.setattr(children, "MAX_INPUTS", 2500)
    parent(redis, "p", "q", "r", "s")
    child(redis, after=dict.fromkeys("pqrs", "ok"), inputs=0)

    for task, size in (("p", 1000), ("q", 1000), ("r", 1000), ("s", 500)):
        run(redis, task, result="x" * size)

    assert {task: text[:1] for task, text in inputs(redis).items()} == {
        "p": "t",
        "q": "t",
        "r": "l",
        "s": "t",
    }
    assert (fields(redis)["inputs"], status(redis)) == ("2500", "pending")


# 1.0.0, and what gets lost


def by_1_0_0(redis, task, how, where=keys.complete):
    """End or delete a task as 1.0.0 does, which writes nothing of ours."""
    redis.read(("LREM", keys.pending(ABOVE), 0, task))
    if how == "deleted":
        redis.read(("DEL", keys.task(task)))
    else:
        redis.read(
            ("HSET", keys.task(task), "status", how, "result", "out"), ("LPUSH", where(ABOVE), task)
        )


@pytest.mark.parametrize("options", [{}, {"inputs": 0}], ids=["no results", "results"])
def test_a_parent_that_1_0_0_has_completed_is_noticed(redis, options):
    parent(redis, "p")
    child(redis, **options)
    by_1_0_0(redis, "p", "complete")
    settle_all(redis)
    assert status(redis) == "blocked"

    recheck_all(redis)

    assert (status(redis), line(redis)) == ("pending", ["c"])
    assert inputs(redis) == ({"p": "tout"} if options else {})
    assert is_forgotten(redis, "p")


def test_a_parent_that_1_0_0_has_failed_is_noticed(redis):
    parent(redis, "p")
    child(redis, "c")
    child(redis, "d", broken="cancel")
    child(redis, "e", {"p": "any"})
    by_1_0_0(redis, "p", "failed", keys.failed)

    recheck_all(redis)

    assert statuses(redis, "c", "d", "e") == ["blocked", "cancelled", "pending"]


def test_a_parent_that_1_0_0_has_deleted_is_noticed(redis):
    parent(redis, "p")
    child(redis, "c")
    child(redis, "d", broken="cancel")
    child(redis, "e", {"p": "any"})
    child(redis, "f", {"p": "not_ok"})
    by_1_0_0(redis, "p", "deleted")

    recheck_all(redis)

    assert statuses(redis, "c", "d", "e", "f") == ["blocked", "cancelled", "pending", "blocked"]
    assert conditions(redis) == {"p": "-gone"}
    assert is_forgotten(redis, "p")


def test_recheck_sees_to_a_hundred_of_many_parents_at_a_time(redis):
    make_one_of_many(redis)
    for task in MANY:
        by_1_0_0(redis, task, "complete")

    for _ in range(3):
        protocol.recheck(redis, BELOW, "c", NOW)

    assert status(redis) == "pending"


def test_who_settles_is_told_what_came_of_it(redis):
    parent(redis, "p", "q")
    child(redis, "freed", {"p": "any"})
    child(redis, "half", {"p": "any", "q": "ok"})
    child(redis, "off", {"p": "ok"}, broken="cancel")
    child(redis, "below", {"off": "ok"})
    child(redis, "gone", {"p": "any"})
    protocol.cancel(redis, BELOW, "gone", "ann", None, 5.5)
    start(redis)
    end(redis, how="failed")

    settled = protocol.settle(redis, "p", NOW)

    assert settled == Settled(removed=3, waiting=1, freed=1, cancelled=1, ended=("off",))
