"""Tasks that wait in lines, and what attempts hold besides their task: locks, and places in their
queue.

See also test_run, test_submit and test_recover, where every task stands in the default line; and
test_choosing.
"""

from __future__ import annotations

import pytest
from transactions import protocol

from blueque import NotFree, WrongState
from blueque.connection.redis import Redis
from blueque.model.attempt_ref import AttemptRef
from blueque.model.queue_settings import pausing
from blueque.model.retry import Retry
from blueque.model.states import Entry, Place
from blueque.protocol.ends import End
from blueque.protocol.recover import Loss
from blueque.protocol.reserving import Popped

NODE = "host_1"
LICENCE = "0,lock:licence=1"  # the line of tasks that need the lock `licence`
PENDING = {
    "status": "pending",
    "queue": "video",
    "parameters": "in",
    "created": "5.5",
    "updated": "5.5",
}
LISTED = {"blueque_lines_video": {LICENCE: 0.0}, "blueque_waiting_licence": {f"{LICENCE}_video"}}
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
        "blueque_lock_licence",
        "blueque_counted_tasks_video",
    )
    if is_there:  # Redis went back to when it had another priority
        cli.hset("blueque_task_t1", mapping=PENDING | {"priority": "5"})
        cli.lpush("blueque_line_5_video", "t1")

    protocol.reassert(redis, "video", "t1", NODE, "i1", ours, 9.5)

    after = state()
    after["blueque_task_t1"].pop("priority", None)
    assert after == before | {"blueque_task_t1": before["blueque_task_t1"] | {"updated": "9.5"}}


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


# Lines come and go


def test_a_line_that_somebody_joins_meanwhile_is_not_forgotten(redis, other, state, overtaken):
    enqueue(redis, needs="lock:licence=1")
    pop(redis, LICENCE)
    overtaken(lambda: enqueue(other, "t2", needs="lock:licence=1"))

    assert not protocol.align_line(redis, "video", LICENCE)
    assert LISTED.items() <= state().items()


# While a task waits


def test_a_scheduled_task_of_another_priority_joins_that_line_when_it_is_due(redis, cli):
    protocol.schedule(redis, "video", "t1", "in", 8.0, 5.5)

    protocol.place(redis, "video", "t1", 6.5, priority=-3)
    assert cli.hgetall("blueque_task_t1")["priority"] == "-3" and not cli.exists(
        "blueque_line_-3_video"
    )
    protocol.enqueue_due(redis, "video", 9.5)
    assert cli.lrange("blueque_line_-3_video", 0, -1) == ["t1"]


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
