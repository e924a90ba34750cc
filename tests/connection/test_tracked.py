"""Tracked: reads that hold until Redis reports a change."""

from __future__ import annotations

import pytest

from blueque import RedisRefused
from blueque.connection.tracked import Tracked

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


def test_an_error_is_a_value_and_asked_for_again(read, cli):
    cli.set("c", "of another program")
    for _ in range(2):
        (reply,), sent = read(OTHER)
        assert isinstance(reply, RedisRefused) and sent == {"llen"}
