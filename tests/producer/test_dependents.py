"""Deleting a task for which others wait, or have waited."""

from __future__ import annotations

import time

import pytest
from transactions import protocol

from blueque.model import keys
from blueque.model.new_task import NewTask
from blueque.producer.dependents import drop_stale, is_awaited


@pytest.fixture
def failed(client, queue):
    """A task that has failed."""
    task_id = queue.enqueue("p")
    processor = client.get_processor(client.get_listener("video").listen())
    processor.start(1)
    processor.fail("why")
    return task_id


def children_of(redis, parent, count, kind="ok"):
    """Have so many tasks wait for one, and tell them of its end."""
    children = [f"child-{number:04}" for number in range(count)]
    for first in range(0, count, 100):
        new = [
            NewTask(task, "later", "p", {}, {parent: kind})
            for task in children[first : first + 100]
        ]
        protocol.enqueue_after(redis, new, time.time())
    while not protocol.settle(redis, parent, time.time()).is_over:
        pass
    return children


def drop(redis, *children):
    for child in children:
        protocol.cancel(redis, "later", child, "me", None, time.time())
        protocol.delete(redis, "later", child)


def test_one_that_waits_behind_many_that_do_not_is_seen(redis, failed, cli):
    *gone, last = children_of(redis, failed, 250)
    drop(redis, *gone)

    assert is_awaited(redis, failed, time.time(), most=1) is True
    assert cli.zcard(keys.dependents(failed)) == 150
    assert is_awaited(redis, failed, time.time()) is True
    assert cli.zrange(keys.dependents(failed), 0, -1) == [last]


def test_entries_of_tasks_that_do_not_wait_are_dropped_wherever_they_are(redis, failed, cli):
    children = children_of(redis, failed, 250)
    drop(redis, *children[::2])

    assert drop_stale(redis, failed, time.time()) is True

    assert cli.zrange(keys.dependents(failed), 0, -1) == children[1::2]
    assert drop_stale(redis, failed, time.time()) is False
