"""Purge: of the tasks that a snapshot names, those that still have the status of then are deleted."""

from __future__ import annotations

import os


def test_a_task_that_was_started_when_the_snapshot_was_taken_stays_though_it_waits_again(client):
    queue = client.get_queue("video")
    ran = queue.enqueue("ran")
    processor = client.get_processor(client.get_listener("video").listen())
    processor.start(os.getpid())
    waits = queue.enqueue("waits")
    snapshot = client.freeze("video", ["started", "pending"])
    processor.release()
    assert client.get_task(ran).status == "pending"

    assert list(client.purge(snapshot))[-1] == 1

    assert client.get_task(ran).status == "pending"
    assert client.get_task(waits).status is None
