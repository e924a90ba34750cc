"""Lists of many queues: only the beginnings are read, and the answer is that of all."""

from __future__ import annotations

import random

import pytest
from faults import FaultProxy

from blueque import Client
from blueque.model import keys

QUEUES = [f"queue.{number}" for number in range(12)]


@pytest.fixture
def filled(redis):
    """Twelve queues with tasks in any order of times, one of which has nearly all of the first ones;
    and entries of tasks that have gone on.
    """
    drawn = random.Random(7)
    for queue in QUEUES:
        early = 0 if queue == QUEUES[3] else 5000
        times = sorted(early + drawn.random() * 1000 for _ in range(drawn.randint(5, 60)))
        for place, at in enumerate(times):
            waits, ended = f"{queue}-p{place}", f"{queue}-f{place}"
            status = "complete" if place % 7 == 2 else "pending"
            fields = ("status", status, "queue", queue, "created", at, "updated", at)
            redis.read(
                ("HSET", keys.task(waits), *fields),
                ("LPUSH", keys.pending(queue), waits),
                ("HSET", keys.task(ended), "status", "failed", "queue", queue, "finished", at),
                ("LPUSH", keys.failed(queue), ended),
            )


@pytest.mark.usefixtures("filled")
def test_many_queues_are_read_in_few_round_trips(server):
    proxy = FaultProxy(server.url)
    client = Client(proxy.url)

    client.get_inspector().listing(QUEUES, ["pending", "failed"], 40)

    assert proxy.writes <= 8
    client.close()
    proxy.close()


@pytest.mark.parametrize(
    ("statuses", "count", "read"),
    [(["pending"], 2, 2), (["pending"], 3, 2), (["pending", "failed"], 3, 1)],
)
def test_a_list_that_is_not_read_to_its_end_may_have_more(
    client, monkeypatch, statuses, count, read
):
    """The lists share the number of ids that are read."""
    monkeypatch.setattr("blueque.queries.listing.MAX_IDS", 2)
    client.get_queue("film").enqueue_many(range(count))

    found = client.get_inspector().listing(["film"], statuses, 5)

    assert (len(found.tasks), found.more) == (read, count - read)
    assert (found.has_more, found.looked_at) == ((True, read) if read < count else (False, None))
