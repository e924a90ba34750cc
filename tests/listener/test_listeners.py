"""blueque.listener.listeners: orders for listeners, wherever they are."""

from __future__ import annotations

import os
import time

import pytest
from transactions import protocol

from blueque import Client
from blueque.model.units import Timing
from blueque.system.process import host_name

GPU = "gpu-1.example.com"


@pytest.fixture
def listeners(client):
    return client.get_listeners()


def register(redis, node, queue="video", beat_every=10, now=None, **facts):
    protocol.register(
        redis, queue, node, f"i-{node}", {"beat_every": beat_every, **facts}, now or time.time()
    )


def orders(cli):
    """Return what each registration says, and which markers there are."""
    registrations = {
        key: cli.hmget(key, "order", "order_by") for key in cli.keys("blueque_listener_*")
    }
    return {key: order for key, order in registrations.items() if order[0]}, sorted(
        cli.keys("blueque_orders_*")
    )


def ids(nodes):
    return [(node.queue, node.id) for node in nodes]


def test_drain_tells_one_listener_and_no_other(redis, cli, listeners):
    register(redis, f"{GPU}_1")
    register(redis, f"{GPU}_2")

    told, not_told = listeners.drain(f"{GPU}_1", "ada")

    assert (ids(told), not_told) == ([("video", f"{GPU}_1")], [])
    assert orders(cli) == (
        {f"blueque_listener_video_{GPU}_1": ["drain", "ada"]},
        [f"blueque_orders_video_{GPU}_1"],
    )


def test_drain_tells_all_listeners_of_a_host_over_all_queues(redis, cli, listeners):
    register(redis, f"{GPU}_1", boot="b1")
    register(redis, f"{GPU}_2", "audio", boot="b1")
    register(redis, f"{GPU}-0a1b2c_1", boot="b1")
    register(redis, "gpu-2.example.com_1", boot="b2")

    told, not_told = listeners.drain(GPU)

    assert (ids(told), not_told) == (
        [("audio", f"{GPU}_2"), ("video", f"{GPU}_1"), ("video", f"{GPU}-0a1b2c_1")],
        [],
    )
    assert len(orders(cli)[0]) == len(orders(cli)[1]) == 3


def test_who_drains_is_this_user_at_this_host_unless_said(redis, cli, listeners):
    register(redis, f"{GPU}_1")

    listeners.drain(GPU)

    ((_, by),) = orders(cli)[0].values()
    assert by.endswith(f"@{host_name()}")
    assert len(by) > len(host_name()) + 1


def test_those_that_cannot_be_told_are_named_and_nothing_is_written_for_them(
    redis, cli, listeners, state
):
    register(redis, f"{GPU}_1")
    protocol.fence(redis, "video", f"{GPU}_1", f"i-{GPU}_1", "0", 9.25)
    register(redis, f"{GPU}_2", beat_every=0)
    cli.sadd("blueque_listeners_video", f"{GPU}_3")
    before = state()

    told, not_told = listeners.drain(GPU, "ada")

    assert (told, [(node.id, node.state) for node in not_told]) == (
        [],
        [(f"{GPU}_1", "dead"), (f"{GPU}_2", "unattended"), (f"{GPU}_3", "1.0.0")],
    )
    assert state() == before


def test_a_silent_listener_is_told_for_it_may_wake_up(redis, listeners):
    register(redis, f"{GPU}_1", now=time.time() - 500)

    told, _ = listeners.drain(GPU)

    assert [node.state for node in told] == ["silent"]


def test_drain_of_nobody_tells_nobody(redis, listeners):
    register(redis, f"{GPU}_1")

    assert listeners.drain("gpu-9") == ([], [])


def test_drain_twice_is_drain_once(redis, cli, listeners):
    register(redis, f"{GPU}_1")
    listeners.drain(GPU, "ada")
    before = orders(cli)

    told, not_told = listeners.drain(GPU, "bob")

    assert (len(told), len(not_told), orders(cli)) == (1, 0, before)


def test_a_listener_obeys_at_its_next_beat(url, listeners):
    other = Client(url)
    listener = other.get_listener("video")
    listener.register(Timing())
    assert listener.beat().order is None

    listeners.drain(f"{host_name()}_{os.getpid()}")

    assert listener.beat().order == "drain"
    other.close()
