"""How many tasks queues have in each status."""

from __future__ import annotations

import time

import pytest
from asking import NODE
from transactions import protocol

from blueque.model.attempt_ref import AttemptRef
from blueque.protocol.ends import End
from blueque.queries import queues
from blueque.queries.listing import STATUSES


@pytest.fixture
def filled(client, redis, queue):
    """A queue with tasks in each status, two of which a listener holds; and two more queues."""

    def reserve(**options):
        task = str(queue.enqueue({}, **options))
        assert protocol.pop(redis, "video", NODE, "i1").task == task
        attempt = AttemptRef("video", task, "t", NODE)
        protocol.reserve(redis, attempt, "i1", time.time())
        return attempt

    protocol.register(redis, "video", NODE, "i1", {"beat_every": 10}, time.time())
    for how in (End.complete("out"), End.fail("OSError")):
        attempt = reserve()
        protocol.start(redis, attempt, 77, time.time())
        protocol.end(redis, attempt, how, time.time())
    queue.cancel(str(queue.enqueue({})))
    queue.enqueue({}, after=[queue.schedule({}, time.time() + 99)])
    for _ in range(2):
        protocol.start(redis, reserve(), 77, time.time())
    reserve()
    queue.enqueue({})
    protocol.pop(redis, "video", NODE, "i1")
    queue.enqueue({}, priority=7)
    queue.enqueue({})
    client.get_queue("audio").enqueue({})
    return ["audio", "empty", "video"]


def test_they_are_those_of_the_overview(client, filled):
    lines = client.get_inspector().overview().lines

    found = queues.counts(client.connections, filled)

    assert [found[status] for status in STATUSES] == [
        sum(getattr(line.counts, status) for line in lines) for status in STATUSES
    ]
    assert 0 not in found.values()
