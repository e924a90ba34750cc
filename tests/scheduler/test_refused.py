from __future__ import annotations

from blueque.scheduler.refused import RefusedQueues


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
