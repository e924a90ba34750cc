"""blueque.queries.beats: what a judge reads when it looks often."""

from __future__ import annotations

import time

import pytest
import redis as redis_py
from clock import Clock
from running import until
from transactions import protocol

from blueque import Client, RedisRefused
from blueque.connection import tracked
from blueque.connection.tracked import TRUSTED
from blueque.model import keys
from blueque.protocol.membership import Heartbeat
from blueque.queries import beats as module
from blueque.queries.beats import Beats
from blueque.scheduler import Scheduler

NODE = "host_1"


@pytest.fixture
def beats(client, redis):
    protocol.register(redis, "video", NODE, "i1", {"beat_every": 10}, 1.5)
    beats = Beats(client.connections.connect)
    yield beats
    beats.close()


@pytest.fixture
def look(beats, cli):
    """Look once, and return what was seen and which commands it took."""

    def look():
        cli.config_resetstat()
        seen = beats.observe(["video"])[0]
        sent = cli.info("commandstats")
        names = {name.removeprefix("cmdstat_"): sent[name]["calls"] for name in sent}
        asked = ("zadd", "zrange", "smembers")
        return seen, {name: names[name] for name in asked if name in names}

    return look


def beat(redis, beats, number):
    """Beat, and wait until Redis has reported it."""
    protocol.beat(redis, [Heartbeat("video", NODE, "i1", number)], 10.0 + number)
    assert beats._tracked._open().wait(10)


def test_a_look_takes_one_command_whether_a_listener_has_beaten_or_not(look, beats, redis):
    assert look() == (({NODE: 1.5}, {NODE}), {"zadd": 1, "zrange": 1, "smembers": 1})
    assert look() == (({NODE: 1.5}, {NODE}), {"zadd": 1})
    for number in (1, 2):
        beat(redis, beats, number)
        assert look() == (({NODE: 10.0 + number}, {NODE}), {"zrange": 1})
    assert look() == (({NODE: 12.0}, {NODE}), {"zadd": 1})


def test_a_listener_that_comes_is_seen(look, beats, redis):
    look()
    protocol.register(redis, "video", "host_2", "i2", {"beat_every": 10}, 3.5)

    until(
        lambda: look()[0] == ({NODE: 1.5, "host_2": 3.5}, {NODE, "host_2"}), what="it has seen both"
    )


def test_another_queue_is_another_look(look, beats, redis):
    look()
    protocol.register(redis, "audio", "host_2", "i2", {"beat_every": 10}, 3.5)

    assert beats.observe(["audio"])[0] == ({"host_2": 3.5}, {"host_2"})
    assert beats.observe(["none"])[0] == ({}, set())


def test_a_look_fails_while_redis_takes_no_writes(own_server):
    client = Client(own_server.url)
    protocol.register(client.connections, "video", NODE, "i1", {"beat_every": 10}, 1.5)
    beats = Beats(client.connections.connect)
    beats.observe(["video"])[0]
    with redis_py.Redis(port=own_server.port) as admin:
        admin.config_set("min-replicas-to-write", 1)

    with pytest.raises(RedisRefused):
        beats.observe(["video"])[0]

    client.close()


def test_all_is_read_again_on_a_new_connection_after_a_minute_and_after_a_flush(
    look, beats, cli, monkeypatch
):
    everything = {"zadd": 1, "zrange": 1, "smembers": 1}
    look()
    beats.close()
    assert look()[1] == everything
    clock = Clock()
    clock.sleep(TRUSTED)
    monkeypatch.setattr(tracked, "time", clock)
    assert look()[1] == everything
    cli.flushall()
    until(lambda: look()[0] == ({}, set()), what="it has seen that all is gone")


def test_it_reads_everything_where_redis_does_not_report_changes(client, redis, url):
    protocol.register(redis, "video", NODE, "i1", {"beat_every": 10}, 1.5)
    with redis_py.Redis.from_url(url) as ready:
        polling = Client(redis=ready)
        beats = Beats(polling.connections.connect)
        assert beats.observe(["video"])[0] == ({NODE: 1.5}, {NODE})
        redis.read(("SREM", keys.listeners("video"), NODE))
        assert beats.observe(["video"])[0] == ({NODE: 1.5}, set())
        beats.close()
        polling.close()


@pytest.mark.parametrize(
    "command",
    [
        ("ZADD", keys.nodes("q3"), 1, NODE),
        ("SADD", keys.listeners("q3"), NODE),
        ("SADD", keys.started("q3"), f"{NODE} 77 t1"),
        ("SET", keys.nodes("q3"), "of another program"),
    ],
    ids=lambda command: command[1],
)
def test_queues_with_anything_to_judge_are_found_among_many(client, cli, monkeypatch, command):
    monkeypatch.setattr(module, "QUEUES_AT_ONCE", 2)
    beats = Beats(client.connections.connect)
    queues = [f"q{number}" for number in range(5)]
    cli.rpush(keys.pending("q0"), "t1")
    cli.config_resetstat()
    assert beats.with_listeners(queues) == set()
    assert cli.info("commandstats")["cmdstat_exists"]["calls"] == 3
    cli.execute_command(*command)

    assert beats.with_listeners(queues) == {"q3"}
    assert beats.with_listeners([]) == set()
    beats.close()


def test_a_listener_of_a_queue_that_had_none_is_judged(client, redis, cli):
    cli.zadd(keys.QUEUES, {"video": 0, "audio": 0})
    scheduler = Scheduler(client)
    scheduler.step()
    assert scheduler._judging.observed == set()
    protocol.register(redis, "video", NODE, "i1", {"beat_every": 10}, time.time())

    until(lambda: scheduler.step() and scheduler._judging.observed, what="the look at video")

    scheduler.close()
    assert scheduler._judging.observed == {"video"}


def test_a_queue_that_is_gone_is_forgotten(client, redis, cli):
    protocol.register(redis, "video", NODE, "i1", {"beat_every": 10}, time.time())
    scheduler = Scheduler(client)
    scheduler.step()
    assert {*scheduler._judging._look_at} == {*scheduler._judging._beats._seen} == {"video"}
    cli.zrem(keys.QUEUES, "video")

    until(lambda: scheduler.step() and not scheduler._judging._look_at, what="video is gone")

    scheduler.close()
    assert not scheduler._judging._beats._seen


def test_an_idle_scheduler_sends_one_command_from_beat_to_beat(client, redis, cli):
    protocol.register(redis, "video", NODE, "i1", {"beat_every": 10}, time.time())
    scheduler = Scheduler(client)
    scheduler.step()
    scheduler._judging._look_at["video"] = 0.0
    beat(redis, scheduler._judging._beats, 1)
    cli.config_resetstat()

    scheduler.step()

    sent = {name: its["calls"] for name, its in cli.info("commandstats").items()}
    scheduler.close()
    assert {name: sent[name] for name in sent if "config" not in name} == {"cmdstat_zrange": 1}
