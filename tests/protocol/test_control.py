"""blueque.protocol.operator against a real Redis; the whole state is compared, so that leftovers
fail too.
"""

from __future__ import annotations

import pytest
from transactions import protocol

from blueque import NotOwner, WrongState
from blueque.model.attempt_ref import AttemptRef
from blueque.protocol.ends import End
from blueque.protocol.recover import Loss

NODE = "host_1"
BORN = {"queue": "video", "parameters": "in", "created": "5.5"}
CANCELLED = {"status": "cancelled", "cancelled_by": "ann", "finished": "9.5", "updated": "9.5"}


@pytest.fixture(autouse=True)
def listener(redis):
    protocol.register(redis, "video", NODE, "i1", {}, now=1.5)


def enqueue(redis):
    protocol.enqueue(redis, "video", "t1", "in", now=5.5)


def schedule(redis):
    protocol.schedule(redis, "video", "t1", "in", 99.5, now=5.5)


def pop(redis):
    assert protocol.pop(redis, "video", NODE, "i1")[0] == "t1"


def reserve(redis, token="token"):
    return protocol.reserve(redis, AttemptRef("video", "t1", token, NODE), "i1", now=6.5)


def start(redis, token="token"):
    protocol.start(
        redis, AttemptRef("video", "t1", token, NODE), 77, 7.5, {"files": "host:/spool/t1/1"}
    )


def complete(redis):
    protocol.end(redis, AttemptRef("video", "t1", "token", NODE), End.complete("out"), 9.2)


def fail(redis, token="token", **more):
    protocol.end(
        redis,
        AttemptRef("video", "t1", token, NODE),
        End.fail("why", {"error_type": "ValueError"}, **more),
        9.2,
    )


def lose(redis):
    protocol.lose(
        redis, AttemptRef("video", "t1", "token", NODE), "i1", Loss("gone"), None, 9.2, is_ours=True
    )


def cancel(redis, by="ann", reason=None, queue="video", now=9.5):
    return protocol.cancel(redis, queue, "t1", by, reason, now)


def requeue(redis, mark="mark", queue="video", now=10.5):
    protocol.requeue(redis, queue, "t1", mark, now)


def order(redis, node=NODE, by="ann"):
    return protocol.order(redis, "video", node, "drain", by)


def bring(redis, status):
    """Bring the task t1 to a status by the way every task goes."""
    if status == "scheduled":
        schedule(redis)
        return
    enqueue(redis)
    steps = {
        "pending": [],
        "popped": [pop],
        "reserved": [pop, reserve],
        "started": [pop, reserve, start],
        "complete": [pop, reserve, start, complete],
        "failed": [pop, reserve, start, fail],
        "lost": [pop, reserve, start, lose],
        "cancelled": [cancel],
    }
    for step in steps[status]:
        step(redis)


def without(state, *gone):
    return {key: value for key, value in state.items() if key not in gone}


# cancel


def test_a_reason_is_kept(redis, cli):
    bring(redis, "pending")

    cancel(redis, reason="too late")

    assert cli.hget("blueque_task_t1", "cancel_reason") == "too late"


@pytest.mark.parametrize(
    ("status", "only"), [("started", ["scheduled", "pending"]), ("pending", ["scheduled"])]
)
def test_a_task_in_a_status_that_was_not_meant_is_left_alone(redis, state, status, only):
    bring(redis, status)
    before = state()

    with pytest.raises(WrongState, match=f"it is {status} by now"):
        protocol.cancel(redis, "video", "t1", "ann", None, 9.5, only)

    assert state() == before


@pytest.mark.parametrize(
    ("status", "outcome"), [("pending", "cancelled"), ("started", "cancelling")]
)
def test_cancel_run_again_changes_nothing_and_the_first_name_stays(redis, state, status, outcome):
    bring(redis, status)
    cancel(redis)
    before = state()

    assert cancel(redis, by="bob", reason="me too", now=90.5) == outcome
    assert state() == before


@pytest.mark.parametrize(
    ("end", "status"), [("complete", "complete"), ("failed", "failed"), ("lost", "failed")]
)
def test_a_task_that_has_ended_cannot_be_cancelled(redis, state, end, status):
    bring(redis, end)
    before = state()

    with pytest.raises(WrongState, match=f"it is {status} already") as refusal:
        cancel(redis)

    assert (refusal.value.task_id, refusal.value.status) == ("t1", status)
    assert state() == before


def test_a_task_that_does_not_exist_cannot_be_cancelled_and_makes_no_stump(redis, state):
    before = state()

    with pytest.raises(WrongState, match="it does not exist"):
        cancel(redis)

    assert state() == before


@pytest.mark.parametrize(
    "fields",
    [
        {"status": "reserved"},
        {"status": "started", "pid": "66"},
        {"status": "reserved", "token": "token", "reclaimed_node": "host_8"},
    ],
    ids=repr,
)
def test_a_task_that_an_older_version_has_cannot_be_cancelled(redis, cli, state, fields):
    cli.hset(
        "blueque_task_t1",
        mapping={"queue": "video", "parameters": "in", "node": "host_9", **fields},
    )
    before = state()

    with pytest.raises(WrongState, match="takes no orders"):
        cancel(redis)

    assert state() == before


def test_a_started_task_that_an_older_version_waits_for_can_be_cancelled(redis, cli):
    bring(redis, "started")
    cli.hset("blueque_task_t1", "reclaimed_node", "host_8")

    assert cancel(redis) == "cancelling"


def test_whoever_has_popped_a_task_that_is_cancelled_does_not_get_it_and_drops_the_hint(
    redis, state
):
    bring(redis, "popped")
    before = state()
    cancel(redis)

    assert reserve(redis) is None
    assert state() == without(before, "blueque_reserved_tasks_video_host_1") | {
        "blueque_task_t1": BORN | CANCELLED,
        "blueque_cancelled_tasks_video": ["t1"],
    }


def test_whoever_has_reserved_a_task_that_is_cancelled_cannot_start_it(redis, state):
    bring(redis, "reserved")
    cancel(redis)
    before = state()

    with pytest.raises(NotOwner, match="it is cancelled"):
        start(redis)

    assert state() == before


def test_a_cancelled_task_is_not_put_in_line_when_its_time_comes(redis, cli, state):
    bring(redis, "scheduled")
    cancel(redis)
    cli.zadd("blueque_scheduled_tasks_video", {"t1": 99.5})  # a stale hint

    assert protocol.enqueue_due(redis, "video", now=100.5) == []
    assert cli.hget("blueque_task_t1", "status") == "cancelled"


@pytest.mark.parametrize(
    ("status", "step", "outcome"),
    [
        ("scheduled", lambda redis: protocol.enqueue_due(redis, "video", 100.5), "cancelled"),
        ("pending", pop, "cancelled"),
        ("popped", reserve, "cancelled"),
        ("reserved", start, "cancelling"),
    ],
    ids=["enqueue_due", "pop", "reserve", "start"],
)
def test_a_task_that_goes_on_while_it_is_cancelled_is_cancelled_where_it_is_now(
    redis, other, overtaken, state, status, step, outcome
):
    bring(redis, status)
    overtaken(lambda: step(other))

    assert cancel(redis) == outcome
    left = [
        key
        for key, value in state().items()
        if key.startswith(("blueque_pending", "blueque_scheduled"))
    ]
    assert left == []


def test_of_the_end_and_cancel_the_first_wins_and_cancel_is_told(redis, other, overtaken, cli):
    bring(redis, "started")
    overtaken(lambda: complete(other))

    with pytest.raises(WrongState, match="it is complete already"):
        cancel(redis)
    assert "cancel" not in cli.hgetall("blueque_task_t1")


# requeue


@pytest.mark.parametrize("since", ["pending", "started", "failed again"])
def test_requeue_run_again_changes_nothing_whatever_has_become_of_the_task(redis, state, since):
    bring(redis, "failed")
    requeue(redis)
    if since != "pending":
        pop(redis)
        reserve(redis, "next")
        start(redis, "next")
    if since == "failed again":
        fail(redis, "next")
    before = state()

    requeue(redis, now=90.5)

    assert state() == before


def test_another_requeue_puts_a_task_that_has_failed_again_in_line_again(redis, cli):
    bring(redis, "failed")
    requeue(redis)
    pop(redis)
    reserve(redis, "next")
    fail(redis, "next")

    requeue(redis, "another mark")

    assert cli.hget("blueque_task_t1", "status") == "pending"
    assert cli.hget("blueque_task_t1", "attempt") == "2"


@pytest.mark.parametrize("status", ["scheduled", "pending", "reserved", "started", "complete"])
def test_a_task_that_has_neither_failed_nor_was_cancelled_is_not_put_in_line_again(
    redis, state, status
):
    bring(redis, status)
    before = state()

    with pytest.raises(WrongState, match="t1 cannot be put in line again") as refusal:
        requeue(redis)

    assert (refusal.value.task_id, refusal.value.status) == ("t1", status)
    assert state() == before


def test_a_task_that_does_not_exist_is_not_put_in_line_and_makes_no_stump(redis, state):
    before = state()

    with pytest.raises(WrongState, match="does not exist"):
        requeue(redis)

    assert state() == before


def test_a_task_that_ended_by_itself_before_it_was_cancelled_forgets_that_when_it_is_put_in_line_again(
    redis, cli
):
    bring(redis, "started")
    cancel(redis)
    fail(redis)
    requeue(redis)
    pop(redis)
    reserve(redis, "next")
    start(redis, "next")

    assert "cancel" not in cli.hgetall("blueque_task_t1")
    how = End.retry(None)
    assert (
        protocol.end(redis, AttemptRef("video", "t1", "next", NODE), how, 20.5).status == "pending"
    )


def test_of_two_people_who_want_it_run_again_one_is_told_that_it_is_done_already(
    redis, other, overtaken, cli
):
    bring(redis, "failed")
    overtaken(lambda: requeue(other, "another mark"))

    with pytest.raises(WrongState, match="it is pending"):
        requeue(redis)
    assert cli.lrange("blueque_pending_tasks_video", 0, -1) == ["t1"]


# order


@pytest.mark.parametrize("how", ["unknown", "dead"])
def test_there_are_no_orders_for_a_listener_that_is_not_there(redis, state, how):
    protocol.fence(redis, "video", NODE, "i1", "0", 9.25)
    before = state()

    assert order(redis, NODE if how == "dead" else "host_2") is False
    assert state() == before
