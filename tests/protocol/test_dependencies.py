"""Tasks that wait for others: each is put in line once, when all that it waits for has ended as
wanted, and none is forgotten.

Parents are of the queue `parents`, most of those that wait of the queue `video`.
"""

from __future__ import annotations

import json

import pytest
from transactions import protocol

from blueque.connection.redis import as_hash
from blueque.errors import (
    BluequeError,
    HasDependents,
    InvalidInput,
    NoSuchTask,
    WrongQueue,
    WrongState,
)
from blueque.model import keys
from blueque.model.attempt_ref import AttemptRef
from blueque.model.new_task import NewTask
from blueque.producer.dependents import RecheckCount, recheck_dependents
from blueque.protocol import children, rechecking, settling
from blueque.protocol.archiving import BatchRef, Written
from blueque.protocol.ends import End
from blueque.protocol.parents import TaskParent
from blueque.protocol.pruning import FinishedTask
from blueque.protocol.recover import Loss
from blueque.protocol.settling import Settled

ABOVE, BELOW, NODE = "parents", "video", "host_1"
NOW = 9.5
ENDS = ("complete", "failed", "cancelled")


@pytest.fixture(autouse=True)
def listener(redis):
    protocol.register(redis, ABOVE, NODE, "i1", {}, now=1.5)


# What is done


def parent(redis, *tasks, **options):
    for task in tasks:
        protocol.enqueue(redis, ABOVE, task, "in", 1.5, options)


def child(redis, task="c", after=None, eta=None, queue=BELOW, is_missing_met=False, **options):
    """Make a task that waits for these others, by default until p is complete."""
    new = NewTask(task, queue, "in", options, {"p": "ok"} if after is None else after, eta)
    return protocol.enqueue_after(redis, [new], 2.5, is_missing_met)


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


def lose(redis, task="p"):
    """Declare the task lost with its listener, which then registers again."""
    protocol.fence(redis, ABOVE, NODE, "i1", "0", 9.25)
    assert protocol.lose(redis, attempt(task), "i1", Loss("gone"), None, 5.5) == "failed"
    protocol.register(redis, ABOVE, NODE, "i2", {}, now=1.5)


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


def events(redis, task="c"):
    (told,) = redis.read(("LRANGE", keys.history(task), 0, -1))
    return [json.loads(text) for text in told]


def is_forgotten(redis, *parents):
    """Tell whether nothing is left of what these knew about others that waited for them."""
    known = [dependents(redis, task) or fields(redis, task).get("dependents") for task in parents]
    (unsettled,) = redis.read(("ZCARD", keys.UNSETTLED_TASKS))
    return not any(known) and not unsettled


# Conditions


@pytest.mark.parametrize(
    ("kind", "how", "becomes"),
    [
        ("ok", "complete", "pending"),
        ("ok", "failed", "blocked"),
        ("ok", "cancelled", "blocked"),
        ("any", "complete", "pending"),
        ("any", "failed", "pending"),
        ("any", "cancelled", "pending"),
        ("not_ok", "complete", "cancelled"),
        ("not_ok", "failed", "pending"),
        ("not_ok", "cancelled", "pending"),
    ],
)
@pytest.mark.parametrize("is_late", [False, True], ids=["made before", "made after"])
def test_each_kind_of_condition_is_met_or_not_by_each_end(redis, kind, how, becomes, is_late):
    parent(redis, "p")
    if is_late:
        run(redis, "p", how=how)
        child(redis, after={"p": kind})
        settle_all(redis)
    else:
        child(redis, after={"p": kind})
        assert status(redis) == "blocked"
        run(redis, "p", how=how)

    assert status(redis) == becomes
    assert line(redis) == (["c"] if becomes == "pending" else [])
    assert conditions(redis)["p"] == {
        "pending": f"+{how}",
        "cancelled": "-complete",
        "blocked": "ok",
    }.get(becomes)


@pytest.mark.parametrize("how", ["failed", "cancelled"])
@pytest.mark.parametrize("is_late", [False, True], ids=["made before", "made after"])
def test_a_task_that_says_so_is_cancelled_when_its_parent_has_ended_badly(redis, how, is_late):
    parent(redis, "p")
    if is_late:
        run(redis, "p", how=how)
    child(redis, broken="cancel")
    if not is_late:
        run(redis, "p", how=how)
    settle_all(redis)

    found = fields(redis)
    assert (found["status"], found["cancelled_by"], found["broken_by"]) == (
        "cancelled",
        "blueque",
        "p",
    )
    assert found["cancel_reason"] == f"task p is {how}"
    assert events(redis)[-1]["event"] == "cancelled"


def test_a_task_waits_for_all_of_its_parents(redis):
    parent(redis, "p", "q", "r")
    child(redis, after={"p": "ok", "q": "any", "r": "not_ok"}, broken="cancel")

    run(redis, "p")
    assert status(redis) == "blocked"
    run(redis, "q", how="failed")
    assert status(redis) == "blocked"
    run(redis, "r", how="failed")

    assert status(redis) == "pending"
    assert [(event["event"], event["by"]) for event in events(redis)] == [("unblocked", "r")]
    assert is_forgotten(redis, "p", "q", "r")


def test_what_waits_for_a_task_that_is_cancelled_is_cancelled_step_by_step(redis):
    parent(redis, "p")
    child(redis, "c", broken="cancel")
    child(redis, "d", {"c": "ok"}, broken="cancel")
    child(redis, "e", {"d": "any"})

    run(redis, "p", how="failed")

    assert statuses(redis, "c", "d", "e") == ["cancelled", "cancelled", "pending"]
    assert fields(redis, "d")["broken_by"] == "c"


def test_a_task_whose_time_is_still_to_come_is_scheduled_when_the_others_have_ended(redis):
    parent(redis, "p")
    child(redis, "c", eta=100.5)
    child(redis, "d", eta=3.5)

    run(redis, "p")

    assert statuses(redis, "c", "d") == ["scheduled", "pending"]
    assert protocol.enqueue_due(redis, BELOW, 101.5) == ["c"]


def test_a_task_whose_parents_have_ended_before_is_scheduled_until_its_time(redis):
    parent(redis, "p")
    run(redis, "p")

    child(redis, eta=100.5)

    assert (status(redis), line(redis)) == ("scheduled", [])


def test_those_that_are_let_go_join_their_own_lines_in_the_order_in_which_they_were_made(redis):
    parent(redis, "p")
    for number, task in enumerate(("z", "y", "x")):
        new = NewTask(task, BELOW, "in", {}, {"p": "ok"})
        protocol.enqueue_after(redis, [new], 2.5 + number)
    child(redis, "w", queue="audio")
    child(redis, "v", needs="lock:a=1", priority=5)

    run(redis, "p")

    assert (line(redis), line(redis, "audio")) == (["z", "y", "x"], ["w"])
    assert redis.read(
        ("LRANGE", keys.line(BELOW, "5,lock:a=1"), 0, -1),
        ("ZRANGE", keys.lines(BELOW), 0, -1, "WITHSCORES"),
        ("SMEMBERS", keys.waiting("a")),
        ("ZCARD", keys.wake(BELOW)),
        ("ZCARD", keys.wake("audio")),
    ) == [["v"], ["5,lock:a=1", "5"], ["5,lock:a=1_video"], 1, 1]
    assert redis.read(
        ("HGET", keys.totals(BELOW), "unblocked"), ("HGET", keys.totals("audio"), "unblocked")
    ) == ["4", "1"]


# Making them


def test_a_parent_that_does_not_exist_is_refused_and_nothing_is_written(redis, state):
    before = state()

    with pytest.raises(NoSuchTask):
        child(redis)

    assert state() == before


def test_a_parent_that_does_not_exist_counts_as_met_if_that_is_wanted(redis):
    child(redis, is_missing_met=True)

    assert (status(redis), conditions(redis)) == ("pending", {"p": "+gone"})


def test_a_task_cannot_wait_for_itself_nor_for_one_that_is_made_with_it(redis):
    for after in ({"c": "ok"}, {"d": "ok"}):
        new = [NewTask("c", BELOW, "in", {}, after), NewTask("d", BELOW, "in", {}, {})]
        with pytest.raises(NoSuchTask):
            protocol.enqueue_after(redis, new, 2.5)


def test_many_tasks_are_made_at_once_those_with_nothing_to_wait_for_too(redis):
    parent(redis, "p", "q")
    run(redis, "q")
    new = [
        NewTask("c", BELOW, "in", {}, {"p": "ok", "q": "ok"}),
        NewTask("d", BELOW, "in", {}, {"q": "ok"}),
        NewTask("e", BELOW, "in", {}, {}),
    ]

    assert protocol.enqueue_after(redis, new, 2.5) == [True, True, True]
    assert protocol.enqueue_after(redis, new, 2.5) == [True, True, True]

    assert statuses(redis, "c", "d", "e") == ["blocked", "pending", "pending"]
    assert line(redis) == ["d", "e"]
    assert [fields(redis, task).get("after") for task in ("c", "d", "e")] == ["2", "1", None]


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


def test_of_tasks_with_keys_those_are_made_that_are_new_and_each_call_knows_its_own(redis):
    def make(mark, *tasks):
        new = [
            NewTask(task, BELOW, "in", {"key": task, "keep": 60, "enqueued_by": mark}, {"p": "ok"})
            for task in tasks
        ]
        return protocol.enqueue_after(redis, new, 2.5)

    parent(redis, "p")

    assert make("m1", "c") == [True]
    assert make("m2", "c", "d") == [False, True]
    assert make("m2", "c", "d") == [False, True]
    protocol.cancel(redis, BELOW, "d", "ann", None, 3.5)
    protocol.delete(redis, BELOW, "d")
    assert make("m3", "d") == [False]
    assert make("m2", "d") == [True]
    assert not fields(redis, "d")


def test_a_key_is_not_refused_for_parents_that_are_gone_if_its_task_is_there(redis):
    parent(redis, "p", "q")
    options = {"key": "a", "keep": 60, "enqueued_by": "m1"}
    child(redis, **options)
    run(redis, "p")
    protocol.delete(redis, ABOVE, "p")
    new = [
        NewTask("c", BELOW, "in", {**options, "enqueued_by": "m2"}, {"p": "ok"}),
        NewTask("d", BELOW, "in", {**options, "enqueued_by": "m2"}, {"q": "ok"}),
    ]

    assert protocol.enqueue_after(redis, new, 3.5) == [False, True]


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


def test_a_task_may_wait_for_250_others_that_end_before_and_after_it_is_made(redis):
    parent(redis, *MANY)
    run(redis, *MANY[:10], *MANY[200:210])
    child(redis, after=dict.fromkeys(MANY, "ok"))
    left = [task for task in MANY if status(redis, task) == "pending"]

    run(redis, *left[:-1])
    assert status(redis) == "blocked"
    run(redis, left[-1])

    assert (status(redis), fields(redis)["after"], line(redis)) == ("pending", "250", ["c"])
    assert is_forgotten(redis, *MANY)


# Telling them


def test_250_dependents_are_told_a_hundred_at_a_time(redis):
    parent(redis, "p")
    tasks = [f"c{number:03}" for number in range(250)]
    for task in tasks:
        child(redis, task)
    start(redis)
    end(redis)

    told = [protocol.settle(redis, "p", NOW) for _ in range(3)]

    assert [each.freed for each in told] == [100, 100, 50]
    assert [each.is_over for each in told] == [False, False, True]
    assert line(redis) == tasks
    assert is_forgotten(redis, "p")


def test_those_that_wait_on_are_told_once_and_again_when_it_has_completed_after_all(redis):
    parent(redis, "p")
    tasks = [f"c{number:03}" for number in range(150)]
    for task in tasks:
        child(redis, task)
    start(redis)
    end(redis, how="failed")

    told = [protocol.settle(redis, "p", NOW) for _ in range(3)]
    assert [each.waiting for each in told] == [100, 50, 0]
    protocol.requeue(redis, ABOVE, "p", "m", 6.5)
    settle_all(redis)
    assert {*statuses(redis, *tasks)} == {"blocked"}
    run(redis, "p")

    assert line(redis) == tasks
    assert is_forgotten(redis, "p")


def test_what_is_told_twice_is_told_once(redis, state):
    parent(redis, "p", "q")
    child(redis, "c")
    child(redis, "d", broken="cancel")
    child(redis, "e", {"p": "any", "q": "ok"})
    run(redis, "p", how="failed")
    before = state()

    assert protocol.settle(redis, "p", NOW) == Settled()
    assert recheck_dependents(redis, TaskParent("p"), NOW) == RecheckCount(removed=0, waiting=2)
    assert state() == before


def test_a_task_that_runs_again_has_nothing_to_tell_until_its_next_end(redis):
    parent(redis, "p")
    child(redis)
    start(redis)
    end(redis, how="failed")
    protocol.requeue(redis, ABOVE, "p", "m", 6.5)

    assert protocol.settle(redis, "p", NOW) == Settled()

    assert status(redis) == "blocked"
    run(redis, "p")
    assert status(redis) == "pending"


def test_a_task_that_does_not_wait_any_more_is_dropped_by_a_thorough_look(redis):
    parent(redis, "p")
    for task in ("c", "d", "e"):
        child(redis, task)
    run(redis, "p", how="failed")
    protocol.cancel(redis, BELOW, "c", "ann", None, 6.5)
    protocol.delete(redis, BELOW, "c")
    protocol.unblock(redis, BELOW, "d", 6.5, "ann")

    settle_all(redis)
    assert dependents(redis) == ["c", "e"]
    assert recheck_dependents(redis, TaskParent("p"), NOW) == RecheckCount(removed=1, waiting=1)
    assert dependents(redis) == ["e"]


# A parent whose end was not its last word


@pytest.mark.parametrize("how", ["complete", "failed"])
@pytest.mark.parametrize("broken", [{}, {"broken": "cancel"}], ids=["hold", "cancel"])
def test_while_one_tells_many_others_see_that_it_is_at_work(redis, how, broken):
    parent(redis, "p")
    for number in range(150):
        child(redis, f"c{number}", **broken)
    start(redis)
    end(redis, how=how)
    assert redis.read(("ZSCORE", keys.UNSETTLED_TASKS, "p")) == ["5.5"]

    assert not protocol.settle(redis, "p", NOW).is_over

    assert redis.read(("ZSCORE", keys.UNSETTLED_TASKS, "p")) == [str(NOW)]


def test_a_late_result_of_a_lost_parent_is_passed_on_once(redis):
    parent(redis, "p")
    child(redis, "c")
    child(redis, "d", {"p": "any"})
    child(redis, "e", {"p": "not_ok"})
    start(redis)
    lose(redis)
    settle_all(redis)
    assert statuses(redis, "c", "d", "e") == ["blocked", "pending", "pending"]

    end(redis)
    settle_all(redis)
    recheck_all(redis)

    assert statuses(redis, "c", "d", "e") == ["pending"] * 3
    assert line(redis) == ["d", "e", "c"]
    assert [event["event"] for event in events(redis, "c")] == ["unblocked"]


@pytest.mark.parametrize("by", ["ann", "blueque"])
def test_a_cancelled_task_stays_cancelled_when_its_parent_completes_until_it_is_requeued(redis, by):
    parent(redis, "p", "q")
    child(redis, after={"p": "ok", "q": "any"}, broken="cancel", inputs=0)
    if by == "ann":
        protocol.cancel(redis, BELOW, "c", "ann", "late", 2.5)
    run(redis, "p", "q", how="failed")
    assert protocol.cancel(redis, BELOW, "c", "bob", "again", 6.5) == "cancelled"
    protocol.delete(redis, ABOVE, "q")

    protocol.requeue(redis, ABOVE, "p", "m", 6.5)
    run(redis, "p", result="out")
    recheck_all(redis)
    found = fields(redis)
    assert (found["status"], found["cancelled_by"]) == ("cancelled", by)
    assert conditions(redis) == {"p": "+complete", "q": "+failed"}
    assert is_forgotten(redis, "p")

    protocol.requeue(redis, BELOW, "c", "m", 7.5)

    assert (status(redis), inputs(redis)) == ("pending", {"p": "tout"})
    assert "broken_by" not in fields(redis)


def test_a_lost_parent_that_is_restored_is_waited_for_again(redis):
    parent(redis, "p")
    child(redis, "c")
    child(redis, "d", {"p": "any"})
    start(redis)
    lose(redis)
    settle_all(redis)

    assert protocol.restore(redis, attempt("p"), "i2", 77, {}, 4.5, 6.5)
    settle_all(redis)
    assert statuses(redis, "c", "d") == ["blocked", "pending"]
    end(redis)
    settle_all(redis)

    assert line(redis) == ["d", "c"]


def test_a_chain_that_was_cancelled_goes_on_when_each_of_it_is_requeued(redis):
    parent(redis, "p")
    child(redis, "c", queue=ABOVE, broken="cancel")
    child(redis, "d", {"c": "ok"}, broken="cancel")
    run(redis, "p", how="failed")
    assert statuses(redis, "c", "d") == ["cancelled", "cancelled"]

    for task, queue in (("d", BELOW), ("c", ABOVE), ("p", ABOVE)):
        protocol.requeue(redis, queue, task, "m", 6.5)
    recheck_all(redis)
    assert statuses(redis, "p", "c", "d") == ["pending", "blocked", "blocked"]
    run(redis, "p")
    run(redis, "c")

    assert statuses(redis, "c", "d") == ["complete", "pending"]


# What a person does


def test_a_blocked_task_is_cancelled_moved_or_given_another_priority(redis):
    parent(redis, "p")
    for task in ("c", "d", "e"):
        child(redis, task)

    assert protocol.cancel(redis, BELOW, "c", "ann", None, 3.5) == "cancelled"
    protocol.place(redis, BELOW, "d", 3.5, to="audio")
    protocol.place(redis, BELOW, "e", 3.5, priority=5)
    with pytest.raises(WrongState):
        protocol.place(redis, BELOW, "e", 3.5, is_first=True)
    assert redis.read(
        ("ZRANGE", keys.blocked(BELOW), 0, -1), ("ZRANGE", keys.blocked("audio"), 0, -1)
    ) == [["e"], ["d"]]
    run(redis, "p")

    assert statuses(redis, "c", "d", "e") == ["cancelled", "pending", "pending"]
    assert line(redis, "audio") == ["d"]
    assert redis.read(("LRANGE", keys.line(BELOW, "5"), 0, -1)) == [["e"]]


def test_a_cancelled_task_that_is_requeued_waits_on(redis):
    parent(redis, "p", "q")
    child(redis, after={"p": "ok", "q": "ok"}, broken="cancel")
    run(redis, "p", how="failed")

    protocol.requeue(redis, BELOW, "c", "m", 6.5)
    protocol.requeue(redis, BELOW, "c", "m", 6.5)
    recheck_all(redis)

    found = fields(redis)
    assert (found["status"], found.get("broken"), found.get("broken_by")) == ("blocked", None, None)
    protocol.requeue(redis, ABOVE, "p", "m", 6.5)
    run(redis, "p", "q")
    assert line(redis) == ["c"]


def test_a_cancelled_task_that_is_requeued_does_not_wait_for_what_can_never_be(redis):
    parent(redis, "p", "q")
    child(redis, after={"p": "not_ok", "q": "ok"})
    run(redis, "p")
    assert status(redis) == "cancelled"

    protocol.requeue(redis, BELOW, "c", "m", 6.5)
    assert (status(redis), conditions(redis)["p"]) == ("blocked", "+dropped")
    run(redis, "q")

    assert line(redis) == ["c"]


def test_a_task_that_was_requeued_to_wait_and_then_cancelled_stays_so(redis):
    parent(redis, "p", "q")
    child(redis, after={"p": "ok", "q": "ok"}, broken="cancel")
    run(redis, "p", how="failed")
    protocol.requeue(redis, BELOW, "c", "m", 6.5)
    protocol.cancel(redis, BELOW, "c", "ann", None, 6.5)

    protocol.requeue(redis, ABOVE, "p", "m", 6.5)
    run(redis, "p", "q")

    assert status(redis) == "cancelled"


def test_a_task_that_has_run_is_put_in_line_again_without_waiting(redis):
    parent(redis, "p")
    child(redis, queue=ABOVE)
    run(redis, "p")
    run(redis, "c", how="failed")

    protocol.requeue(redis, ABOVE, "c", "m", 6.5)

    assert (status(redis), line(redis, ABOVE)) == ("pending", ["c"])


def test_a_person_drops_one_condition_or_all_of_them(redis):
    parent(redis, "p", "q", "r")
    child(redis, after={"p": "ok", "q": "ok", "r": "ok"})

    assert protocol.unblock(redis, BELOW, "c", 6.5, "ann", ["q"]) == "blocked"
    assert protocol.unblock(redis, BELOW, "c", 6.5, "ann", ["s"]) == "blocked"
    settle_all(redis)
    run(redis, "p")
    assert protocol.unblock(redis, BELOW, "c", 6.5, "ann") == "pending"
    assert protocol.unblock(redis, BELOW, "c", 6.5, "ann") == "pending"

    assert line(redis) == ["c"]
    assert conditions(redis) == {"p": "+complete", "q": "+dropped", "r": "+dropped"}
    assert [(event["event"], event["by"]) for event in events(redis)] == [
        ("dropped", "ann"),
        ("unblocked", "ann"),
    ]
    assert events(redis)[0]["from"] == "q"
    run(redis, "q", "r", how="failed")
    assert is_forgotten(redis, "p", "q", "r")
    assert line(redis) == ["c"]


def test_only_blocked_tasks_of_the_queue_are_unblocked(redis):
    parent(redis, "p")
    child(redis)

    with pytest.raises(WrongState):
        protocol.unblock(redis, ABOVE, "p", 6.5, "ann")
    with pytest.raises(WrongState):
        protocol.unblock(redis, ABOVE, "nothing", 6.5, "ann")
    with pytest.raises(WrongQueue):
        protocol.unblock(redis, "audio", "c", 6.5, "ann")
    with pytest.raises(WrongState):
        protocol.requeue(redis, BELOW, "c", "m", 6.5)


def test_a_task_that_has_lost_its_conditions_waits_until_a_person_lets_it_go(redis):
    parent(redis, "p")
    child(redis)
    redis.read(("DEL", keys.conditions("c")))
    run(redis, "p")
    recheck_all(redis)
    assert status(redis) == "blocked"

    assert protocol.unblock(redis, BELOW, "c", 6.5, "ann") == "pending"


# Deletion


def test_a_task_for_which_others_wait_is_neither_deleted_nor_pruned_erased_or_purged(redis):
    parent(redis, "p", "q")
    child(redis, after={"p": "ok", "q": "ok"})
    assert protocol.purge(redis, ABOVE, ["p", "q"]) == 0
    run(redis, "p", how="failed")

    with pytest.raises(HasDependents):
        protocol.delete(redis, ABOVE, "p")
    assert protocol.prune(redis, ABOVE, "failed", [FinishedTask("p", 5.5)]) == 0
    protocol.claim_batch(redis, BatchRef(ABOVE, "b", "w"), {}, {}, 6.5)
    row = Written("p", "failed", 5_500_000, 1)
    assert protocol.erase(redis, BatchRef(ABOVE, "b", "w"), [row], 6.5) == 0
    assert status(redis, "p") == "failed"

    protocol.unblock(redis, BELOW, "c", 6.5, "ann")
    settle_all(redis)
    assert protocol.erase(redis, BatchRef(ABOVE, "b", "w"), [row], 6.5) == 1


def test_a_task_that_is_deleted_by_force_is_gone_for_those_that_wait(redis):
    parent(redis, "p")
    child(redis, "c")
    child(redis, "d", broken="cancel")
    child(redis, "e", {"p": "any"})
    start(redis)
    end(redis, how="failed")

    assert protocol.delete(redis, ABOVE, "p", is_forced=True)
    settle_all(redis)
    recheck_all(redis)

    assert statuses(redis, "c", "d", "e") == ["blocked", "cancelled", "pending"]
    assert fields(redis, "d")["cancel_reason"] == "task p is gone"
    assert is_forgotten(redis, "p")


def test_a_blocked_task_is_purged_with_all_that_belongs_to_it(redis, cli):
    parent(redis, "p", "q")
    child(redis, after={"p": "ok", "q": "ok"}, inputs=0)
    run(redis, "p")

    assert protocol.purge(redis, BELOW, ["c"]) == 1

    assert not [key for key in cli.scan_iter() if key.endswith("_c")]
    assert not cli.exists(keys.blocked(BELOW))
    run(redis, "q")
    assert is_forgotten(redis, "q")


def test_a_task_for_which_others_wait_is_purged_by_force_with_the_list_of_them(redis, cli):
    parent(redis, "p")
    child(redis, after={"p": "ok"})

    assert protocol.purge(redis, ABOVE, ["p"], is_forced=True) == 1

    assert not [key for key in cli.scan_iter() if key.endswith("_p")]


def test_a_queue_with_a_blocked_task_is_not_forgotten(redis):
    parent(redis, "p")
    child(redis)

    assert protocol.forget_queue(redis, BELOW, 6.5) == {"tasks": 1, "blocked": 1}


# Results


def test_a_task_gets_the_results_that_it_wants_as_they_are(redis):
    parent(redis, "p", "q", "r", "s")
    run(redis, "p", result="text")
    run(redis, "q", how="failed")
    child(redis, after={"p": "ok", "q": "any", "r": "any", "s": "ok"}, inputs=0)
    settle_all(redis)
    assert inputs(redis) == {"p": "ttext"}

    run(redis, "r", result='{"é":1}', result_encoding="json")
    run(redis, "s", result="")

    assert inputs(redis) == {"p": "ttext", "r": 'j{"é":1}', "s": "t"}
    assert fields(redis)["inputs"] == str(len("text") + len('{"é":1}'.encode()))
    assert status(redis) == "pending"


def test_a_task_that_has_only_parents_that_are_complete_gets_their_results_too(redis):
    parent(redis, "p")
    run(redis, "p", result="text")

    child(redis, inputs=0)
    child(redis, "d")
    assert statuses(redis, "c", "d") == ["blocked", "pending"]
    settle_all(redis)

    assert (status(redis), inputs(redis)) == ("pending", {"p": "ttext"})


def test_each_of_many_gets_the_result_that_it_wants(redis):
    parent(redis, "p")
    tasks = [f"c{number}" for number in range(8)]
    for number, task in enumerate(tasks):
        child(redis, task, **({} if number == 3 else {"inputs": 0}))
    start(redis)
    end(redis, result="x" * 1000)

    assert protocol.settle(redis, "p", NOW) == Settled(removed=8, freed=8)

    lengths = [len(inputs(redis, task).get("p", "")) for task in tasks]
    assert lengths == [1001] * 3 + [0] + [1001] * 4


def test_a_task_whose_time_has_come_gets_the_results_of_several_parents_by_settle(redis):
    parent(redis, "p", "q")
    child(redis, after={"p": "ok", "q": "ok"}, inputs=0)
    for task in ("p", "q"):
        by_1_0_0(redis, task, "complete")

    assert protocol.recheck(redis, BELOW, "c", NOW) == "blocked"
    settle_all(redis)

    assert (status(redis), inputs(redis)) == ("pending", {"p": "tout", "q": "tout"})


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


@pytest.mark.parametrize("lost", ["field", "entry", "both"])
@pytest.mark.parametrize("is_late", [False, True], ids=["before its end", "after it"])
def test_a_parent_that_has_forgotten_who_waits_for_it_learns_it_again(redis, lost, is_late):
    def forget():
        if lost != "entry":
            redis.read(("HDEL", keys.task("p"), "dependents"))
        if lost != "field":
            redis.read(("DEL", keys.dependents("p")))

    parent(redis, "p")
    child(redis, "c")
    child(redis, "d", broken="cancel")
    if is_late:
        forget()
        run(redis, "p")
        recheck_all(redis)
    else:
        forget()
        recheck_all(redis)
        assert dependents(redis) == ["c", "d"]
        run(redis, "p")

    assert statuses(redis, "c", "d") == ["pending", "pending"]


def test_recheck_sets_the_next_look_by_the_number_of_blocked_tasks(redis, monkeypatch):
    parent(redis, "p")
    child(redis)
    assert protocol.recheck(redis, BELOW, "c", 100.0) == "blocked"
    assert redis.read(("ZSCORE", keys.blocked(BELOW), "c")) == ["160"]

    monkeypatch.setattr(rechecking, "LOOKS_PER_SECOND", 0.01)
    assert protocol.recheck(redis, BELOW, "c", 100.0) == "blocked"
    assert redis.read(("ZSCORE", keys.blocked(BELOW), "c")) == ["200"]


def test_recheck_sees_to_a_hundred_of_many_parents_at_a_time(redis):
    make_one_of_many(redis)
    for task in MANY:
        by_1_0_0(redis, task, "complete")

    for _ in range(3):
        protocol.recheck(redis, BELOW, "c", NOW)

    assert status(redis) == "pending"


def test_a_running_attempt_that_redis_has_forgotten_with_the_end_of_its_parent_runs_on(redis):
    parent(redis, "p")
    child(redis, queue=ABOVE)
    ours = {"queue": ABOVE, "created": "2.5", "attempt": "1", "token": "t", "pid": "77"}

    assert protocol.reassert(redis, ABOVE, "c", NODE, "i1", ours, 6.5)

    assert status(redis) == "started"
    assert redis.read(("EXISTS", keys.blocked(ABOVE))) == [0]
    run(redis, "p")
    assert (status(redis), line(redis, ABOVE)) == ("started", [])


# Repeated, and at the same time

CALLS = {
    "enqueue_after": lambda redis: child(redis, "new", {"p": "ok", "q": "any"}),
    "settle p": lambda redis: settling.next_dependents(redis, "settle", TaskParent("p"), NOW),
    "tell c of p": lambda redis: rechecking.tell(redis, "c", TaskParent("p"), NOW),
    "tell d of p": lambda redis: rechecking.tell(redis, "d", TaskParent("p"), NOW),
    "tell c of q": lambda redis: rechecking.tell(redis, "c", TaskParent("q"), NOW),
    "recheck c": lambda redis: protocol.recheck(redis, BELOW, "c", NOW),
    "recheck d": lambda redis: protocol.recheck(redis, BELOW, "d", NOW),
    "unblock": lambda redis: protocol.unblock(redis, BELOW, "c", NOW, "ann"),
    "complete q": lambda redis: protocol.end(redis, attempt("q"), End.complete("out"), 5.5),
    "fail q": lambda redis: protocol.end(redis, attempt("q"), End.fail("why"), 5.5),
    "requeue p": lambda redis: protocol.requeue(redis, ABOVE, "p", "m", NOW),
    "requeue c": lambda redis: protocol.requeue(redis, BELOW, "c", "m", NOW),
    "cancel c": lambda redis: protocol.cancel(redis, BELOW, "c", "ann", None, NOW),
    "cancel p": lambda redis: protocol.cancel(redis, ABOVE, "p", "ann", None, NOW),
    "move c": lambda redis: protocol.place(redis, BELOW, "c", NOW, to="audio"),
    "set_priority c": lambda redis: protocol.place(redis, BELOW, "c", NOW, priority=5),
    "purge c": lambda redis: protocol.purge(redis, BELOW, ["c", "d"]),
    "delete p": lambda redis: protocol.delete(redis, ABOVE, "p"),
    "prune p": lambda redis: protocol.prune(redis, ABOVE, "failed", [FinishedTask("p", 5.5)]),
}


def seed(redis, how):
    """Two parents, p ended in this way and not settled, q running; and three tasks that wait."""
    redis.read(("FLUSHALL",))
    protocol.register(redis, ABOVE, NODE, "i1", {}, now=1.5)
    parent(redis, "p", "q")
    child(redis, "c", {"p": "ok", "q": "any"}, broken="cancel", inputs=0)
    child(redis, "d", {"p": "any"}, queue=BELOW)
    child(redis, "e", {"p": "not_ok"}, queue="audio")
    start(redis, "q")
    if how != "cancelled":
        start(redis, "p")
    end(redis, "p", how)


def outcome(call, redis):
    try:
        return call(redis)
    except BluequeError as error:
        return type(error)


@pytest.mark.parametrize("how", ENDS)
@pytest.mark.parametrize("name", CALLS)
def test_a_call_whose_answer_was_lost_is_repeated_and_changes_nothing(redis, state, name, how):
    seed(redis, how)
    outcome(CALLS[name], redis)
    before = state()

    outcome(CALLS[name], redis)

    assert state() == before


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("enqueue_after", [True]),
        ("unblock", "pending"),
        ("requeue p", "pending"),
        ("cancel c", "cancelled"),
        ("move c", None),
    ],
)
def test_a_call_that_is_repeated_knows_its_own_success(redis, name, answer):
    seed(redis, "failed")

    assert [CALLS[name](redis), CALLS[name](redis)] == [answer, answer]


@pytest.mark.parametrize("how", ["complete", "failed"])
def test_a_call_that_is_overtaken_does_what_it_would_do_if_it_had_come_later(
    how, redis, other, overtaken, state
):
    for slower in CALLS:
        seed(redis, how)
        start_of = state()
        outcome(CALLS[slower], redis)
        if state() == start_of:
            continue  # nothing to be overtaken with
        for faster in [name for name in CALLS if name != slower]:
            seed(redis, how)
            outcome(CALLS[faster], other)
            later = outcome(CALLS[slower], redis), state()
            seed(redis, how)
            overtaken(lambda faster=faster: outcome(CALLS[faster], other))

            now = outcome(CALLS[slower], redis), state()
            assert now == later, f"{slower}, overtaken by {faster}"


# What it costs the server

LIMIT = 20000  # plain commands, three or four of which take a server a microsecond


def cost(redis, prepare, act):
    """Return how many plain commands take the server as long as the EXEC of a call; the least of
    five times.
    """
    found = []
    for _ in range(5):
        redis.read(("FLUSHALL",))
        protocol.register(redis, ABOVE, NODE, "i1", {}, now=1.5)
        prepare()
        some = [("SADD", "plain", f"{number:032}") for number in range(1000)]
        plain = microseconds(redis, lambda some=some: redis.read(("MULTI",), *some, ("EXEC",)))
        found.append(microseconds(redis, act) * len(some) / plain)
    return min(found)


def microseconds(redis, act):
    """Return how long the server takes for an EXEC of a call, on average."""
    redis.read(("CONFIG", "RESETSTAT"))
    act()
    (text,) = redis.read(("INFO", "commandstats"))
    (stats,) = [line for line in text.splitlines() if line.startswith("cmdstat_exec:")]
    facts = dict(fact.split("=") for fact in stats.partition(":")[2].split(","))
    return float(facts["usec_per_call"])


def hundred_children(redis, how, **options):
    parent(redis, "p")
    for number in range(100):
        child(redis, f"c{number}", **options)
    start(redis)
    end(redis, how=how)


@pytest.mark.parametrize(
    ("how", "options"),
    [("complete", {}), ("failed", {}), ("failed", {"broken": "cancel"})],
    ids=["let go", "told", "cancelled"],
)
def test_each_of_a_hundred_dependents_is_told_in_a_short_time(redis, how, options):
    found = cost(
        redis,
        lambda: hundred_children(redis, how, **options),
        lambda: protocol.settle(redis, "p", NOW),
    )
    assert found < LIMIT / 100


def test_a_thousand_conditions_are_made_and_dropped_in_a_short_time(redis):
    some = [f"p{number}" for number in range(1000)]

    def prepare():
        parent(redis, *some)

    def make():
        after = dict.fromkeys(some[:100], "ok")
        new = [NewTask(f"c{number}", BELOW, "in", {}, after) for number in range(10)]
        protocol.enqueue_after(redis, new, 2.5)

    def wait_for_all():
        prepare()
        child(redis, after=dict.fromkeys(some, "ok"))

    assert cost(redis, prepare, make) < LIMIT
    assert cost(redis, wait_for_all, lambda: protocol.unblock(redis, BELOW, "c", NOW, "a")) < LIMIT
