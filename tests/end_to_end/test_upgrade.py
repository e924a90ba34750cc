"""What an older snapshot of Blueque 2 has left in Redis goes on, or is refused in one sentence.

older_snapshot.json has the keys as that snapshot wrote them: their type, time to live and value.
Its tasks have the names by which the tests know them. Its listeners were of a host that is gone.
"""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest
from running import until

import blueque
from blueque import WrongGroup
from blueque.audit.audit import audit
from blueque.model import keys

TAKEN = 1795974967  # when the snapshot wrote them
TEXT = (Path(__file__).parent / "older_snapshot.json").read_text()
TASKS = json.loads(TEXT)["tasks"]
WORK = """
    def run(task):
        return task.parameters
"""
BACKLOG = "".join(f'{{"frame": {number}}}\n' for number in range(1, 5))  # half of it was fed


@pytest.fixture(autouse=True)
def upgraded(cli):
    """Write all of it, as if it was of the day before yesterday: all times are later by whole days."""
    later = int((time.time() - TAKEN) // 86400 - 1) * 86400
    text = re.sub(r"(?<![\d.])1795\d{6}(?!\d)", lambda found: str(int(found[0]) + later), TEXT)
    write = {
        "hash": lambda key, value: cli.hset(key, mapping=value),
        "list": lambda key, value: cli.rpush(key, *value),
        # the ledger of a run has ids as bytes
        "set": lambda key, value: cli.sadd(
            key, *(id.encode(errors="surrogateescape") for id in value)
        ),
        "zset": lambda key, value: cli.zadd(key, dict(value)),
    }
    for key, (kind, lasts, value) in json.loads(text)["keys"].items():
        write[kind](key, value)
        if lasts:
            cli.expire(key, lasts)


def task(client, name):
    return client.get_task(TASKS[name])


def statuses(client, *names):
    return [task(client, name).status for name in names]


def complete(client, *names):
    """Wait until all of these have ended, and return whether all of them are complete."""
    ended = client.wait([TASKS[name] for name in names], timeout=30)
    return [each.status for each in ended] == ["complete"] * len(names)


def test_no_key_is_unknown(client, cli):
    cli.sadd("blueque_bounded", "video")  # it was there if a queue had a `max_pending`

    assert "unknown_key" not in {finding.code for finding in audit(client.connections)}


def test_all_tasks_are_found_as_they_were(client):
    for name in ("complete", "failed", "cancelled"):
        assert task(client, name).status == name
    assert statuses(client, "later", "due", "child", "album") == ["scheduled"] * 2 + ["blocked"] * 2
    assert statuses(client, "keyed", "urgent", "locked", "fog") == ["pending"] * 4
    assert statuses(client, "running", "doomed") == ["started"] * 2
    first, failed = task(client, "complete"), task(client, "failed")
    assert (first.parameters, first.result, first.title) == ({"n": 1}, {"sum": 2}, "one")
    assert (failed.error, task(client, "cancelled").cancelled_by) == ("no such film", "ann")
    events = [event.event for event in client.get_history(TASKS["complete"]).events]
    assert events == ["enqueued", "reserved", "started", "complete"]


def test_waiting_tasks_run_to_their_end(programs, client):
    programs.scheduler()
    programs.listener("work:run", "paused", "--resource", "gpu=1", queue="work")

    assert complete(client, "parent", "child", "keyed", "urgent", "locked", "due")
    assert statuses(client, "later", "paused") == ["scheduled", "pending"]
    client.get_queue("paused").resume()
    assert complete(client, "paused")
    assert client.get_queue("work").enqueue("keyed", key="k1") == TASKS["keyed"]


def test_a_running_task_is_lost_with_its_listener_and_requeued(programs, client):
    programs.scheduler()
    programs.listener("work:run", queue="run")

    lost = client.wait(TASKS["running"], timeout=30)
    assert (lost.status, lost.fields["error_type"]) == ("failed", "lost")
    client.get_queue("run").requeue(TASKS["running"])
    assert complete(client, "running")


def test_ended_tasks_are_requeued_and_deleted(programs, client):
    work = client.get_queue("work")
    for name in ("failed", "cancelled"):
        work.requeue(TASKS[name])
    work.delete_task(task(client, "complete"))
    programs.listener("work:run", "--resource", "gpu=1")

    assert complete(client, "failed", "cancelled")
    assert task(client, "complete").status is None


def test_an_open_group_takes_tasks_and_ends_when_it_is_closed(programs, client):
    winter, photos = client.group("winter"), client.get_queue("photos")
    TASKS["hail"] = photos.enqueue("hail", group="winter")
    photos.enqueue_many(["sleet"], group="winter")
    with pytest.raises(WrongGroup, match="make the others with that version, or without keys"):
        photos.enqueue_many(["ice"], keys=["ice"], group="winter")
    assert winter.progress().members == 5
    assert [each.parameters for each in winter.tasks()] == ["ice", "snow", "fog", "hail", "sleet"]
    with pytest.raises(WrongGroup):
        winter.close(expected=6)

    programs.scheduler()
    programs.listener("work:run", "albums", queue="photos")
    assert complete(client, "fog", "hail", "rain", "album2")
    assert statuses(client, "album") == ["blocked"]
    until(lambda: winter.progress().bad == 1, what="the end of snow is known")
    assert winter.requeue() == [TASKS["snow"]]
    assert complete(client, "snow")
    until(lambda: winter.progress().complete == 5, what="the new end of snow is known")
    winter.close(expected=5)
    assert complete(client, "album")
    until(lambda: winter.progress().state == "ended", what="the end of the group")
    assert winter.progress().bad == 0
    assert winter.delete()
    assert {finding.queue for finding in audit(client.connections)}.isdisjoint({"photos", "albums"})


def test_a_closed_group_ends_and_is_cancelled(programs, client):
    client.group("spring").cancel(by="ann")
    programs.scheduler()

    until(lambda: client.group("spring").progress().state == "ended", what="the end of spring")
    until(lambda: client.group("autumn").progress().state == "ended", what="the end of autumn")
    assert statuses(client, "rain", "leaf") == ["cancelled", "complete"]


@pytest.mark.parametrize(
    ("run", "why"),
    [
        (
            "2026-11-21",
            "has begun a run of this name for queue 'rows': end it with that version first",
        ),
        ("grouped", "has begun a run of this name"),
        ("all-at-once", "has begun a run of this name"),
        (
            "done",
            "has made a run of this name for queue 'rows', whose keys do not count here: take",
        ),
    ],
)
def test_a_run_is_refused_as_a_group_and_says_how_to_go_on(client, cli, run, why):
    before = cli.keys("*")

    with pytest.raises(WrongGroup, match=f"an earlier version of Blueque {why}"):
        client.get_queue("rows").enqueue_many(["a", "e"], keys=["a", "e"], group=run)

    assert sorted(cli.keys("*")) == sorted(before)


def test_tasks_of_runs_are_run_and_those_that_are_held_back_stay_so(programs, client, cli):
    ids = cli.zrange(keys.tasks("rows"), 0, -1)
    in_line = cli.lrange(keys.line("rows", "0"), 0, -1)
    assert in_line
    programs.listener("work:run", queue="rows")

    assert {each.status for each in client.wait(in_line, timeout=30)} == {"complete"}
    codes = {finding.code for finding in audit(client.connections)}
    assert "missing" not in codes  # or a repair would put the others in line
    held = [task for task in ids if task not in in_line]
    assert {client.get_task(task).status for task in held} <= {"pending", "complete"}


def test_a_feed_goes_on_after_the_rows_that_it_has_fed(client, cli, tmp_path):
    (tmp_path / "part-1.jsonl").write_text(BACKLOG)

    outcome = blueque.feed(tmp_path / "part-1.jsonl", "frames", name="movie", client=client)

    assert (outcome.is_finished, outcome.rows) == (True, 4)
    line = cli.lrange(keys.line("frames", "0"), 0, -1)[::-1]
    assert [client.get_task(each).parameters["frame"] for each in line] == [1, 2, 3, 4]


def test_schedules_go_on(programs, client):
    programs.scheduler()
    programs.listener("work:run", "cron", "cron2", "cron3", queue="replaced")

    for name in ("hourly", "failing"):
        until(lambda name=name: client.get_schedule(name).refresh().record.get("current"))
    # The one before was to be cancelled. Now the other one only waits until it has ended.
    assert client.get_schedule("replacing").definition.overlap == "queue"
    assert client.wait(TASKS["doomed"], timeout=30).fields["error_type"] == "lost"
    assert complete(client, "pending in the place of doomed")
    stopped = client.get_schedule("stopped")
    assert stopped.is_paused and "current" not in stopped.record
    stopped.resume(catch_up=True)
    until(lambda: stopped.refresh().record.get("current"), what="a task of stopped")
