"""blueque.listener.listeners: orders for listeners, wherever they are."""

from __future__ import annotations

import time

import pytest
from transactions import protocol

GPU = "gpu-1.example.com"


@pytest.fixture
def listeners(client):
    return client.get_listeners()


def register(redis, node, queue="video", beat_every=10, now=None, **facts):
    protocol.register(
        redis, queue, node, f"i-{node}", {"beat_every": beat_every, **facts}, now or time.time()
    )


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
