"""Deleting a task for which others wait, or have waited."""

from __future__ import annotations

import time

import pytest
from transactions import protocol

from blueque.errors import HasDependents
from blueque.model import keys
from blueque.model.new_task import NewTask
from blueque.producer.dependents import drop_stale, is_awaited
from blueque.recovery.dependents import Dependents


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


def test_a_task_for_which_another_waits_is_deleted_with_force_only(client, redis, queue, failed):
    children_of(redis, failed, 1)

    with pytest.raises(HasDependents) as refused:
        queue.delete_task(client.get_task(failed))
    assert refused.value.task_id == failed
    assert client.get_task(failed).status == "failed"

    queue.delete_task(client.get_task(failed), force=True)

    assert client.get_task(failed).status is None
    assert protocol.recheck(redis, "later", "child-0000", time.time()) == "blocked"
    assert redis.read(("HGETALL", keys.conditions("child-0000"))) == [[failed, "-gone"]]


def test_one_for_which_a_cancelled_task_will_wait_is_kept_and_the_refusal_says_so(
    client, redis, queue, failed
):
    (child,) = children_of(redis, failed, 1)
    protocol.cancel(redis, "later", child, "me", None, time.time())

    with pytest.raises(HasDependents, match="wait for it, or will if they are requeued"):
        queue.delete_task(client.get_task(failed))

    client.get_queue("later").requeue(child)
    assert client.get_task(child).status == "blocked"


def test_a_task_is_deleted_when_none_waits_for_it_any_more(client, redis, queue, failed, cli):
    drop(redis, *children_of(redis, failed, 250))
    assert cli.zcard(keys.dependents(failed)) == 250

    queue.delete_task(client.get_task(failed))

    assert client.get_task(failed).status is None
    assert cli.keys(keys.dependents("*")) == []


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


def test_those_that_were_not_told_yet_are_told_when_entries_are_dropped(client, redis, queue, cli):
    parent = queue.enqueue("p")
    for kind, count in (("ok", 120), ("any", 60)):
        new = [
            NewTask(f"{kind}{number}", "later", "p", {}, {parent: kind}) for number in range(count)
        ]
        for first in (0, 100):
            if new[first : first + 100]:
                protocol.enqueue_after(redis, new[first : first + 100], time.time())
    queue.cancel(parent)

    drop_stale(redis, parent, time.time())

    assert cli.llen(keys.pending("later")) == 60
    assert not cli.exists(keys.UNSETTLED_TASKS)


def test_one_that_waits_for_any_end_is_told_it_before_the_task_is_deleted(client, redis, queue):
    parent = queue.enqueue("p")
    protocol.enqueue_after(redis, [NewTask("child", "later", "p", {}, {parent: "any"})], 1.0)
    protocol.cancel(redis, queue.name, parent, "me", None, time.time())
    assert client.get_task("child").status == "blocked"

    queue.delete_task(client.get_task(parent))

    assert client.get_task(parent).status is None
    assert client.get_task("child").status == "pending"
    assert redis.read(("HGETALL", keys.conditions("child"))) == [[parent, "+cancelled"]]


def test_who_cancels_a_task_tells_a_hundred_and_leaves_the_others_to_listeners(
    client, redis, queue, cli
):
    parent = queue.enqueue("p")
    children = client.get_queue("later").enqueue_many(["c"] * 250, after=parent, broken="cancel")
    assert children == 250

    queue.cancel(parent)

    assert cli.zcard(keys.blocked("later")) == 150
    settling = Dependents(redis)
    settling.note(cli.zrange(keys.UNSETTLED_TASKS, 0, -1))
    while settling.step():
        pass
    assert cli.llen(keys.cancelled("later")) == 250
