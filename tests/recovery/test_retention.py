"""Retention: finished tasks are deleted when they are old enough, or too many."""

from __future__ import annotations

import time

import pytest
from clock import Clock
from transactions import protocol

from blueque import Client
from blueque.errors import RedisRefused
from blueque.model import keys
from blueque.model.new_task import NewTask
from blueque.model.units import Keep
from blueque.recovery.group_settling import settle_groups_step
from blueque.recovery.retention import REFUSED_PAUSE, Retention
from blueque.scheduler import Scheduler


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
        cli.hset(
            f"blueque_task_{task.id}",
            mapping=dict.fromkeys(("finished", "updated"), time.time() - ago),
        )
        return task.id

    return finish


def left(cli, kind="complete", queue="video"):
    return cli.lrange(f"blueque_{kind}_tasks_{queue}", 0, -1)


def test_what_cannot_be_deleted_does_not_keep_what_comes_after_it(client, finish, cli, monkeypatch):
    monkeypatch.setattr("blueque.recovery.retention.PRUNED_AT_ONCE", 4)
    stumps = [f"stump {number}" for number in range(5)]
    cli.rpush("blueque_complete_tasks_video", *stumps)
    other = finish(queue="audio", ago=100)
    cli.rpush("blueque_complete_tasks_video", other)
    old, young = finish(ago=100), finish()
    retention = Retention(client.connections, {"video": {"complete": Keep(50)}})
    while retention.step():
        pass
    assert left(cli) == [young, *stumps, other]
    assert client.get_task(old).status is None
    assert client.get_task(other).status == "complete"


def test_one_of_1_0_0_that_says_no_more_than_when_it_was_last_changed_goes_by_that(
    client, cli, queue
):
    for task_id, updated in (("old", time.time() - 100), ("young", time.time() - 10)):
        cli.hset(
            f"blueque_task_{task_id}",
            mapping={"status": "complete", "queue": "video", "updated": updated},
        )
        cli.lpush("blueque_complete_tasks_video", task_id)
    Retention(client.connections, {"video": {"complete": Keep(50)}}).step()
    assert left(cli) == ["young"]


def test_nothing_is_asked_of_redis_when_nothing_is_to_be_deleted(client):
    assert Retention(client.connections, {"video": {}}).is_asked_for is False
    assert Retention(client.connections, {"video": {"failed": Keep(1)}}).is_asked_for is True


def test_two_that_delete_at_the_same_time_leave_nothing_and_break_nothing(
    client, finish, cli, other, overtaken
):
    ids = [finish(ago=100) for _ in range(3)]
    overtaken(lambda: protocol.delete(other, "video", ids[0]))
    Retention(client.connections, {"video": {"complete": Keep(50)}}).step()
    assert left(cli) == []


def test_where_there_is_nothing_to_do_it_costs_one_round_trip(client, finish, proxy):
    for ago in range(5):
        finish(ago=ago)
    retention = Retention(Client(proxy.url).connections, client.retention_rules(["video", "audio"]))
    retention.step()
    before = proxy.writes
    assert retention.step() is False
    assert proxy.writes - before == 1


def test_where_no_task_has_ended_it_costs_one_command(client, finish, cli):
    retention = Retention(client.connections, {"video": {"complete": Keep(50), "failed": Keep(50)}})
    assert retention.step() is False
    cli.config_resetstat()
    assert retention.step() is False
    sent = cli.info("commandstats")
    assert [name for name in sent if "config" not in name] == ["cmdstat_exists"]
    assert sent["cmdstat_exists"]["calls"] == 1
    finish(ago=100)
    retention.step()
    assert left(cli) == []


def test_a_queue_that_is_broken_keeps_no_other_from_being_served(client, finish, cli):
    finish(ago=100)
    cli.set("blueque_complete_tasks_audio", "no list")
    retention = Retention(
        client.connections, {name: {"complete": Keep(50)} for name in ("audio", "video")}
    )
    retention.step()
    assert left(cli) == []


def test_while_redis_has_no_memory_it_waits_and_stops_nothing_else(
    client, finish, cli, monkeypatch, caplog
):
    clock = Clock()
    monkeypatch.setattr("blueque.recovery.retention.time", clock)
    finish(ago=100), finish(ago=100, queue="audio")
    retention = Retention(
        client.with_patience(0).connections,
        {name: {"complete": Keep(50)} for name in ("audio", "video")},
    )
    cli.config_set("maxmemory", "1")
    try:
        assert retention.step() is False
        with pytest.raises(RedisRefused, match="OOM"):  # a person waits for it
            retention.delete_all()
    finally:
        cli.config_set("maxmemory", "0")
    assert [record.levelname for record in caplog.records if "OOM" in record.getMessage()] == []
    retention.step()
    assert len(left(cli)) + len(left(cli, queue="audio")) == 2, "left alone for a minute"
    clock.sleep(REFUSED_PAUSE)
    retention.step()
    assert left(cli) + left(cli, queue="audio") == []


def test_a_scheduler_deletes_in_queues_that_no_listener_serves(client, finish, cli, monkeypatch):
    monkeypatch.setattr("blueque.scheduler.scheduler.PRUNE_EVERY", 0.0)
    finish(ago=8 * 86400), finish(ago=8 * 86400, queue="audio")
    young = finish()
    Scheduler(client).step()
    assert (left(cli), left(cli, queue="audio")) == ([young], [])


# How many


def test_what_is_old_goes_however_few_there_are_and_what_is_too_many_down_to_the_number(
    client, finish, cli
):
    finish(ago=100), finish(ago=90)
    young = [finish(ago=10) for _ in range(3)]
    Retention(client.connections, {"video": {"complete": Keep(50, 2)}}).step()
    assert left(cli) == young[:0:-1]


def test_stumps_that_somebody_clears_away_meanwhile_are_not_counted_as_passed(
    client, finish, cli, monkeypatch
):
    monkeypatch.setattr("blueque.recovery.retention.PRUNED_AT_ONCE", 2)
    cli.rpush("blueque_complete_tasks_video", "stump 1", "stump 2")
    old = [finish(ago=100) for _ in range(2)]
    retention = Retention(client.connections, {"video": {"complete": Keep(50)}})
    assert retention.step() is True
    cli.ltrim("blueque_complete_tasks_video", 0, -3)
    retention.step()
    assert [client.get_task(one).status for one in old] == [None, None]


def test_what_a_file_wants_no_more_than_so_many_of_stays_for_a_day(
    client, url, finish, cli, tmp_path
):
    file = tmp_path / "blueque.toml"
    file.write_text("[retention]\ncomplete = { newest = 2 }\n")
    finish(ago=25 * 3600)
    young = [finish(ago=ago) for ago in (20 * 3600, 100, 0)]
    rules = Client(url, config=file).retention_rules(["video"])
    retention = Retention(client.connections, rules)
    retention.step()
    assert left(cli) == young[::-1]
    assert retention.step() is False
    cli.hset(
        keys.task(young[0]), mapping=dict.fromkeys(("finished", "updated"), time.time() - 25 * 3600)
    )
    Retention(client.connections, rules).step()
    assert left(cli) == young[:0:-1]


# Tasks for which others wait


def wait_for(redis, parent, children, kind="ok"):
    """Enqueue tasks that wait for one, and tell them how that has ended."""
    new = [NewTask(child, "later", "in", {}, {parent: kind}) for child in children]
    protocol.enqueue_after(redis, new, time.time())
    assert protocol.settle(redis, parent, time.time()).is_over


@pytest.mark.parametrize("is_readable", [True, False])
def test_a_task_for_which_others_wait_stays_and_keeps_none_behind_it(
    client, redis, finish, cli, is_readable
):
    held, gone = finish("failed", 200), finish("failed", 100)
    wait_for(redis, held, ["child"])
    if not is_readable:
        cli.delete(keys.conditions("child"))
        cli.set(keys.conditions("child"), "of another program")
    retention = Retention(client.connections, {"video": {"failed": Keep(50)}})

    while retention.step():
        pass

    assert left(cli, "failed") == [held]
    assert client.get_task(gone).status is None
    assert cli.zrange(keys.dependents(held), 0, -1) == ["child"]
    assert client.get_task("child").status == "blocked"


def test_those_that_stay_are_not_counted_among_those_that_would_be_deleted(client, redis, finish):
    held, _ = finish("failed", 200), finish("failed", 100)
    wait_for(redis, held, ["child"])
    retention = Retention(client.connections, {"video": {"failed": Keep(50)}})

    assert retention.count().total() == 1


def test_members_of_a_group_stay_until_they_were_collected_and_no_longer_than_it_has_said(
    client, queue, finish, cli
):
    for name, hold in (("until", "until_collected"), ("hour", "1h")):
        queue.enqueue_many([name], keys=[name], group=name, hold=hold)
    held, gone = [finish(ago=100) for _ in range(2)], finish(ago=90)
    rules = {"video": {"complete": Keep(50)}}
    while settle_groups_step(client.connections, time.time()):
        pass  # the groups note that they have ended

    assert Retention(client.connections, rules).count().total() == 1
    Retention(client.connections, rules).delete_all()
    assert left(cli) == held[::-1] and client.get_task(gone).status is None

    cli.hset(keys.group("hour"), "hold", time.time() - 1)
    Retention(client.connections, rules).delete_all()
    assert left(cli) == held[:1]
    assert client.group("until").collected()
    Retention(client.connections, rules).delete_all()
    assert left(cli) == []
