"""blueque.protocol.operator against a real Redis; the whole state is compared, so that leftovers
fail too.
"""

from __future__ import annotations

import pytest
from transactions import protocol

from blueque import WrongState
from blueque.model.attempt_ref import AttemptRef

NODE = "host_1"


@pytest.fixture(autouse=True)
def listener(redis):
    protocol.register(redis, "video", NODE, "i1", {}, now=1.5)


def start(redis):
    attempt = AttemptRef("video", "t1", "token", NODE)
    protocol.pop(redis, "video", NODE, "i1")
    protocol.reserve(redis, attempt, "i1", now=6.5)
    protocol.start(redis, attempt, 77, 7.5, {"files": "host:/spool/t1/1"})


@pytest.mark.parametrize(
    ("status", "only"), [("started", ["scheduled", "pending"]), ("pending", ["scheduled"])]
)
def test_a_task_in_a_status_that_was_not_meant_is_left_alone(redis, state, status, only):
    protocol.enqueue(redis, "video", "t1", "in", now=5.5)
    if status == "started":
        start(redis)
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
        protocol.cancel(redis, "video", "t1", "ann", None, 9.5)

    assert state() == before
