"""Feeds as they stand in Redis: how far each is, and which files it has done with.
docs/protocol/feeds.md, "Feeds".
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from blueque.connection.redis import Command, Redis, as_hash
from blueque.model import keys

Record = Mapping[str, str]


def load(redis: Redis, queue: str, feed: str) -> dict[str, str]:
    """Return the record of a feed; empty: there is none."""
    (reply,) = redis.read(("HGETALL", keys.feed(queue, feed)))
    record = as_hash(reply)
    return record if (record.get("feed"), record.get("queue")) == (feed, queue) else {}


def marks(redis: Redis, queue: str, feed: str) -> dict[str, str]:
    """Return the files that it has done with, and their marks."""
    (reply,) = redis.read(("HGETALL", keys.fed(queue, feed)))
    return as_hash(reply)


def load_all(redis: Redis, queue: str) -> list[dict[str, str]]:
    """Return the records of all feeds of a queue, in the order in which they finished, those that
    are open last.
    """
    (names,) = redis.read(("ZRANGE", keys.feeds(queue), 0, -1))
    return take(redis.read(*ask({queue: names})))


def ask(names: Mapping[str, Iterable[str]]) -> list[Command]:
    """Return the commands that ask for the records of feeds, of queues by name; `take` understands
    the replies.
    """
    return [("HGETALL", keys.feed(queue, name)) for queue, some in names.items() for name in some]


def take(replies: Iterable[Sequence[str]]) -> list[dict[str, str]]:
    """Return the records; one that has expired, or is of nothing, is left out."""
    return [record for record in map(as_hash, replies) if "feed" in record and "queue" in record]


def state_of(record: Record, now: float) -> tuple[str, float | None]:
    """Return how a feed fares, and since when.

    finished; feeding; silent: its feeder was not heard of for its lease; stopped: nobody feeds, and
    there is more to feed.
    """
    updated = number(record, "updated")
    if "token" not in record:
        return (
            ("finished", number(record, "finished"))
            if record.get("state") == "finished"
            else ("stopped", updated)
        )
    heard = max(updated or 0.0, number(record, "beat_at") or 0.0)
    if now - heard > (number(record, "lease") or 0.0):
        return "silent", heard
    return "feeding", number(record, "since")


def lines(redis: Redis, queue: str) -> list[str]:
    """Return the names of the lines of a queue besides the default one."""
    (found,) = redis.read(("ZRANGE", keys.lines(queue), 0, -1))
    return list(found)


def number(record: Record, name: str) -> float | None:
    """Return a field as a number; None: there is none in it."""
    try:
        value = float(record[name])
    except (KeyError, ValueError):
        return None
    return value if math.isfinite(value) else None
