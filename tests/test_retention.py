"""Retention: finished tasks are deleted when they are old enough."""

from __future__ import annotations

import time

import pytest

from blueque import protocol
from blueque.retention import AT_ONCE


@pytest.fixture
def queue(client):
    return client.get_queue("video")


@pytest.fixture
def finish(client, redis, cli):
    """Let a task of a queue end in some way, so many seconds ago, and return its id."""
    listener = client.get_listener("video")

    def finish(how="complete", ago=0.0, queue="video"):
        own = listener if queue == "video" else client.get_listener(queue)
        client.get_queue(queue).enqueue("in")
        task = own.listen()
        processor = client.get_processor(task)
        processor.start(1)
        processor.complete("out") if how == "complete" else processor.fail("why")
        cli.hset(f"blueque_task_{task.id}", "finished", time.time() - ago)
        return task.id

    return finish


def left(cli, kind="complete", queue="video"):
    return cli.lrange(f"blueque_{kind}_tasks_{queue}", 0, -1)


def test_what_has_been_kept_long_enough_goes_and_the_rest_stays(client, finish, cli, state):
    old, young = finish(ago=100), finish(ago=10)
    assert client.get_retention({"video": {"complete": 50}}).step() is False
    assert left(cli) == [young]
    assert [key for key in state() if old in key] == [], "nothing is left of it"
    assert cli.zscore("blueque_tasks_video", old) is None


def test_each_status_of_each_queue_has_its_own_age(client, finish, cli, queue):
    failed, complete, other = finish("failed", 100), finish(ago=100), finish(ago=100, queue="audio")
    cancelled = queue.enqueue("in")
    queue.cancel(cancelled)
    ages = {"video": {"failed": 200, "complete": 50, "cancelled": 0.001}, "audio": {"failed": 1}}
    time.sleep(0.01)
    client.get_retention(ages).step()
    assert (left(cli, "failed"), left(cli), left(cli, queue="audio")) == ([failed], [], [other])
    assert left(cli, "cancelled") == [], "at the time when it was cancelled"
    assert client.get_task(complete).status is None


def test_a_few_are_deleted_at_a_time_and_it_says_that_there_are_more(client, finish, cli):
    ids = [finish(ago=100) for _ in range(AT_ONCE + 5)]
    retention = client.get_retention({"video": {"complete": 50}})
    assert retention.step() is True
    assert left(cli) == ids[: AT_ONCE - 1 : -1]
    assert retention.step() is True
    assert left(cli) == []
    assert retention.step() is False


def test_what_cannot_be_deleted_does_not_keep_what_comes_after_it(client, finish, cli):
    stumps = [f"stump {number}" for number in range(AT_ONCE + 1)]
    cli.rpush("blueque_complete_tasks_video", *stumps)
    other = finish(queue="audio", ago=100)
    cli.rpush("blueque_complete_tasks_video", other)
    old, young = finish(ago=100), finish()
    retention = client.get_retention({"video": {"complete": 50}})
    while retention.step():
        pass
    assert left(cli) == [young, *stumps, other]
    assert client.get_task(old).status is None
    assert client.get_task(other).status == "complete"


def test_a_task_that_is_put_in_line_again_between_the_look_and_the_deletion_stays(client, finish, other, overtaken):
    failed = finish("failed", 100)
    overtaken(lambda: protocol.requeue(other, "video", failed, "a mark", time.time()))
    client.get_retention({"video": {"failed": 50}}).step()
    assert client.get_task(failed).status == "pending"


def test_one_of_1_0_0_that_says_no_more_than_when_it_was_last_changed_goes_by_that(client, cli, queue):
    for task_id, updated in (("old", time.time() - 100), ("young", time.time() - 10)):
        cli.hset(f"blueque_task_{task_id}", mapping={"status": "complete", "queue": "video", "updated": updated})
        cli.lpush("blueque_complete_tasks_video", task_id)
    client.get_retention({"video": {"complete": 50}}).step()
    assert left(cli) == ["young"]


def test_a_clock_that_is_wrong_here_deletes_nothing(client, finish, cli, monkeypatch):
    young = finish()
    monkeypatch.setattr("time.time", lambda now=time.time: now() + 10**9)
    client.get_retention({"video": {"complete": 50}}).step()
    assert left(cli) == [young]


def test_a_key_of_a_deleted_task_still_counts(client, queue):
    task_id = queue.enqueue("in", key="a key", keep="1h")
    queue.cancel(task_id)
    time.sleep(0.01)
    client.get_retention({"video": {"cancelled": 0.001}}).step()
    assert client.get_task(task_id).status is None
    assert queue.enqueue("in", key="a key").is_new is False


def test_nothing_is_asked_of_redis_when_nothing_is_to_be_deleted(client):
    assert client.get_retention({"video": {}}).is_asked_for is False
    assert client.get_retention({"video": {"failed": 1}}).is_asked_for is True


def test_two_that_delete_at_the_same_time_leave_nothing_and_break_nothing(client, finish, cli, other, overtaken):
    ids = [finish(ago=100) for _ in range(3)]
    overtaken(lambda: protocol.delete(other, "video", ids[0]))
    client.get_retention({"video": {"complete": 50}}).step()
    assert left(cli) == []
