"""Purge: of the tasks that a snapshot names, those that still have the status of then are deleted."""

from __future__ import annotations

import os
import time

import pytest
from transactions import protocol

from blueque.model.new_task import NewTask
from blueque.recovery import purge


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


def wait_for(redis, queue, task, parent):
    protocol.enqueue_after(redis, [NewTask(task, queue, "p", {}, {parent: "ok"})], time.time())


@pytest.fixture
def chain(client, redis):
    """A pending task, a blocked one that waits for it, and one that waits for that."""
    root = client.get_queue("video").enqueue("root")
    wait_for(redis, "video", "middle", root)
    wait_for(redis, "video", "last", "middle")
    return root


def test_a_snapshot_has_the_blocked_tasks(client, chain):
    snapshot = client.freeze("video", ["blocked"])

    assert sorted(task.id for task in client.tasks_of(snapshot)) == ["last", "middle"]


def test_a_finished_task_goes_if_those_that_have_waited_for_it_are_gone(client, redis, chain):
    queue = client.get_queue("video")
    queue.cancel(chain)
    protocol.settle(redis, chain, time.time())
    client_snapshot = client.freeze("video", ["cancelled"])
    assert list(client.purge(client_snapshot))[-1] == 0
    assert list(client.purge(client.freeze("video", ["blocked"]), force=True))[-1] == 2

    assert list(client.purge(client_snapshot))[-1] == 1

    assert client.get_task(chain).status is None


def test_what_a_purge_would_leave_is_counted_by_state_and_force_leaves_none_that_waits(
    client, redis, chain
):
    queue = client.get_queue("video")
    failed = queue.enqueue("fails", priority=9)
    wait_for(redis, "video", "behind", failed)
    processor = client.get_processor(client.get_listener("video").listen())
    processor.start(os.getpid())
    processor.fail("why")
    snapshot = client.freeze("video", ["pending", "blocked", "failed"])

    assert purge.awaited(redis, snapshot) == {
        ("pending", "video"): 1,
        ("blocked", "video"): 1,
        ("failed", "video"): 1,
    }
    assert +purge.awaited(redis, snapshot, is_forced=True) == {("failed", "video"): 1}
