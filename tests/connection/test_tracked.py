"""Tracked: reads that hold until Redis reports a change."""

from __future__ import annotations

import pytest
import redis as redis_py
from clock import Clock

from blueque import Client, RedisRefused
from blueque.connection import tracked as module
from blueque.connection.tracked import TRUSTED, Tracked

FIRST, BOTH, OTHER = ("GET", "a"), ("EXISTS", "a", "b"), ("LLEN", "c")


@pytest.fixture
def tracked(client):
    tracked = Tracked(client.connections.connect)
    yield tracked
    tracked.close()


@pytest.fixture
def read(tracked, cli):
    """Read, and return the replies and the names of the commands that it took."""

    def read(*commands):
        cli.config_resetstat()
        replies = tracked.read(*commands)
        sent = {name.removeprefix("cmdstat_") for name in cli.info("commandstats")}
        return replies, sent & {"get", "exists", "llen"}

    return read


def test_what_was_read_is_asked_for_again_only_when_one_of_its_keys_has_changed(read, tracked, cli):
    cli.set("a", "one")
    assert read(FIRST, BOTH, OTHER) == (["one", 1, 0], {"get", "exists", "llen"})
    assert read(FIRST, BOTH, OTHER) == (["one", 1, 0], set())

    cli.set("b", "two")
    assert tracked._open().wait(10)
    assert read(FIRST, BOTH, OTHER) == (["one", 2, 0], {"exists"})
    assert read(FIRST, OTHER, BOTH) == (["one", 0, 2], set())

    cli.set("a", "three")
    assert tracked._open().wait(10)
    assert read(FIRST, BOTH, OTHER) == (["three", 2, 0], {"get", "exists"})


def test_all_is_read_again_on_a_new_connection_after_a_minute_and_after_a_flush(
    read, tracked, cli, monkeypatch
):
    cli.set("a", "one")
    everything = ["one", 1, 0], {"get", "exists", "llen"}
    assert read(FIRST, BOTH, OTHER) == everything
    tracked.close()
    assert read(FIRST, BOTH, OTHER) == everything
    clock = Clock()
    clock.sleep(TRUSTED)
    monkeypatch.setattr(module, "time", clock)
    assert read(FIRST, BOTH, OTHER) == everything
    cli.flushall()
    assert tracked._open().wait(10)
    assert read(FIRST, BOTH, OTHER) == ([None, 0, 0], {"get", "exists", "llen"})


def test_an_error_is_a_value_and_asked_for_again(read, cli):
    cli.set("c", "of another program")
    for _ in range(2):
        (reply,), sent = read(OTHER)
        assert isinstance(reply, RedisRefused) and sent == {"llen"}


def test_where_redis_does_not_report_changes_everything_is_asked_for(url, cli):
    with redis_py.Redis.from_url(url) as ready:
        client = Client(redis=ready)
        tracked = Tracked(client.connections.connect)
        assert tracked.read(FIRST) == [None] and not tracked.is_tracking
        cli.set("a", "one")
        assert tracked.read(FIRST) == ["one"] and tracked.changed() is None
        tracked.close()
        client.close()
