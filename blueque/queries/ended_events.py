"""Reads the ends of tasks out of the events of queues, between two places, and tells when some of
them are gone.
"""

from __future__ import annotations

from collections.abc import Iterator

from blueque.connection.redis import Redis
from blueque.model import keys
from blueque.model.states import FINISHED
from blueque.queries.history import Event, parse

AT_ONCE = 1000
FIRST = "0-0"  # before all events


def between(redis: Redis, queue: str, start: str, end: str) -> Iterator[list[Event]]:
    """Yield the ends of tasks behind one place, up to another, at most 1000 at a time."""
    after = start
    while True:
        (entries,) = redis.read(("XRANGE", keys.events(queue), f"({after}", end, "COUNT", AT_ONCE))
        yield [event for event in parse(queue, entries) if event.event in FINISHED]
        if len(entries) < AT_ONCE:
            return
        after = entries[-1][0]


def is_gone(redis: Redis, queue: str, place: str) -> bool:
    """Tell whether events behind this place may have been deleted: a queue keeps about 10,000.

    Redis does not say which was deleted last. So it is true as well if the event at this place is
    gone, and none behind it.
    """
    if place == FIRST:
        return False
    key = keys.events(queue)
    at_place, first = redis.read(
        ("XRANGE", key, place, place), ("XRANGE", key, "-", "+", "COUNT", 1)
    )
    return not at_place and (not first or _numbers(first[0][0]) > _numbers(place))


def _numbers(place: str) -> tuple[int, ...]:
    return tuple(map(int, place.split("-")))
