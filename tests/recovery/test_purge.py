"""Purge: of the tasks that a snapshot names, those that still have the status of then are deleted."""

from __future__ import annotations

import os
import time

import pytest
from faults import Fault
from transactions import protocol

from blueque import Client
from blueque.model.new_task import NewTask
from blueque.queries import history
from blueque.recovery import purge
from blueque.recovery.purge import PURGED_AT_ONCE


def orders(redis):
    """Return the events of what people have deleted, the last first."""
    return [event for event in history.newest(redis, ["video"], 100) if event.event == "purged"]


def test_a_task_that_was_started_when_the_snapshot_was_taken_stays_though_it_waits_again(
    client, redis
):
    queue = client.get_queue("video")
    ran = queue.enqueue("ran")
    processor = client.get_processor(client.get_listener("video").listen())
    processor.start(os.getpid())
    waits = queue.enqueue("waits")
    snapshot = client.freeze("video", ["started", "pending"])
    processor.release()
    assert client.get_task(ran).status == "pending"

    assert list(client.purge(snapshot, by="ann"))[-1] == 1

    assert client.get_task(ran).status == "pending"
    assert client.get_task(waits).status is None
    (event,) = orders(redis)
    assert (event.by, event.facts) == ("ann", {"tasks": 1, "status": "pending"})


def test_a_purge_whose_answer_is_lost_counts_its_tasks_and_is_told_once(proxy, client, redis):
    queue = client.get_queue("video")
    queue.enqueue_many(range(PURGED_AT_ONCE + 1))
    through = Client(proxy.url, patience=5)
    snapshot = through.freeze("video", "pending")
    proxy.arm(Fault.CUT_AFTER, having=b"UNLINK")

    assert list(through.purge(snapshot)) == [PURGED_AT_ONCE, PURGED_AT_ONCE + 1]

    assert proxy.has_struck
    (event,) = orders(redis)
    assert event.facts["tasks"] == PURGED_AT_ONCE + 1
    through.close()


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
