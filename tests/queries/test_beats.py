"""blueque.queries.beats: what a judge reads when it looks often."""

from __future__ import annotations

import time

import pytest
import redis as redis_py
from running import until
from transactions import protocol

from blueque import Client, RedisRefused
from blueque.model import keys
from blueque.protocol.membership import Heartbeat
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


def test_a_queue_that_is_gone_is_forgotten(client, redis, cli):
    protocol.register(redis, "video", NODE, "i1", {"beat_every": 10}, time.time())
    scheduler = Scheduler(client)
    scheduler.step()
    judging = scheduler._judging
    assert {*judging._look_at} == {*judging._beats._seen} == {"video"}
    cli.zrem(keys.QUEUES, "video")

    until(lambda: scheduler.step() and not judging._look_at, what="video is gone")

    scheduler.close()
    assert not judging._beats._seen
