"""Readers that travel together."""

from __future__ import annotations

import pytest
from faults import FaultProxy

from blueque import Client
from blueque.queries.steps import answer, begin, finish, in_step, of_each, read


def path(key, steps):
    """Read keys, each of which is named by the value of the one before."""
    found = [key]
    for _ in range(steps):
        (key,) = yield [("GET", key)]
        found.append(key)
    return found


def nothing_first(key):
    assert (yield []) == []
    return (yield [("GET", key)])


@pytest.fixture
def named(cli):
    cli.mset({"a": "b", "b": "c", "c": "d"})


@pytest.mark.usefixtures("named")
def test_readers_of_different_lengths_share_their_round_trips(server):
    proxy = FaultProxy(server.url)
    client = Client(proxy.url)
    every = of_each({steps: path("a", steps) for steps in (3, 0, 1)})

    found, at_once, fixed, first = read(
        client.connections, in_step(every, path("b", 2), answer("x"), nothing_first("c"))
    )

    assert found == {3: ["a", "b", "c", "d"], 0: ["a"], 1: ["a", "b"]}
    assert [*found] == [3, 0, 1]
    assert (at_once, fixed, first) == (["b", "c", "d"], "x", ["d"])
    assert proxy.writes == 3
    client.close()
    proxy.close()


def test_without_commands_nothing_is_sent(server):
    proxy = FaultProxy(server.url)
    client = Client(proxy.url)

    assert read(client.connections, in_step(answer(1), of_each({}))) == (1, {})
    assert proxy.writes == 0
    client.close()
    proxy.close()


def test_a_caller_may_send_the_commands_of_a_reader_itself():
    reader = path("a", 1)

    assert [*begin(reader)] == [("GET", "a")]
    assert finish(reader, ["b"]) == ["a", "b"]
    reader = path("a", 2)
    begin(reader)
    with pytest.raises(TypeError):
        finish(reader, ["b"])
