"""Bounded queues: what does not fit is refused as a whole, or the oldest tasks make room."""

from __future__ import annotations

import time

import pytest

from blueque import BatchFailed, Client, NoSuchGroup, QueueFull, WrongGroup
from blueque.connection import redis as redis_module
from blueque.model import keys
from blueque.producer import room
from blueque.queries.line_order import oldest_pending

LATER = 4e9


def bound(client: Client, most: int, queue: str = "video", **more: object):
    bounded = client.get_queue(queue)
    bounded.set_settings({"max_pending": most, **more})
    return bounded


def in_line(client: Client, queue: str = "video") -> int:
    return client.get_inspector().pending(queue)


def made(cli, queue: str = "video") -> int:
    return cli.zcard(keys.tasks(queue))


def test_a_full_queue_refuses_and_takes_tasks_again_when_one_has_gone(client, cli):
    queue = bound(client, 2)
    queue.enqueue("a", priority=7)
    first = queue.enqueue("b")

    with pytest.raises(QueueFull) as caught:
        queue.enqueue("c")

    error = caught.value
    assert (error.queue, error.max_pending, error.pending, error.tasks) == ("video", 2, 2, 1)
    assert (
        str(error)
        == "queue 'video' has 2 pending tasks, and its max_pending is 2: the new task does not fit"
    )
    assert made(cli) == 2
    queue.cancel(first)
    assert queue.enqueue("c").is_new
    queue.set_settings({"max_pending": None})
    assert queue.enqueue("d").is_new


def test_a_producer_notices_a_bound_that_another_program_sets_when_it_asks_again(
    client, cli, url, monkeypatch
):
    client.get_queue("video").enqueue("a")
    bound(Client(url), 1)
    queue = client.get_queue("video")
    assert queue.enqueue("b").is_new  # all queues of a client know that it asked just now
    monkeypatch.setattr(room.time, "monotonic", lambda before=time.monotonic: before() + 10)

    with pytest.raises(QueueFull):
        queue.enqueue("c")
    assert (made(cli), client.get_queue("audio").enqueue("d").is_new) == (2, True)


def test_a_queue_without_a_bound_is_asked_once_and_one_with_a_bound_for_each_call(
    client, cli, redis, monkeypatch
):
    queue, asked = client.get_queue("video"), []
    read = redis_module.Redis.read
    monkeypatch.setattr(
        redis_module.Redis, "read", lambda self, *asks: asked.append(asks) or read(self, *asks)
    )
    queue.enqueue("a")
    queue.enqueue("b")
    assert [command[0] for (command,) in asked] == ["HMGET"]
    queue.set_settings({"max_pending": 4})
    asked.clear()
    queue.enqueue("c")
    queue.enqueue("d")
    assert [asks[0][0] for asks in asked if asks] == ["HMGET", "LLEN", "HMGET", "LLEN"]
    with pytest.raises(QueueFull):
        queue.enqueue("e")


def test_the_keys_of_a_group_need_no_room_once_its_members_are_made(client, cli):
    queue = bound(client, 2)
    client.group("g").open()
    given = {"keys": [*"ab"], "group": "g"}
    assert queue.enqueue_many([*"ab"], **given).new == 2
    for task in [client.get_task(task) for task in cli.lrange(keys.pending("video"), 0, -1)]:
        queue.cancel(task.id)
        queue.delete_task(client.get_task(task.id), force=True)
    queue.enqueue_many([*"xy"])

    assert queue.enqueue_many([*"ab"], **given).new == 0
    with pytest.raises(QueueFull):
        queue.enqueue_many([*"abc"], keys=[*"abc"], group="g")


def test_what_waits_for_its_time_is_not_refused_neither_now_nor_when_it_is_due(client, cli):
    queue = bound(client, 0)
    queue.schedule("a", LATER)
    with pytest.raises(QueueFull):
        queue.schedule("b", 1e9)  # it is due
    waiting = queue.schedule("c", time.time() + 3600)
    queue.bring_forward(waiting)
    assert (in_line(client), made(cli)) == (1, 2)
    blocked = queue.enqueue("d", after=waiting)
    assert client.get_task(blocked).status == "blocked"
    queue.cancel(waiting)
    assert queue.requeue(waiting) == "pending"


def test_each_batch_of_many_is_in_redis_as_a_whole_or_not_at_all(client, cli):
    queue = bound(client, 5)

    with pytest.raises(QueueFull) as caught:
        queue.enqueue_many([*"abcdefgh"], batch=2)
    assert caught.value.__notes__ == ["blueque: the batches before are in Redis, 4 tasks"]
    assert made(cli) == 4
    with pytest.raises(QueueFull):
        queue.enqueue_many([*"xyz"])
    assert made(cli) == 4
    assert queue.schedule_many([*"xyz"], LATER) == 3


def test_of_tasks_with_keys_only_new_ones_need_room(client, cli):
    queue = bound(client, 2)
    assert queue.enqueue_many([*"ab"], keys=[*"ab"]).new == 2

    assert queue.enqueue_many([*"ab"], keys=[*"ab"]).new == 0
    assert not queue.enqueue("a", key="a").is_new
    with pytest.raises(QueueFull):
        queue.enqueue_many([*"bc"], keys=[*"bc"])
    assert made(cli) == 2


def test_keys_of_a_group_go_on_when_there_is_room(client, cli):
    queue, group = bound(client, 2), client.group("r")
    with pytest.raises(QueueFull):
        queue.enqueue_many([*"abc"], keys=[*"abc"], group="r", batch=2)
    assert (made(cli), group.progress().state) == (2, "open")
    queue.set_settings({"max_pending": 3})

    counted = queue.enqueue_many([*"abc"], keys=[*"abc"], group="r", batch=2)

    assert (counted, counted.new, group.progress().state) == (3, 1, "closed")


def test_a_fan_out_puts_tasks_into_all_queues_or_none(client, cli):
    bound(client, 0, "small")
    with pytest.raises(QueueFull) as caught:
        client.get_fanout("both", to=["video", "small"]).enqueue("a")
    assert caught.value.queue == "small"
    assert (made(cli), made(cli, "small")) == (0, 0)


def test_a_workflow_whose_first_tasks_do_not_fit_is_not_made(client, cli):
    bound(client, 1)
    flow = client.workflow("w")
    first = flow.add("video", "a")
    flow.add("video", "b", after=[first])
    other = flow.add("video", "c")
    with pytest.raises(QueueFull):
        flow.commit()
    assert made(cli) == 0 and other
    client.get_queue("video").set_settings({"max_pending": 2})
    assert flow.commit() and in_line(client) == 2


def test_tasks_of_1_0_0_count_and_are_not_refused(client, cli):
    queue = bound(client, 1)
    for task in ("old-1", "old-2"):
        cli.hset(keys.task(task), mapping={"status": "pending", "queue": "video", "created": "1"})
        cli.lpush(keys.pending("video"), task)
    with pytest.raises(QueueFull) as caught:
        queue.enqueue("a")
    assert caught.value.pending == 2


def test_the_oldest_tasks_are_discarded_for_new_ones(client, cli, redis):
    queue = bound(client, 3, discard="oldest")
    old = [queue.enqueue(name, priority=number) for number, name in enumerate("abc")]
    waits = queue.enqueue("after", after=old[0], broken="cancel")

    assert queue.enqueue_many([*"de"]) == 2

    assert [client.get_task(task).status for task in old] == ["cancelled", "cancelled", "pending"]
    gone = client.get_task(old[0])
    assert (gone.fields["cancelled_by"], gone.fields["cancel_reason"]) == ("blueque", "discarded")
    assert client.get_task(waits).status == "cancelled"
    assert in_line(client) == 3
    event = client.get_history(old[0]).events[-1]
    assert (event.event, event.facts["reason"]) == ("cancelled", "discarded")
    with pytest.raises(QueueFull):
        queue.enqueue_many([*"fghi"])  # more than there may ever be
    assert in_line(client) == 3


def test_very_many_tasks_are_discarded_some_at_a_time(client, cli, redis, monkeypatch):
    client.get_queue("video").enqueue_many(range(7))
    queue = bound(client, 2, discard="oldest")
    monkeypatch.setattr(room, "DISCARDED_AT_ONCE", 2)
    looks = []
    monkeypatch.setattr(
        room, "oldest_pending", lambda *about: looks.append(about[-1]) or oldest_pending(*about)
    )

    queue.enqueue("a")

    assert (looks, in_line(client)) == ([2, 2, 2], 2)


def test_of_several_producers_each_finds_a_task_to_discard(client, cli, redis, url, monkeypatch):
    queue = bound(Client(url), 1, discard="oldest")
    queue.enqueue("a")
    read, others = redis.read, []

    def while_others_are_faster(*commands):
        if commands[0][0] == "HMGET" and not others:
            others.append(queue.enqueue("b"))
        return read(*commands)

    monkeypatch.setattr(redis, "read", while_others_are_faster)

    assert oldest_pending(redis, "video", 1) == others


def test_what_is_in_line_and_not_pending_is_not_waited_for(client, cli, redis):
    queue = bound(client, 1, discard="oldest")
    for task, state in (("other", {"queue": "audio"}), ("gone", {}), ("odd", {"created": "?"})):
        cli.hset(keys.task(task), mapping={"status": "pending", "queue": "video", **state})
    cli.hset(keys.task("gone"), "status", "complete")
    cli.lpush(keys.pending("video"), "other", "gone")
    with pytest.raises(QueueFull):
        queue.enqueue("a")
    cli.lpush(keys.pending("video"), "odd")
    assert oldest_pending(redis, "video", 3) == ["odd"]


def test_a_fan_out_discards_nothing_for_tasks_that_do_not_fit_elsewhere(client, cli):
    bound(client, 1, "first", discard="oldest").enqueue("a")
    bound(client, 1, "second").enqueue("a")
    fanout = client.get_fanout("both", to=["first", "second"])
    with pytest.raises(QueueFull) as caught:
        fanout.enqueue("b")
    assert (caught.value.queue, in_line(client, "first")) == ("second", 1)
    bound(client, 1, "second", discard="oldest")
    assert fanout.enqueue("b").keys() == {"first", "second"}
    assert (in_line(client, "first"), in_line(client, "second")) == (1, 1)


@pytest.mark.parametrize("name", ["closed", "missing"])
def test_nothing_is_discarded_for_tasks_that_their_group_does_not_take(client, name):
    queue = bound(client, 1, discard="oldest")
    waits = queue.enqueue("a")
    client.group("closed").open().close()

    with pytest.raises((NoSuchGroup, WrongGroup)):
        queue.enqueue("b", group=name)
    with pytest.raises((BatchFailed, NoSuchGroup, WrongGroup)):
        queue.enqueue_many(["b"], group=name)
    fanout = client.get_fanout("both", to=["video", "audio"])
    with pytest.raises((NoSuchGroup, WrongGroup)):
        fanout.enqueue("b", group=name)
    with pytest.raises((BatchFailed, NoSuchGroup, WrongGroup)):
        queue.enqueue_many(["b"], keys=["b"], group="closed")

    assert client.get_task(waits).status == "pending"


def test_a_group_without_tasks_needs_no_room(client, cli):
    client.get_queue("video").enqueue("a")
    queue = bound(client, 0, discard="oldest")
    assert queue.enqueue_many([], keys=[], group="r") == 0
    assert in_line(client) == 1


def test_a_bound_that_is_malformed_bounds_nothing(client, cli):
    queue = bound(client, 0)
    cli.hset(keys.settings("video"), "max_pending", "few")
    assert queue.enqueue("a").is_new


def test_a_batch_that_redis_refuses_is_no_full_queue(client, cli):
    queue = bound(client, 5)
    cli.set(keys.lines("video"), "of a wrong type")
    with pytest.raises(BatchFailed):
        queue.enqueue_many([*"ab"])
    cli.delete(keys.lines("video"))
    assert queue.enqueue_many([*"ab"]) == 2
