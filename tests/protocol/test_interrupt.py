"""interrupt and the release that follows, against a real Redis; the whole state is compared."""

from __future__ import annotations

import pytest
from transactions import protocol

from blueque import WrongQueue, WrongState
from blueque.model.attempt_ref import AttemptRef
from blueque.protocol.ends import End
from blueque.protocol.membership import Heartbeat
from blueque.protocol.recover import Loss

NODE = "host_1"
FIRST = AttemptRef("video", "t1", "first", NODE)
SECOND = AttemptRef("video", "t1", "second", NODE)


@pytest.fixture(autouse=True)
def listener(redis):
    protocol.register(redis, "video", NODE, "i1", {}, now=1.5)
    protocol.enqueue(redis, "video", "t1", "in", now=5.5)


def begin(redis, attempt=FIRST):
    assert protocol.pop(redis, "video", NODE, "i1")[0] == "t1"
    protocol.reserve(redis, attempt, "i1", now=6.5)
    protocol.start(redis, attempt, 77, 7.5)


def interrupt(redis, by="ann", reason=None, now=8.5, queue="video"):
    protocol.interrupt(redis, queue, "t1", by, reason, now)


def standing(redis):
    return protocol.beat(redis, [Heartbeat("video", NODE, "i1", 9)], 8.7, task="t1")[0]


def test_the_next_beat_tells_the_token_of_the_attempt_that_is_to_end(redis, client):
    begin(redis)

    interrupt(redis, reason="reboot")

    assert standing(redis).interrupt == "first"
    task = client.get_task("t1")
    assert (task.is_interrupted, task.interrupted_at, task.interrupted_by) == (True, 8.5, "ann")
    assert task.interrupt_reason == "reboot"


def test_another_call_changes_nothing_and_the_first_name_stays(redis, state):
    begin(redis)
    interrupt(redis)
    before = state()

    interrupt(redis, "bob", "me too", now=8.6)
    interrupt(redis)

    assert state() == before


def test_a_call_whose_answer_was_lost_succeeds_though_the_task_is_in_line_again(redis, state):
    begin(redis)
    interrupt(redis)
    protocol.end(redis, FIRST, End.release(None, "interrupted"), 9.5)
    before = state()

    interrupt(redis)

    assert state() == before


def test_it_is_the_next_in_line_and_the_order_is_not_for_its_next_attempt(redis, client, cli):
    begin(redis)
    protocol.enqueue(redis, "video", "t2", "in", now=8.0)
    interrupt(redis)

    assert protocol.end(redis, FIRST, End.release(None, "interrupted"), 9.5).status == "pending"

    assert cli.lrange("blueque_pending_tasks_video", 0, -1) == ["t2", "t1"]
    begin(redis, SECOND)
    assert standing(redis).interrupt == "first" != standing(redis).token
    assert not client.get_task("t1").is_interrupted


def test_a_reason_of_an_earlier_order_does_not_stay(redis, client):
    begin(redis)
    interrupt(redis, reason="reboot")
    protocol.end(redis, FIRST, End.release(), 9.5)
    begin(redis, SECOND)

    interrupt(redis, now=10.5)

    assert client.get_task("t1").interrupt_reason is None


def test_requeue_forgets_it(redis, client):
    begin(redis)
    interrupt(redis, reason="reboot")
    protocol.end(redis, FIRST, End.fail("why"), 9.5)

    protocol.requeue(redis, "video", "t1", "mark", 10.5)

    assert not {name for name in client.get_task("t1").fields if name.startswith("interrupt")}


def test_it_is_refused_while_the_task_is_being_cancelled_and_cancel_goes_before_it(redis, client):
    begin(redis)
    interrupt(redis)
    assert protocol.cancel(redis, "video", "t1", "ann", None, 8.8) == "cancelling"

    with pytest.raises(WrongState, match="being cancelled"):
        interrupt(redis, now=8.9)

    assert protocol.end(redis, FIRST, End.release(), 9.5).status == "cancelled"


def test_it_is_refused_for_what_does_not_run_and_through_another_queue(redis, state):
    before = state()
    with pytest.raises(WrongState, match="it is pending, so it does not run") as refusal:
        interrupt(redis)
    assert (refusal.value.task_id, refusal.value.status) == ("t1", "pending")
    assert state() == before
    begin(redis)
    with pytest.raises(WrongQueue, match="audio"):
        interrupt(redis, queue="audio")
    protocol.end(redis, FIRST, End.complete("out"), 9.2)
    with pytest.raises(WrongState, match="it is complete"):
        interrupt(redis)


def test_a_dead_listener_is_left_to_recovery(redis, client):
    """Its processes may still run: without a policy the task is lost, and does not run again."""
    begin(redis)
    interrupt(redis)
    protocol.fence(redis, "video", NODE, "i1", "0", 9.25)

    assert protocol.lose(redis, FIRST, "i1", Loss("lost", None), None, 9.5) == "failed"

    assert client.get_task("t1").error_type == "lost"
