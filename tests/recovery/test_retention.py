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
from blueque.producer.dependents import is_awaited
from blueque.protocol.archiving import BatchRef
from blueque.protocol.pruning import FinishedTask
from blueque.queries import finished as ended
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


def test_what_has_been_kept_long_enough_goes_and_the_rest_stays(client, finish, cli, everything):
    old, young = finish(ago=100), finish(ago=10)
    assert Retention(client.connections, {"video": {"complete": Keep(50)}}).step() is False
    assert left(cli) == [young]
    named = [key for key, value in everything().items() if old in key or old in str(value)]
    assert named == ["blueque_events_video"], "nothing else is left of it"
    assert cli.zscore("blueque_tasks_video", old) is None


def test_each_status_of_each_queue_has_its_own_age(client, finish, cli, queue):
    failed, complete, other = finish("failed", 100), finish(ago=100), finish(ago=100, queue="audio")
    cancelled = queue.enqueue("in")
    queue.cancel(cancelled)
    rules = {
        "video": {"failed": Keep(200), "complete": Keep(50), "cancelled": Keep(0.001)},
        "audio": {"failed": Keep(1)},
    }
    time.sleep(0.01)
    Retention(client.connections, rules).step()
    assert (left(cli, "failed"), left(cli), left(cli, queue="audio")) == ([failed], [], [other])
    assert left(cli, "cancelled") == [], "at the time when it was cancelled"
    assert client.get_task(complete).status is None


def test_a_few_are_deleted_at_a_time_and_it_says_that_there_are_more(
    client, finish, cli, monkeypatch
):
    monkeypatch.setattr("blueque.recovery.retention.PRUNED_AT_ONCE", 4)
    ids = [finish(ago=100) for _ in range(7)]
    retention = Retention(client.connections, {"video": {"complete": Keep(50)}})
    assert retention.step() is True
    assert left(cli) == ids[:3:-1]
    assert retention.step() is True
    assert left(cli) == []
    assert retention.step() is False


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


def test_a_task_that_is_put_in_line_again_between_the_look_and_the_deletion_stays(
    client, finish, other, overtaken
):
    failed = finish("failed", 100)
    overtaken(lambda: protocol.requeue(other, "video", failed, "a mark", time.time()))
    Retention(client.connections, {"video": {"failed": Keep(50)}}).step()
    assert client.get_task(failed).status == "pending"


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


def test_a_clock_that_is_wrong_here_deletes_nothing(client, finish, cli, monkeypatch):
    young = finish()
    monkeypatch.setattr("time.time", lambda now=time.time: now() + 10**9)
    Retention(client.connections, {"video": {"complete": Keep(50)}}).step()
    assert left(cli) == [young]


def test_a_key_of_a_deleted_task_still_counts(client, queue):
    task_id = queue.enqueue("in", key="a key", keep="1h")
    queue.cancel(task_id)
    time.sleep(0.01)
    Retention(client.connections, {"video": {"cancelled": Keep(0.001)}}).step()
    assert client.get_task(task_id).status is None
    assert queue.enqueue("in", key="a key").is_new is False


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


def test_of_too_many_the_oldest_go_however_young_they_are(client, finish, cli):
    ids = [finish() for _ in range(5)]
    retention = Retention(client.connections, {"video": {"complete": Keep(newest=3)}})
    assert retention.step() is False
    assert left(cli) == ids[:1:-1]
    finish("failed")
    assert retention.step() is False
    assert left(cli) == ids[:1:-1], "those of another status do not count"


def test_a_task_goes_for_whichever_reason_comes_first(client, finish, cli):
    finish(ago=100)
    first, second = finish(ago=10), finish()
    retention = Retention(client.connections, {"video": {"complete": Keep(50, 3)}})
    retention.step()
    assert left(cli) == [second, first]
    third, fourth = finish(), finish()
    retention.step()
    assert left(cli) == [fourth, third, second]


def test_without_a_word_from_anybody_what_is_old_goes_after_a_week_and_failures_after_a_quarter(
    client, finish, cli
):
    week, day = 7 * 86400, 86400
    gone = [finish(ago=week + day), finish("failed", 91 * day)]
    stay = [finish(ago=week - day), finish("failed", 89 * day)]
    Retention(client.connections, client.retention_rules(["video"])).step()
    assert [client.get_task(one).status for one in gone] == [None, None]
    assert [client.get_task(one).status for one in stay] == ["complete", "failed"]


def test_nothing_goes_while_a_batch_is_on_its_way_into_an_archive(client, redis, finish, cli):
    old = finish(ago=100)
    retention = Retention(client.connections, {"video": {"complete": Keep(50)}})
    protocol.claim_batch(redis, BatchRef("video", "b1", "w"), {}, {}, 1.0)
    retention.step()
    assert left(cli) == [old]
    protocol.mark_batch(redis, BatchRef("video", "b1", "w"), "deleted", {}, 2.0)
    protocol.mark_batch(redis, BatchRef("video", "b1", "w"), "closed", None, 2.0)
    retention.step()
    assert left(cli) == []


def test_a_batch_that_is_opened_between_the_look_and_the_deletion_keeps_its_tasks(
    client, finish, cli, other, overtaken
):
    old = finish(ago=100)
    overtaken(lambda: protocol.claim_batch(other, BatchRef("video", "b1", "w"), {}, {}, 1.0))
    Retention(client.connections, {"video": {"complete": Keep(50)}}).step()
    assert left(cli) == [old]


def test_a_task_that_has_ended_again_since_it_was_seen_stays(redis, finish, cli):
    task = finish(ago=100)
    ended = float(cli.hget(keys.task(task), "updated"))
    assert protocol.prune(redis, "video", "complete", [FinishedTask(task, ended - 1)]) == 0
    assert protocol.prune(redis, "video", "failed", [FinishedTask(task, ended)]) == 0
    assert protocol.prune(redis, "audio", "complete", [FinishedTask(task, ended)]) == 0
    assert protocol.prune(redis, "video", "complete", [FinishedTask(task, ended)]) == 1
    assert protocol.prune(redis, "video", "complete", [FinishedTask(task, ended)]) == 0


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


def test_more_lists_than_one_step_looks_at_have_their_turns(client, finish, cli, monkeypatch):
    monkeypatch.setattr("blueque.recovery.retention.LISTS_AT_ONCE", 1)
    finish(ago=100), finish(ago=100, queue="audio")
    retention = Retention(
        client.connections, {name: {"complete": Keep(50)} for name in ("audio", "video")}
    )
    retention.step()
    assert len(left(cli)) + len(left(cli, queue="audio")) == 1
    retention.step()
    assert len(left(cli)) + len(left(cli, queue="audio")) == 0


def test_of_a_lot_it_says_how_much_it_was_at_the_beginning_and_at_the_end(
    client, finish, monkeypatch, caplog
):
    caplog.set_level("INFO", "blueque")
    monkeypatch.setattr("blueque.recovery.retention.PRUNED_AT_ONCE", 1)
    for _ in range(5):
        finish(ago=100)
    finish()
    retention = Retention(client.connections, {"video": {"complete": Keep(50)}})
    while retention.step():
        pass
    said = [
        record.getMessage() for record in caplog.records if record.getMessage().startswith("prune ")
    ]
    assert [line.partition("tasks=")[2].partition(":")[0] for line in said] == ["1", "4"]


# How many


def test_one_that_has_counted_before_another_deleted_does_not_go_below_what_is_to_stay(
    client, finish, cli, monkeypatch
):
    ids = [finish(ago=100) for _ in range(8)]
    rule = {"video": {"complete": Keep(newest=4)}}
    first, second = Retention(client.connections, rule), Retention(client.connections, rule)
    count = ended.stock

    def count_and_be_overtaken(*arguments):
        counted = count(*arguments)
        monkeypatch.setattr(ended, "stock", count)
        first.step()
        return counted

    monkeypatch.setattr(ended, "stock", count_and_be_overtaken)
    second.step()
    assert left(cli) == ids[:3:-1]


def test_of_two_that_have_both_counted_one_looks_again(client, finish, cli, other, overtaken):
    ids = [finish(ago=100) for _ in range(8)]
    seen = [FinishedTask(one, float(cli.hget(keys.task(one), "updated"))) for one in ids]
    # The other one knows of more of them.
    overtaken(lambda: protocol.prune(other, "video", "complete", seen[:6], 4))
    assert protocol.prune(client.connections, "video", "complete", seen, 4) == 0
    assert left(cli) == ids[:3:-1]


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


# Since when


def test_what_is_reported_late_is_not_old_at_once(client, queue, cli):
    task_id = queue.enqueue("in")
    task = client.get_listener("video").listen()
    processor = client.get_processor(task)
    processor.start(1)
    # Redis was away for more than a week when it ended, or the clock of the node is behind.
    processor.report({"status": "complete", "result": "out", "finished": time.time() - 8 * 86400})
    Retention(client.connections, client.retention_rules(["video"])).step()
    assert client.get_task(task_id).result == "out"


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


def test_a_task_goes_at_once_when_those_that_have_waited_for_it_are_gone_or_have_begun(
    client, redis, finish, cli, everything
):
    held = finish("failed", 200)
    wait_for(redis, held, ["cancelled", "freed"])
    for child in ("cancelled", "freed"):
        protocol.cancel(redis, "later", child, "me", None, time.time())
    protocol.delete(redis, "later", "cancelled")
    protocol.requeue(redis, "later", "freed", "a mark", time.time())
    protocol.unblock(redis, "later", "freed", time.time(), "me")
    cli.delete(keys.UNSETTLED_TASKS)

    Retention(client.connections, {"video": {"failed": Keep(50)}}).step()

    assert left(cli, "failed") == []
    named = [key for key, value in everything().items() if held in key]
    assert named == []


def test_a_task_is_asked_again_for_those_that_wait_for_it_after_an_hour(
    client, redis, finish, cli, monkeypatch
):
    held = finish("failed", 9 * 3600)
    wait_for(redis, held, ["child"])
    retention = Retention(client.connections, {"video": {"failed": Keep(2 * 3600)}})
    while retention.step():
        pass
    protocol.cancel(redis, "later", "child", "me", None, time.time())
    protocol.delete(redis, "later", "child")
    assert retention.step() is False
    assert left(cli, "failed") == [held]

    monkeypatch.setattr("time.monotonic", lambda now=time.monotonic: now() + 3601)
    later = ended.stock
    monkeypatch.setattr(
        ended, "stock", lambda *arguments: later(*arguments)._replace(now=time.time() + 3601)
    )
    retention.step()

    assert left(cli, "failed") == []


def test_of_many_for_which_others_wait_a_few_are_asked_in_each_step(
    client, redis, finish, cli, monkeypatch
):
    monkeypatch.setattr("blueque.recovery.retention.AWAITED_AT_ONCE", 2)
    held = [finish("failed", 300 - number) for number in range(5)]
    for task in held:
        wait_for(redis, task, [f"child of {task}"])
    gone = finish("failed", 100)
    asked = []
    monkeypatch.setattr(
        "blueque.recovery.retention.is_awaited",
        lambda redis, task, *rest: asked.append(task) or is_awaited(redis, task, *rest),
    )
    retention = Retention(client.connections, {"video": {"failed": Keep(50)}})
    counts = []
    while retention.step():
        counts.append(len(asked))

    assert counts[:2] == [2, 4]
    assert asked == held, "each of them once"
    assert left(cli, "failed") == held[::-1]
    assert client.get_task(gone).status is None


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
