"""Tasks that wait in lines, and what attempts hold besides their task: locks, and places in their
queue.

See also test_run, test_submit and test_recover, where every task stands in the default line; and
test_choosing.
"""

from __future__ import annotations

import pytest
from transactions import protocol

from blueque import NotFree
from blueque.model.attempt_ref import AttemptRef

NODE = "host_1"
LICENCE = "0,lock:licence=1"  # the line of tasks that need the lock `licence`


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
    protocol.set_settings(redis, "video", {"max_running": None if most is None else str(most)}, 1.0)


def hold(redis, is_started=True):
    """Have the task t1 hold the lock `licence`, and count against the limit of its queue."""
    limit(redis, 1)
    enqueue(redis, needs="lock:licence=1")
    pop(redis, LICENCE)
    reserve(redis)
    if is_started:
        start(redis)


# Locks, and places in a queue


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
