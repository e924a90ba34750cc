"""`blueque move --now`: what was to run later is in line now."""

from __future__ import annotations

import time

from transactions import protocol

from blueque.model import keys


def schedule(redis, task, ahead):
    protocol.schedule(redis, "video", task, "1", time.time() + ahead, time.time())


def test_a_scheduled_task_is_in_line_at_once_and_others_are_not(run, redis, client, cli):
    schedule(redis, "soon-1", 3600)
    schedule(redis, "later-1", 7200)

    result = run("move", "--now", "soon-1")

    assert (result.returncode, result.stdout, result.stderr) == (0, "soon-1  pending\n", "")
    assert [client.get_task(task).status for task in ("soon-1", "later-1")] == [
        "pending",
        "scheduled",
    ]
    assert cli.lrange(keys.pending("video"), 0, -1) == ["soon-1"]
    assert cli.zrange(keys.scheduled("video"), 0, -1) == ["later-1"]
    assert client.get_task("soon-1").eta <= time.time()
