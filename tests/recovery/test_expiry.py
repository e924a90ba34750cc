"""Tasks that have not started in time: any listener or scheduler ends them, and none starts them."""

from __future__ import annotations

import time

import pytest
from transactions import protocol

from blueque.errors import RedisRefused
from blueque.listener.listener import Listener
from blueque.model import keys
from blueque.model.queue_settings import pausing
from blueque.model.units import Timing
from blueque.recovery.expiry import EVERY, EXPIRED_AT_ONCE, SOON, Expiry


def make_late(redis, task, queue="video", **options):
    """Make a task that had to start long ago."""
    protocol.enqueue(redis, queue, task, "in", 1.0, {"start_before": 5.0, **options})


def listed(redis):
    return redis.read(("ZRANGE", keys.EXPIRING, 0, -1))[0]


def test_nothing_to_do_is_looked_at_again_in_a_minute_or_when_the_next_is_due(redis):
    assert Expiry(redis).step() == EVERY
    in_time = {"start_before": time.time() + 20}
    protocol.enqueue(redis, "video", "t1", "in", time.time(), in_time)

    assert Expiry(redis).step() == pytest.approx(20, abs=10)
    assert listed(redis) == ["t1"]


def test_late_tasks_of_all_queues_are_cancelled_or_moved(redis, client):
    make_late(redis, "t1")
    make_late(redis, "t2", queue="audio", expired_to="late")

    Expiry(redis).step()

    first, second = client.get_task("t1"), client.get_task("t2")
    assert (first.status, first.cancelled_by) == ("cancelled", "blueque")
    assert (first.cancel_reason, first.attempt) == ("expired", None)
    assert (second.status, second.queue, second.start_before) == ("pending", "late", None)
    assert redis.read(("LRANGE", keys.pending("late"), 0, -1))[0] == ["t2"]
    assert redis.read(("LLEN", keys.pending("video")), ("LLEN", keys.pending("audio"))) == [0, 0]
    assert listed(redis) == []
    video = client.get_statistics("video")
    audio = client.get_statistics("audio")
    assert (video.total.cancelled, video.total.expired) == (1, 1)
    assert (audio.total.cancelled, audio.total.expired) == (0, 1)
    moved = client.get_history("t2").events[-1]
    assert (moved.event, moved.by) == ("moved", "blueque")
    assert moved.facts == {"from": "audio", "reason": "expired"}


def hurry(monkeypatch):
    """Set the clock of this process an hour ahead."""
    monkeypatch.setattr(time, "time", lambda now=time.time: now() + 3600)


def test_a_clock_that_is_an_hour_ahead_ends_no_task_of_others(redis, client, monkeypatch):
    task = client.get_queue("video").enqueue("in", start_within=1200)
    hurry(monkeypatch)

    assert Expiry(redis).step() == EVERY
    assert client.get_task(task).status == "pending"


def test_a_listener_whose_clock_is_an_hour_ahead_takes_what_is_in_time(redis, client, monkeypatch):
    make_late(redis, "t1")
    task = client.get_queue("video").enqueue("in", start_within=1200)
    hurry(monkeypatch)
    listener = Listener(redis, ["video"])
    listener.register(Timing())

    taken = listener.take()

    assert (taken.id, taken.status) == (task, "reserved")
    assert client.get_task("t1").status == "cancelled"


def test_who_waits_for_an_expired_task_is_told(redis, client):
    make_late(redis, "t1")
    child = client.get_queue("video").enqueue("in", after="t1", broken="cancel")

    Expiry(redis).step()

    assert client.get_task(child).status == "cancelled"


def test_a_listener_that_finds_one_ends_it_and_takes_the_next(redis, client):
    listener = Listener(redis, ["video"])
    listener.register(Timing())
    for number in range(3):
        make_late(redis, f"t{number}")
    make_late(redis, "t4", priority=5)
    good = client.get_queue("video").enqueue("in", start_within=60)

    task = listener.take()

    assert task is not None and task.id == good
    assert {client.get_task(f"t{number}").status for number in (0, 1, 2, 4)} == {"cancelled"}
    assert listed(redis) == [good]
    (held,) = redis.read(("LRANGE", keys.reserved("video", listener.node), 0, -1))
    assert held == [good]


def test_a_paused_queue_keeps_none_from_expiring_and_requeue_lets_it_start(redis, client):
    make_late(redis, "t1")
    protocol.set_settings(redis, "video", pausing("ann", None, 2.0), 2.0, "ann")
    Expiry(redis).step()
    assert client.get_task("t1").status == "cancelled"

    client.get_queue("video").requeue("t1")
    Expiry(redis).step()

    assert (client.get_task("t1").status, client.get_task("t1").start_before) == ("pending", None)


def test_a_key_of_a_wrong_type_is_left_alone(redis):
    redis.read(("SET", keys.EXPIRING, "odd"))

    assert Expiry(redis).step() == EVERY


def test_a_refusal_that_concerns_no_key_is_raised(redis, cli):
    make_late(redis, "t1")
    cli.config_set("maxmemory", 1)
    try:
        with pytest.raises(RedisRefused, match="OOM"):
            Expiry(redis).step()
    finally:
        cli.config_set("maxmemory", 0)

    assert listed(redis) == ["t1"]


def test_a_step_that_leaves_late_tasks_is_followed_by_the_next_one_at_once(redis):
    for number in range(EXPIRED_AT_ONCE + 1):
        make_late(redis, f"t{number}")
    expiry = Expiry(redis)

    assert [expiry.step() for _ in range(3)] == [0.0, SOON, EVERY]
    assert listed(redis) == []
