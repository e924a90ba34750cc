from __future__ import annotations

import contextlib
import time

from running import until

from blueque.errors import RedisRefused
from blueque.producer.queue import Queue
from blueque.scheduler import Scheduler, refused
from blueque.scheduler.refused import RefusedQueues


def refuse(*_):
    raise RedisRefused("NOPERM a")


def test_each_reason_is_logged_once_and_the_end_when_every_duty_is_done(client, caplog):
    refused = RefusedQueues(client, lambda: None)
    for duty, reason in [("look", "NOPERM a"), ("judge", "NOPERM a"), ("recheck", "NOPERM b")] * 2:
        refused.note("video", duty, reason)
    for duty in ("look", "judge", "recheck", "recheck"):
        refused.note("video", duty, None)

    assert [message.partition(" after ")[0] for message in caplog.messages] == [
        "NOPERM a; skipping queue 'video'",
        "NOPERM b; still skipping queue 'video'",
        "serving queue 'video' again",
    ]


def test_a_queue_that_is_gone_is_forgotten(client, caplog):
    refused = RefusedQueues(client, lambda: None)
    for _ in range(2):
        refused.note("video", "look", "NOPERM a")
        refused.forget_gone(["other"])

        assert "video" not in refused and not refused.retry_times()
    assert caplog.messages == ["NOPERM a; skipping queue 'video'"] * 2


def test_a_duty_that_was_refused_and_then_done_by_another_process_is_over(
    client, queue, caplog, monkeypatch
):
    monkeypatch.setattr(refused, "REFUSED_PAUSE", 0.1)
    with contextlib.closing(Scheduler(client)) as scheduler:

        def step_until_it_says(what):
            until(lambda: scheduler.step() >= 0 and what in caplog.text, what=what)
            caplog.clear()

        for _ in range(2):
            queue.schedule("in", time.time() + 0.05)
            with monkeypatch.context() as patch:
                patch.setattr(Queue, "enqueue_due_tasks", refuse)
                step_until_it_says("NOPERM a; skipping queue 'video'")
            queue.enqueue_due_tasks(time.time())
            step_until_it_says("serving queue 'video' again")
