"""Tasks that must start by a time, as the verbs make and show them."""

from __future__ import annotations

import json
import time

import pytest
from transactions import protocol

from blueque.recovery.expiry import Expiry


def make_late(redis, task, **options):
    given = {"start_before": time.time() - 60, "parameters_encoding": "json", **options}
    protocol.enqueue(redis, "video", task, "1", time.time() - 100, given)


def test_enqueue_makes_a_task_that_must_start_by_a_time(run, client):
    first = run("enqueue", "video", "1", "--start-within", "2h").stdout.strip()
    second = run(
        *("enqueue", "video", "1", "--start-before", "2100-01-01T00:00Z", "--expired-to", "late")
    ).stdout.strip()

    assert client.get_task(first).start_before == pytest.approx(time.time() + 7200, abs=60)
    task = client.get_task(second)
    assert (task.start_before, task.expired_to) == (4102444800.0, "late")


def test_show_and_why_say_until_when_it_must_start(run, client):
    queue = client.get_queue("video")
    task = queue.enqueue("in", start_within="2h")
    moving = queue.enqueue("in", start_within="2h", expired_to="late")

    shown, moved = run("show", task).stdout, run("show", moving).stdout
    why, why_moving = run("why", task).stdout, run("why", moving).stdout

    assert "expires  " in shown and "in 1 h 59 m)" in shown
    assert "; moves to late then" in moved
    assert "It is cancelled if it has not started before " in " ".join(why.split())
    assert "It moves to late if it has not started before " in " ".join(why_moving.split())


def test_what_has_expired_is_named_by_why_status_and_stats(run, redis, client):
    make_late(redis, "t-1")
    assert "within a minute." in " ".join(run("why", "t-1").stdout.split())
    Expiry(redis).step()

    why, status = run("why", "t-1"), run("status")
    (queue,) = json.loads(run("status", "--json").stdout)["queues"]

    assert "It expired: it had not started in time." in why.stdout
    assert "1 task expired today (UTC): not started in time" in status.stdout
    assert queue["expired"] == 1
    assert run("ls", "--state", "cancelled").stdout.splitlines()[1].endswith("  expired")
    assert "expired 1" in run("stats", "video").stdout
    assert json.loads(run("stats", "video", "--json").stdout)["items"][0]["expired"] == 1
