"""blueque.protocol.attempts against a real Redis; the whole state is compared, so that leftovers
fail too.
"""

from __future__ import annotations

import pytest
from transactions import protocol

from blueque import NotOwner
from blueque.model.attempt_ref import AttemptRef
from blueque.protocol.ends import End

NODE = "host_1"


@pytest.fixture(autouse=True)
def listener(redis):
    protocol.register(redis, "video", NODE, "i1", {}, now=1.5)


def start(redis, token="token", node=NODE, pid=77, now=7.5, **more):
    protocol.start(redis, AttemptRef("video", "t1", token, node), pid, now, **more)


def complete(redis, token="token", node=NODE, now=8.5, **more):
    protocol.end(redis, AttemptRef("video", "t1", token, node), End.complete("out", **more), now)


def fail(redis, token="token", node=NODE, now=8.5, **more):
    protocol.end(redis, AttemptRef("video", "t1", token, node), End.fail("why", **more), now)


def progress(redis, token="token", node=NODE, now=8.5):
    protocol.progress(redis, AttemptRef("video", "t1", token, node), "50 %", now)


def retry(redis, token="token", node=NODE, eta=99.5, now=8.5, **more):
    return protocol.end(
        redis, AttemptRef("video", "t1", token, node), End.retry(eta, **more), now
    ).status


def release(redis, token="token", node=NODE, now=8.5, **more):
    return protocol.end(
        redis, AttemptRef("video", "t1", token, node), End.release(**more), now
    ).status


def confirm_cancel(redis, token="token", node=NODE, now=8.5, **more):
    protocol.end(redis, AttemptRef("video", "t1", token, node), End.confirm_cancel(**more), now)


NAMED = {"ids": lambda part: getattr(part, "__name__", part)}


@pytest.mark.parametrize(
    "change", [start, progress, complete, fail, retry, release, confirm_cancel], **NAMED
)
@pytest.mark.parametrize("token", ["token", None])
def test_a_change_of_a_deleted_task_is_refused_and_makes_no_stump(redis, state, change, token):
    before = state()

    with pytest.raises(NotOwner, match="it does not exist") as refusal:
        change(redis, token=token)

    assert refusal.value.status is None
    assert state() == before
