"""Lists of many queues: only the beginnings are read, and the answer is that of all."""

from __future__ import annotations

import random

import pytest
from faults import FaultProxy

from blueque import Client
from blueque.model import keys
from blueque.queries import listing

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
@pytest.mark.parametrize("statuses", [["pending"], ["failed"], ["pending", "failed", "started"]])
@pytest.mark.parametrize("limit", [1, 10, 50])
def test_of_many_tasks_only_what_decides_about_the_order_is_read_first(
    redis, monkeypatch, statuses, limit
):
    whole = listing.listing(redis, QUEUES, statuses, limit)
    monkeypatch.setattr(listing, "MANY", 0)

    found = listing.listing(redis, QUEUES, statuses, limit)

    assert [task.fields for task in found.tasks] == [task.fields for task in whole.tasks]
    assert (found.has_more, found.more, found.looked_at) == (True, whole.more, None)


@pytest.mark.usefixtures("filled")
def test_many_queues_are_read_in_few_round_trips(server):
    proxy = FaultProxy(server.url)
    client = Client(proxy.url)

    client.get_inspector().listing(QUEUES, ["pending", "failed"], 40)

    assert proxy.writes <= 8
    client.close()
    proxy.close()


@pytest.mark.usefixtures("filled")
def test_it_says_how_deep_it_has_looked_if_that_was_not_enough(redis, monkeypatch):
    monkeypatch.setattr(listing, "MAX_IDS", 3 * len(QUEUES))

    found = listing.listing(redis, QUEUES, ["failed"], 20)

    assert found.looked_at == 3
    assert (len(found.tasks), found.has_more) == (20, True)
