"""Recurring tasks with the real programs: scheduler, listeners, handlers."""

from __future__ import annotations

import signal

from running import until

from blueque.model import keys
from blueque.model.ids import id_of_occurrence

HANDLER = """
    import time

    def run(task):
        if task.parameters == "long":
            time.sleep(600)
        return [task.schedule, task.planned.isoformat(), str(task.planned.tzinfo)]
"""


def come_due(cli, name, ago=5):
    """Move the record so that its next planned time was a moment ago; return that time."""
    planned = int(cli.time()[0]) - ago
    cli.hset(
        keys.schedule(name),
        mapping={"start": planned, "last": planned - 1, "planned": planned, "at": planned},
    )
    cli.zadd(keys.SCHEDULES, {name: planned})
    return planned


def ended(client, name, planned):
    task = client.get_task(id_of_occurrence(name, planned))
    return task if task.status in ("complete", "failed", "cancelled") else None


def test_a_scheduler_sees_at_once_that_a_schedule_is_due(programs, client, cli):
    programs.write(HANDLER, "work.py")
    programs.listener("work:run", queue="reports")
    programs.scheduler()
    client.set_schedule("nightly", queue="reports", cron="30 2 * * *", timezone="Europe/Berlin")
    minute = int(cli.time()[0]) // 60 * 60
    cli.hset(
        keys.schedule("nightly"), mapping={"last": minute - 1, "planned": minute, "at": minute}
    )

    cli.zadd(keys.SCHEDULES, {"nightly": minute})

    until(lambda: ended(client, "nightly", minute), what="the task has ended")
    name, planned, zone = ended(client, "nightly", minute).result
    assert (name, zone) == ("nightly", "Europe/Berlin")
    assert planned.endswith(("+01:00", "+02:00"))


def test_a_listener_makes_the_tasks_of_its_queue_when_no_scheduler_runs(programs, client, cli):
    programs.write(HANDLER, "work.py")
    client.set_schedule("hourly", queue="reports", every="1h")
    client.set_schedule("other", queue="elsewhere", every="1h")
    programs.listener("work:run", "--beat", "0.2s", queue="reports")
    planned, other = come_due(cli, "hourly"), come_due(cli, "other")

    until(lambda: ended(client, "hourly", planned), what="the task has ended")

    assert client.get_task(id_of_occurrence("other", other)).status is None


def test_a_scheduler_that_is_killed_and_started_again_goes_on(programs, client, cli):
    programs.write(HANDLER, "work.py")
    programs.listener("work:run", "--beat", "60s", "--lease", "600s", queue="reports")
    client.set_schedule("hourly", queue="reports", every="1h")
    scheduler = programs.scheduler()
    first = come_due(cli, "hourly", ago=200)
    until(lambda: ended(client, "hourly", first), what="the first task has ended")
    scheduler.stop(signal.SIGKILL)
    planned = come_due(cli, "hourly")

    programs.scheduler()

    until(lambda: ended(client, "hourly", planned), what="the second task has ended")
    found = client.get_schedule("hourly").history()
    assert [(each.what, each.planned) for each in found] == [("made", planned), ("made", first)]


TABLE = '[schedules.{name}]\nqueue = "reports"\nevery = "{every}"\n'


def test_a_scheduler_applies_the_file_at_its_start_and_at_each_sighup(programs, client):
    toml = programs.directory / "blueque.toml"
    toml.write_text("[scheduler]\napply_schedules = true\n" + TABLE.format(name="a", every="1h"))
    scheduler = programs.scheduler()
    scheduler.says("applied the schedules of blueque.toml: 1 new")
    assert client.get_schedules() == ["a"]

    toml.write_text("[scheduler]\napply_schedules = true\n" + TABLE.format(name="a", every="5s"))
    scheduler.send_again(signal.SIGHUP)
    scheduler.says("nothing changes")
    assert "schedules.a.every: it must be from 10s to 366d" in scheduler.log

    toml.write_text("[scheduler]\napply_schedules = true\n" + TABLE.format(name="b", every="2h"))
    scheduler.send_again(signal.SIGHUP)
    scheduler.says("from an earlier file and not in blueque.toml: a; to remove them: ")
    assert f"blueque schedule apply --prune --config {toml}" in scheduler.log
    assert sorted(client.get_schedules()) == ["a", "b"]
    assert scheduler.stop() == 0


def test_a_scheduler_serves_on_if_a_schedule_of_the_file_was_made_by_hand(programs, client):
    client.set_schedule("a", queue="reports", every="3h")
    programs.write(TABLE.format(name="a", every="1h"), "blueque.toml")
    scheduler = programs.scheduler(environ={"BLUEQUE_APPLY_SCHEDULES": "1"})
    scheduler.says(
        "the schedules of blueque.toml are not applied: schedule 'a': it was made by hand"
    )
    task = client.get_queue("reports").schedule("x", 0)
    until(lambda: client.get_task(task).status == "pending", what="the task is in line")
    assert client.get_schedule("a").rule.every == 3 * 3600
    assert scheduler.stop() == 0


def test_a_scheduler_that_is_to_apply_a_file_does_not_start_without_one(programs):
    environ = {"BLUEQUE_APPLY_SCHEDULES": "1", "XDG_CONFIG_HOME": str(programs.directory)}
    scheduler = programs.scheduler(environ=environ)

    assert scheduler.wait() == 78
    assert "no blueque.toml was found, so there are no schedules to apply" in scheduler.log
