"""blueque.protocol.operator against a real Redis; the whole state is compared, so that leftovers
fail too.
"""

from __future__ import annotations

import pytest
from transactions import protocol

from blueque import WrongState
from blueque.model.attempt_ref import AttemptRef
from blueque.protocol.ends import End
from blueque.protocol.recover import Loss

NODE = "host_1"


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


# cancel


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
