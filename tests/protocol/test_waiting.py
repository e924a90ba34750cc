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


@pytest.fixture(autouse=True)
def listener(redis):
    protocol.register(redis, "video", NODE, "i1", {}, now=1.5)


# Locks, and places in a queue


def test_a_task_with_needs_that_1_0_0_has_put_in_the_default_line_is_put_in_its_own(
    redis, cli, state
):
    protocol.enqueue(redis, "video", "t1", "in", 5.5, {"needs": "gpu=1"})
    before = state()
    cli.rename("blueque_line_0,gpu=1_video", "blueque_pending_tasks_video")
    cli.delete("blueque_lines_video")
    assert protocol.pop(redis, "video", NODE, "i1").task == "t1"

    with pytest.raises(NotFree, match="resources"):
        protocol.reserve(redis, AttemptRef("video", "t1", "token", NODE), "i1", 6.5, True, "0")

    assert state() == before


@pytest.mark.parametrize("want", ["lock", "limit"])
def test_whose_task_has_to_wait_is_told_for_what(redis, want):
    line, needs = ("0,lock:a=1", {"needs": "lock:a=1"}) if want == "lock" else ("0", {})
    if want == "limit":
        protocol.set_settings(redis, "video", {"max_running": "1"}, 1.5)
    for task in ("t1", "t2"):
        protocol.enqueue(redis, "video", task, "in", 5.5, needs)

    def reserve(task):
        assert protocol.pop(redis, "video", NODE, "i1", line).task == task
        attempt = AttemptRef("video", task, "token", NODE)
        return protocol.reserve(redis, attempt, "i1", 6.5, True, line)

    assert reserve("t1") is not None
    with pytest.raises(NotFree, match=f"no free {want}$"):
        reserve("t2")
