"""Tasks that wait in lines, and what attempts hold besides their task: locks, and places in their
queue.

See also test_run, test_submit and test_recover, where every task stands in the default line; and
test_choosing.
"""

from __future__ import annotations

import pytest
from transactions import protocol

from blueque import NotFree, WrongQueue, WrongState
from blueque.connection.redis import Redis
from blueque.model.attempt_ref import AttemptRef
from blueque.model.queue_settings import NOT_PAUSED, pausing
from blueque.model.retry import Retry
from blueque.model.states import Entry, Place
from blueque.protocol.ends import End
from blueque.protocol.recover import Loss
from blueque.protocol.reserving import Popped

NODE = "host_1"
LICENCE = "0,lock:licence=1"  # the line of tasks that need the lock `licence`
AROUND = {  # what stands in Redis beside the task
    "blueque_queues": {"video": 1.0},
    "blueque_tasks_video": {"t1": 5.5},
    "blueque_wake_video": {"0": 0.0},
    "blueque_listener_video_host_1": {
        "instance": "i1",
        "state": "alive",
        "beat": "0",
        "beat_at": "1.5",
    },
    "blueque_listeners_video": {NODE},
    "blueque_nodes_video": {NODE: 1.5},
}
PENDING = {
    "status": "pending",
    "queue": "video",
    "parameters": "in",
    "created": "5.5",
    "updated": "5.5",
}
LISTED = {"blueque_lines_video": {LICENCE: 0.0}, "blueque_waiting_licence": {f"{LICENCE}_video"}}
HELD = {"blueque_lock_licence": {"t1"}, "blueque_counted_tasks_video": {"t1"}}
NAMED = {"ids": lambda part: getattr(part, "__name__", part)}


@pytest.fixture(autouse=True)
def listener(redis):
    protocol.register(redis, "video", NODE, "i1", {}, now=1.5)


def enqueue(redis, task="t1", now=5.5, queue="video", **options):
    protocol.enqueue(redis, queue, task, "in", now, options)


def pop(redis, line="0", node=NODE, instance="i1"):
    return protocol.pop(redis, "video", node, instance, line)


def reserve(redis, task="t1", token="token", line=None, is_met=True):
    return protocol.reserve(redis, AttemptRef("video", task, token, NODE), "i1", 6.5, is_met, line)


def start(redis, task="t1"):
    protocol.start(redis, AttemptRef("video", task, "token", NODE), 77, 7.5)


def limit(redis, most):
    protocol.set_settings(
        redis, "video", {"max_concurrency": None if most is None else str(most)}, 1.0
    )


def hold(redis, is_started=True):
    """Have the task t1 hold the lock `licence`, and count against the limit of its queue."""
    limit(redis, 1)
    enqueue(redis, needs="lock:licence=1")
    pop(redis, LICENCE)
    reserve(redis)
    if is_started:
        start(redis)


# Which line


@pytest.mark.parametrize(
    ("options", "line", "score"),
    [
        ({"priority": 7}, "7", 7.0),
        ({"priority": -100}, "-100", -100.0),
        ({"needs": "gpu=1"}, "0,gpu=1", 0.0),
        ({"priority": 7, "needs": "gpu=1,memory=64"}, "7,gpu=1,memory=64", 7.0),
    ],
    ids=repr,
)
def test_a_task_with_a_priority_or_needs_stands_in_a_line_of_its_own(
    redis, state, options, line, score
):
    enqueue(redis, **options)

    assert state() == AROUND | {
        "blueque_task_t1": PENDING | {name: str(value) for name, value in options.items()},
        f"blueque_line_{line}_video": ["t1"],
        "blueque_lines_video": {line: score},
    }


def test_a_line_whose_tasks_need_a_lock_is_listed_with_the_lock(redis, state):
    enqueue(redis, needs="lock:a%5Fb=3")

    assert state() == AROUND | {
        "blueque_task_t1": PENDING | {"needs": "lock:a%5Fb=3"},
        "blueque_line_0,lock:a%5Fb=3_video": ["t1"],
        "blueque_lines_video": {"0,lock:a%5Fb=3": 0.0},
        "blueque_waiting_a_b": {"0,lock:a%5Fb=3_video"},
    }


def test_what_is_due_joins_the_line_of_each_task(redis, cli, state):
    for task, eta, options in [
        ("t1", 8.0, {"priority": 5}),
        ("t2", 7.0, {}),
        ("t3", 9.0, {"priority": 5}),
        ("t4", 8.5, {"needs": "lock:licence=1"}),
    ]:
        protocol.schedule(redis, "video", task, "in", eta, 5.5, options)

    assert protocol.enqueue_due(redis, "video", 9.5) == ["t2", "t1", "t4", "t3"]
    lines = {
        key: value
        for key, value in state().items()
        if "line" in key or "pending" in key or "waiting" in key
    }
    assert lines == {
        "blueque_pending_tasks_video": ["t2"],
        "blueque_line_5_video": ["t3", "t1"],
        f"blueque_line_{LICENCE}_video": ["t4"],
        "blueque_lines_video": {"5": 5.0, LICENCE: 0.0},
        "blueque_waiting_licence": {f"{LICENCE}_video"},
    }
    assert "blueque_scheduled_tasks_video" not in state()


def test_pop_takes_from_the_line_that_it_is_told(redis, cli):
    for task, priority in [("t1", 0), ("t2", 5), ("t3", 5)]:
        enqueue(redis, task, priority=priority) if priority else enqueue(redis, task)

    assert pop(redis, "5")[:3] == ("t2", 1, None)
    assert pop(redis, "0")[:3] == ("t1", 0, None)
    assert cli.lrange("blueque_reserved_tasks_video_host_1", 0, -1) == ["t1", "t2"]
    assert cli.lrange("blueque_line_5_video", 0, -1) == ["t3"]


@pytest.mark.parametrize("reason", ["another line", "a limit"])
def test_pop_takes_nothing_if_nobody_has_chosen_and_there_is_a_choice(redis, state, reason):
    enqueue(redis)
    enqueue(redis, "t2", priority=-5) if reason == "another line" else limit(redis, 3)
    before = state()

    assert pop(redis, None) == Popped(refusal="choose")
    assert state() == before


@pytest.mark.parametrize("line", [None, "0", "5"])
def test_pop_takes_nothing_from_a_paused_queue(redis, state, line):
    enqueue(redis)
    enqueue(redis, "t2", priority=5)
    protocol.set_settings(redis, "video", pausing("ann", None, 6.0), 6.0, "ann")
    before = state()

    assert pop(redis, line) == Popped(refusal="paused")
    assert state() == before


def test_pop_takes_nothing_from_a_queue_that_is_paused_while_it_decides(
    redis, other, state, overtaken
):
    enqueue(redis)
    overtaken(lambda: protocol.set_settings(other, "video", pausing("ann", None, 6.0), 6.0, "ann"))

    assert pop(redis) == Popped(refusal="paused")
    assert state()["blueque_pending_tasks_video"] == ["t1"]


# Locks, and places in a queue


def test_reserve_takes_the_lock_and_a_place_in_the_queue(redis, state):
    hold(redis, is_started=False)

    assert state() == AROUND | LISTED | HELD | {
        "blueque_task_t1": PENDING
        | {
            "status": "reserved",
            "updated": "6.5",
            "node": NODE,
            "token": "token",
            "attempt": "1",
            "needs": "lock:licence=1",
            "lock": "licence",
            "counted": "1",
        },
        "blueque_reserved_tasks_video_host_1": ["t1"],
        "blueque_queue_video": {"max_concurrency": "1"},
    }


def test_reserve_again_with_the_same_token_is_recognised_when_the_lock_is_full_of_it(redis, state):
    hold(redis, is_started=False)
    before = state()

    assert reserve(redis)["lock"] == "licence"
    assert state() == before


@pytest.mark.parametrize(
    ("needs", "holders", "is_free"),
    [
        ("lock:licence=1", [], True),
        ("lock:licence=1", ["x"], False),
        ("lock:licence=2", ["x"], True),
        ("lock:licence=2", ["x", "y"], False),
        ("lock:licence=1", ["x", "y", "z"], False),
    ],
)
def test_a_lock_is_free_for_a_task_as_long_as_fewer_hold_it_than_the_task_allows(
    redis, cli, needs, holders, is_free
):
    if holders:
        cli.sadd("blueque_lock_licence", *holders)
    enqueue(redis, needs=needs)
    pop(redis, f"0,{needs}")

    if is_free:
        assert reserve(redis)["status"] == "reserved"
    else:
        with pytest.raises(NotFree, match="lock") as refusal:
            reserve(redis)
        assert (refusal.value.task_id, refusal.value.want) == ("t1", "lock")
    assert cli.smembers("blueque_lock_licence") == {*holders, *(["t1"] if is_free else [])}


@pytest.mark.parametrize("kind", ["counted", "started"])
def test_a_queue_is_full_by_those_that_count_and_by_those_that_are_started_otherwise(
    redis, cli, state, kind
):
    enqueue(redis)
    limit(redis, 2)
    cli.sadd(f"blueque_{kind}_tasks_video", "x", "y")
    before = state()
    pop(redis)

    with pytest.raises(NotFree, match="limit"):
        reserve(redis)

    assert state() == before


def test_nothing_may_run_in_a_queue_with_a_limit_of_0(redis, state):
    enqueue(redis)
    limit(redis, 0)
    before = state()
    pop(redis)

    with pytest.raises(NotFree, match="limit"):
        reserve(redis)

    assert state() == before


@pytest.mark.parametrize(
    ("options", "given"),
    [
        ({"needs": "gpu=1"}, {"is_met": False}),
        ({"needs": "gpu=1"}, {"line": "0"}),
        ({"needs": "gpu=1"}, {"line": "0,gpu=2"}),
        ({"needs": "lock:licence=1"}, {}),
        ({"priority": 5, "needs": "gpu=1,lock:licence=1"}, {}),
    ],
    ids=repr,
)
def test_a_task_that_cannot_run_now_is_again_the_next_of_its_line(
    redis, cli, state, options, given
):
    cli.sadd("blueque_lock_licence", "x")
    enqueue(redis, "t1", **options)
    enqueue(redis, "t2", **options)
    (line,) = cli.zrange("blueque_lines_video", 0, -1)
    before = state()
    assert pop(redis, line).task == "t1"

    with pytest.raises(NotFree):
        reserve(redis, **given)

    assert state() == before


def test_a_task_with_needs_that_1_0_0_has_put_in_the_default_line_is_put_in_its_own(
    redis, cli, state
):
    enqueue(redis, needs="gpu=1")
    before = state()
    cli.rename("blueque_line_0,gpu=1_video", "blueque_pending_tasks_video")
    cli.delete("blueque_lines_video")
    assert pop(redis, None).task == "t1"

    with pytest.raises(NotFree, match="resources"):
        reserve(redis, line="0")

    assert state() == before


def test_the_priority_alone_keeps_no_task_from_being_reserved_wherever_it_was(redis):
    enqueue(redis, priority=5)
    pop(redis, "5")

    assert reserve(redis, line="0")["status"] == "reserved"


def test_two_that_reserve_at_the_same_time_do_not_both_get_the_last_place(
    redis, other, cli, overtaken
):
    enqueue(redis, "t1", needs="lock:licence=1")
    enqueue(redis, "t2", needs="lock:licence=1")
    pop(redis, LICENCE)
    pop(redis, LICENCE)

    overtaken(lambda: protocol.reserve(other, AttemptRef("video", "t2", "other", NODE), "i1", 6.0))

    with pytest.raises(NotFree):
        reserve(redis, "t1")

    assert cli.smembers("blueque_lock_licence") == {"t2"}
    assert cli.lrange(f"blueque_line_{LICENCE}_video", 0, -1) == ["t1"]


@pytest.mark.parametrize("change", ["a limit", "no limit", "another lock"])
def test_reserve_looks_again_at_what_has_changed_while_it_looked(
    redis, other, cli, overtaken, change
):
    enqueue(redis, needs="lock:licence=1")
    pop(redis, LICENCE)
    if change == "no limit":
        limit(redis, 3)
    act = {
        "a limit": lambda: protocol.set_settings(other, "video", {"max_concurrency": "3"}, 1.0),
        "no limit": lambda: protocol.set_settings(other, "video", {"max_concurrency": None}, 1.0),
        "another lock": lambda: cli.hset("blueque_task_t1", "needs", "lock:other=1"),
    }[change]
    overtaken(act)

    fields = reserve(redis)

    assert (
        ("counted" in fields) == cli.exists("blueque_counted_tasks_video") == (change == "a limit")
    )
    lock = "other" if change == "another lock" else "licence"
    assert fields["lock"] == lock and cli.keys("blueque_lock_*") == [f"blueque_lock_{lock}"]


# The end of an attempt


def complete(redis):
    protocol.end(redis, AttemptRef("video", "t1", "token", NODE), End.complete("out"), 8.5)


def fail(redis):
    protocol.end(redis, AttemptRef("video", "t1", "token", NODE), End.fail("why"), 8.5)


def retry_later(redis):
    protocol.end(redis, AttemptRef("video", "t1", "token", NODE), End.retry(99.5), 8.5)


def retry_at_once(redis):
    protocol.end(redis, AttemptRef("video", "t1", "token", NODE), End.retry(None), 8.5)


def release(redis):
    protocol.end(redis, AttemptRef("video", "t1", "token", NODE), End.release(), 8.5)


def confirm_cancel(redis):
    protocol.end(redis, AttemptRef("video", "t1", "token", NODE), End.confirm_cancel(), 8.5)


def cancel(redis):
    protocol.cancel(redis, "video", "t1", "ann", None, 8.5)


def cancel_and_retry(redis):
    cancel(redis)
    retry_later(redis)


def cancel_and_release(redis):
    cancel(redis)
    release(redis)


def lose(redis, retry=None):
    return protocol.lose(
        redis,
        AttemptRef("video", "t1", "token", NODE),
        "i1",
        Loss("gone"),
        retry,
        8.5,
        is_ours=True,
    )


def lose_and_retry(redis):
    assert lose(redis, Retry()) == "pending"


def fence_and_lose(redis):
    protocol.fence(redis, "video", NODE, "i1", "0", 9.25)
    assert (
        protocol.lose(
            redis, AttemptRef("video", "t1", "token", NODE), "i1", Loss("gone"), None, 8.5
        )
        == "failed"
    )


def fence_and_recover(redis):
    protocol.fence(redis, "video", NODE, "i1", "0", 9.25)
    assert protocol.recover(redis, "video", "t1", NODE, "i1", 8.5) == "released"


ENDS = [
    complete,
    fail,
    retry_later,
    retry_at_once,
    release,
    confirm_cancel,
    cancel_and_retry,
    cancel_and_release,
    lose,
    lose_and_retry,
    fence_and_lose,
]
ENDS_BEFORE_START = [fail, retry_later, retry_at_once, release, cancel, fence_and_recover]
EVERY_END = [(end, True) for end in ENDS] + [(end, False) for end in ENDS_BEFORE_START]


@pytest.mark.parametrize(("end", "is_started"), EVERY_END, **NAMED)
def test_every_end_of_an_attempt_lets_go_of_what_it_held_and_of_nothing_else(
    redis, cli, state, end, is_started
):
    hold(redis, is_started)
    cli.sadd("blueque_lock_licence", "x")
    cli.sadd("blueque_counted_tasks_video", "x")
    end(redis)
    held = state()
    # The same with a task that needs nothing is the measure of everything else.
    cli.flushall()
    protocol.register(redis, "video", NODE, "i1", {}, now=1.5)
    enqueue(redis)
    pop(redis)
    reserve(redis)
    if is_started:
        start(redis)
    end(redis)
    plain = state()

    task = held["blueque_task_t1"]
    assert task.pop("needs") == "lock:licence=1"
    is_kept = "token" in task  # then lock and counted stay with it: it says what the attempt held
    assert (task.pop("lock", None), task.pop("counted", None)) == (
        ("licence", "1") if is_kept else (None, None)
    )
    assert held.pop("blueque_lock_licence") == held.pop("blueque_counted_tasks_video") == {"x"}
    assert held.pop("blueque_queue_video") == {"max_concurrency": "1"}
    assert {key: held.pop(key) for key in LISTED} == LISTED
    if "blueque_pending_tasks_video" in plain:
        plain[f"blueque_line_{LICENCE}_video"] = plain.pop("blueque_pending_tasks_video")
    assert held == plain


@pytest.mark.parametrize(("end", "is_started"), EVERY_END, **NAMED)
def test_every_end_of_an_attempt_that_held_something_wakes_a_listener(redis, cli, end, is_started):
    hold(redis, is_started)
    cli.delete("blueque_wake_video")

    end(redis)

    assert cli.exists("blueque_wake_video")


@pytest.mark.parametrize("end", [complete, fail, retry_later, confirm_cancel], **NAMED)
def test_the_late_end_of_a_lost_attempt_does_not_let_go_of_what_another_holds_by_now(
    redis, cli, end
):
    hold(redis)
    lose(redis)
    cli.sadd("blueque_lock_licence", "t1")  # as if it had been reserved again meanwhile

    end(redis)

    assert cli.smembers("blueque_lock_licence") == {"t1"}


def test_an_adopted_attempt_still_holds_what_it_held(redis, cli):
    hold(redis)
    protocol.fence(redis, "video", NODE, "i1", "0", 9.25)
    protocol.register(redis, "video", "host_2", "i2", {}, now=8.0)

    fields = protocol.adopt(redis, AttemptRef("video", "t1", "token", NODE), "host_2", "i2", 8.5)

    assert (fields["lock"], fields["counted"]) == ("licence", "1")
    assert (
        cli.smembers("blueque_lock_licence")
        == cli.smembers("blueque_counted_tasks_video")
        == {"t1"}
    )


def test_a_lost_attempt_that_is_restored_holds_again_what_another_has_taken(redis, cli):
    hold(redis)
    lose(redis)
    cli.sadd("blueque_lock_licence", "x")
    cli.sadd("blueque_counted_tasks_video", "x")

    assert (
        protocol.restore(redis, AttemptRef("video", "t1", "token", NODE), "i1", 77, {}, 7.5, 9.5)[
            "status"
        ]
        == "started"
    )
    assert (
        cli.smembers("blueque_lock_licence")
        == cli.smembers("blueque_counted_tasks_video")
        == {"t1", "x"}
    )


@pytest.mark.parametrize("is_there", [True, False])
def test_an_attempt_that_redis_had_lost_holds_again_what_it_held_and_leaves_its_line(
    redis, cli, state, is_there
):
    hold(redis)
    ours = cli.hgetall("blueque_task_t1")
    before = state()
    cli.delete(
        "blueque_task_t1",
        "blueque_started_tasks_video",
        "blueque_reserved_tasks_video_host_1",
        *HELD,
    )
    if is_there:  # Redis went back to when it had another priority
        cli.hset("blueque_task_t1", mapping=PENDING | {"priority": "5"})
        cli.lpush("blueque_line_5_video", "t1")

    protocol.reassert(redis, "video", "t1", NODE, "i1", ours, 9.5)

    after = state()
    after["blueque_task_t1"].pop("priority", None)
    assert after == before | {"blueque_task_t1": before["blueque_task_t1"] | {"updated": "9.5"}}


def test_a_task_that_is_requeued_stands_in_its_own_line_and_holds_nothing(redis, state):
    hold(redis)
    fail(redis)

    protocol.requeue(redis, "video", "t1", "mark", 9.5)

    assert state() == AROUND | LISTED | {
        "blueque_task_t1": PENDING
        | {
            "updated": "9.5",
            "needs": "lock:licence=1",
            "attempt": "1",
            "finished_by": "token",
            "requeued": "mark",
            "queued": "9.5",
        },
        f"blueque_line_{LICENCE}_video": ["t1"],
        "blueque_queue_video": {"max_concurrency": "1"},
    }


@pytest.mark.parametrize("line", ["0", "5"])
def test_a_cancelled_task_leaves_its_line(redis, cli, line):
    enqueue(redis, **({"priority": 5} if line == "5" else {}))

    cancel(redis)

    assert not cli.exists("blueque_pending_tasks_video", "blueque_line_5_video")
    assert cli.lrange("blueque_cancelled_tasks_video", 0, -1) == ["t1"]


# Holders that hold nothing


def align_room(redis: Redis, lock: str | None) -> bool:
    """Look whether the task may hold a lock, or a place of the queue."""
    place = Place("counted", "video") if lock is None else Place("lock", "", line=lock)
    return protocol.align_task(redis, "t1", [Entry(place, "t1")], 9.0)


@pytest.mark.parametrize(
    ("lock", "key"), [("licence", "blueque_lock_licence"), (None, "blueque_counted_tasks_video")]
)
@pytest.mark.parametrize("status", ["complete", "pending", "gone", "started by another attempt"])
def test_a_room_is_freed_of_a_task_that_has_no_attempt_which_could_hold_it(
    redis, cli, state, lock, key, status
):
    enqueue(redis)
    if status == "gone":
        cli.delete("blueque_task_t1")
    elif status != "pending":
        cli.hset("blueque_task_t1", "status", status.split()[0])
    if status == "complete":
        # as 1.0.0 leaves it
        cli.hset("blueque_task_t1", mapping={"lock": "licence", "counted": "1"})
    before = state()
    cli.sadd(key, "t1", "x")

    assert align_room(redis, lock)
    assert state() == before | {key: {"x"}}


@pytest.mark.parametrize("lock", ["licence", None])
@pytest.mark.parametrize("is_started", [True, False])
def test_an_attempt_keeps_the_room_that_it_holds(redis, state, lock, is_started):
    hold(redis, is_started)
    before = state()

    assert not align_room(redis, lock)
    assert state() == before


def test_a_task_that_has_taken_the_lock_again_meanwhile_keeps_it(redis, other, cli, overtaken):
    hold(redis)
    complete(redis)
    cli.sadd("blueque_lock_licence", "t1")
    overtaken(
        lambda: cli.hset("blueque_task_t1", mapping={"status": "reserved", "lock": "licence"})
    )

    assert not align_room(redis, "licence")
    assert cli.smembers("blueque_lock_licence") == {"t1"}


def test_those_who_wait_for_a_lock_are_woken_in_every_queue(redis, cli, state):
    enqueue(redis, "t1", needs="lock:licence=1")
    enqueue(redis, "t2", queue="a_b", needs="lock:licence=2", priority=5)
    enqueue(redis, "t3", queue="a_b", needs="lock:licence=2")
    enqueue(redis, "t4", queue="other", needs="lock:other=1")
    before = state()
    cli.delete("blueque_wake_video", "blueque_wake_a_b", "blueque_wake_other")

    protocol.wake_waiting(redis, "licence")

    assert state() == {key: value for key, value in before.items() if key != "blueque_wake_other"}


def test_nobody_is_woken_for_a_lock_that_nobody_waits_for(redis, state):
    before = state()

    protocol.wake_waiting(redis, "licence")

    assert state() == before


def test_waking_one_listener_sets_its_marker_of_orders(redis, state):
    before = state()

    protocol.wake(redis, "video", "host_2")

    assert state() == before | {"blueque_orders_video_host_2": {"0": 0.0}}


# Lines come and go


def test_an_empty_line_is_forgotten(redis, state):
    enqueue(redis)
    before = state()
    enqueue(redis, "t2", needs="lock:licence=1")
    pop(redis, LICENCE)
    assert set(LISTED) <= set(state())

    assert protocol.align_line(redis, "video", LICENCE)
    assert not set(LISTED) & set(state()) and set(before) <= set(state())


@pytest.mark.parametrize("line", [LICENCE, "0"])
def test_a_line_that_somebody_stands_in_and_the_default_one_are_not_forgotten(redis, state, line):
    enqueue(redis, needs="lock:licence=1")
    before = state()

    assert not protocol.align_line(redis, "video", line)
    assert state() == before


def test_a_line_that_somebody_joins_meanwhile_is_not_forgotten(redis, other, state, overtaken):
    enqueue(redis, needs="lock:licence=1")
    pop(redis, LICENCE)
    overtaken(lambda: enqueue(other, "t2", needs="lock:licence=1"))

    assert not protocol.align_line(redis, "video", LICENCE)
    assert LISTED.items() <= state().items()


# While a task waits


def test_a_task_of_another_priority_is_the_last_of_those(redis, cli, state):
    enqueue(redis, "t2", priority=7)
    enqueue(redis, "t1")
    before = state()
    cli.delete("blueque_wake_video")

    protocol.place(redis, "video", "t1", 6.5, priority=7)

    del before["blueque_pending_tasks_video"]
    assert state() == before | {
        "blueque_line_7_video": ["t1", "t2"],
        "blueque_task_t1": PENDING | {"updated": "6.5", "priority": "7"},
        "blueque_wake_video": {"0": 0.0},
    }


def test_a_task_that_is_not_urgent_any_more_stands_in_the_default_line(redis, cli):
    enqueue(redis, priority=7)

    protocol.place(redis, "video", "t1", 6.5, priority=0)

    assert cli.lrange("blueque_pending_tasks_video", 0, -1) == ["t1"]
    assert "priority" not in cli.hgetall("blueque_task_t1") and not cli.exists(
        "blueque_line_7_video"
    )


def test_a_task_keeps_its_needs_when_its_priority_changes(redis, cli):
    enqueue(redis, needs="lock:licence=1")

    protocol.place(redis, "video", "t1", 6.5, priority=7)

    assert cli.lrange("blueque_line_7,lock:licence=1_video", 0, -1) == ["t1"]
    assert cli.smembers("blueque_waiting_licence") == {f"{LICENCE}_video", "7,lock:licence=1_video"}


def test_a_scheduled_task_of_another_priority_joins_that_line_when_it_is_due(redis, cli):
    protocol.schedule(redis, "video", "t1", "in", 8.0, 5.5)

    protocol.place(redis, "video", "t1", 6.5, priority=-3)
    assert cli.hgetall("blueque_task_t1")["priority"] == "-3" and not cli.exists(
        "blueque_line_-3_video"
    )
    protocol.enqueue_due(redis, "video", 9.5)
    assert cli.lrange("blueque_line_-3_video", 0, -1) == ["t1"]


@pytest.mark.parametrize("line", ["0", "7"])
def test_a_priority_set_twice_is_set_once(redis, state, line):
    enqueue(redis, **({"priority": 7} if line == "7" else {}))
    before = state()

    protocol.place(redis, "video", "t1", 6.5, priority=int(line))

    assert state() == before


def test_a_task_that_stays_in_its_queue_has_not_moved(redis, client):
    enqueue(redis)

    protocol.place(redis, "video", "t1", 6.5, to="video", priority=7)

    event = client.get_history("t1").events[-1]
    assert (event.event, event.facts) == ("prioritized", {"priority": 7})


def set_priority(redis):
    protocol.place(redis, "video", "t1", 6.5, priority=7)


def put_first(redis):
    protocol.place(redis, "video", "t1", 6.5, is_first=True)


def move(redis):
    protocol.place(redis, "video", "t1", 6.5, to="other")


@pytest.mark.parametrize("change", [set_priority, put_first, move], **NAMED)
def test_a_task_that_somebody_pops_meanwhile_is_not_put_in_line_a_second_time(
    redis, other, cli, overtaken, change
):
    for task in ("t0", "t1", "t2"):
        enqueue(redis, task)
    # As listeners of 1.0.0 do it, which will run whatever they have popped.
    places = "blueque_pending_tasks_video", "blueque_reserved_tasks_video_host_9"
    overtaken(lambda: [cli.rpoplpush(*places) for _ in range(2)])

    if change is set_priority:
        change(redis)  # it may wait again
        assert cli.hgetall("blueque_task_t1")["priority"] == "7"
    else:
        with pytest.raises(WrongState, match="being taken"):
            change(redis)

    assert cli.lrange("blueque_pending_tasks_video", 0, -1) == ["t2"]
    assert not cli.exists("blueque_line_7_video", "blueque_pending_tasks_other")
    assert cli.hgetall("blueque_task_t1")["queue"] == "video"


@pytest.mark.parametrize("change", [set_priority, put_first, move], **NAMED)
@pytest.mark.parametrize("status", ["reserved", "started", "complete", "gone"])
def test_only_a_task_that_waits_gets_another_place(redis, state, change, status):
    if status != "gone":
        enqueue(redis)
        pop(redis)
        reserve(redis)
    if status in ("started", "complete"):
        start(redis)
    if status == "complete":
        complete(redis)
    before = state()

    with pytest.raises(WrongState) as refusal:
        change(redis)

    assert refusal.value.status == (status if status != "gone" else None)
    assert state() == before


@pytest.mark.parametrize("change", [set_priority, put_first, move], **NAMED)
def test_a_task_of_another_queue_keeps_its_place(redis, state, change):
    enqueue(redis, queue="audio")
    before = state()

    with pytest.raises(WrongQueue):
        change(redis)

    assert state() == before


@pytest.mark.parametrize("options", [{}, {"priority": 5}, {"needs": "lock:licence=1"}], ids=repr)
def test_a_task_that_is_put_first_is_the_next_of_its_line(redis, cli, state, options):
    for task in ("t2", "t1", "t3"):
        enqueue(redis, task, **options)
    before = state()
    (line,) = [key for key, value in before.items() if value == ["t3", "t1", "t2"]]

    put_first(redis)

    assert state() == before | {
        line: ["t3", "t2", "t1"],
        "blueque_task_t1": before["blueque_task_t1"] | {"updated": "6.5"},
    }


def test_a_scheduled_task_cannot_be_put_first(redis):
    protocol.schedule(redis, "video", "t1", "in", 8.0, 5.5)

    with pytest.raises(WrongState, match="scheduled"):
        put_first(redis)


def test_a_moved_task_is_the_last_of_its_line_in_the_other_queue(redis, cli, state):
    enqueue(redis, "t2", queue="other", priority=5, needs="lock:licence=1")
    enqueue(redis, priority=5, needs="lock:licence=1")
    before = state()
    del before["blueque_tasks_video"], before["blueque_line_5,lock:licence=1_video"]
    cli.delete("blueque_wake_other")

    move(redis)

    assert state() == before | {
        "blueque_task_t1": PENDING
        | {"queue": "other", "updated": "6.5", "priority": "5", "needs": "lock:licence=1"},
        "blueque_tasks_other": {"t1": 5.5, "t2": 5.5},
        "blueque_line_5,lock:licence=1_other": ["t1", "t2"],
    }


def test_a_scheduled_task_is_scheduled_in_the_queue_that_it_is_moved_to(redis, state):
    protocol.schedule(redis, "video", "t1", "in", 8.0, 5.5)
    before = state()
    del before["blueque_tasks_video"], before["blueque_scheduled_tasks_video"]

    move(redis)

    assert state() == before | {
        "blueque_task_t1": PENDING
        | {"status": "scheduled", "eta": "8.0", "queue": "other", "updated": "6.5"},
        "blueque_tasks_other": {"t1": 5.5},
        "blueque_scheduled_tasks_other": {"t1": 8.0},
        "blueque_queues": {"video": 1.0, "other": 0.0},
    }


def test_a_task_moved_again_to_where_it_is_stays_there(redis, state):
    enqueue(redis)
    move(redis)
    before = state()

    move(redis)

    assert state() == before


# A queue as a whole


def test_a_queue_is_paused_once_and_who_was_first_stays(redis, state):
    before = state()

    assert protocol.set_settings(
        redis, "video", pausing("ann", "the disk is full", 6.5), 6.5, "ann"
    )
    assert not protocol.set_settings(redis, "video", pausing("bob", None, 7.5), 7.5, "bob")

    assert state() == before | {
        "blueque_queue_video": {
            "paused": "6.5",
            "paused_by": "ann",
            "paused_reason": "the disk is full",
        }
    }


def test_a_pause_ends_and_wakes_a_listener(redis, state):
    before = state()
    limit(redis, 3)
    protocol.set_settings(redis, "video", pausing("ann", "the disk is full", 6.5), 6.5, "ann")

    assert protocol.set_settings(redis, "video", NOT_PAUSED, 1.0)
    assert not protocol.set_settings(redis, "video", NOT_PAUSED, 1.0)

    assert state() == before | {
        "blueque_queue_video": {"max_concurrency": "3"},
        "blueque_wake_video": {"0": 0.0},
    }


@pytest.mark.parametrize("most", [0, 3, None])
def test_a_limit_stays_until_another_is_set_and_wakes_a_listener(redis, cli, state, most):
    limit(redis, 7)
    before = state()
    cli.delete("blueque_wake_video")

    limit(redis, most)

    settings = {} if most is None else {"blueque_queue_video": {"max_concurrency": str(most)}}
    assert (
        state()
        == {key: value for key, value in before.items() if key != "blueque_queue_video"} | settings
    )


def test_the_same_limit_again_wakes_nobody(redis, cli, state):
    limit(redis, 7)
    cli.delete("blueque_wake_video")
    before = state()

    limit(redis, 7)

    assert state() == before
