"""Feeds as they stand in Redis: how far each is, and which files it has done with. docs/protocol.md, "Feeds"."""

from __future__ import annotations

from collections.abc import Mapping

from blueque import keys
from blueque.connection import Redis, as_hash
from blueque.protocol.feeding import Cursor

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
    """Return the records of all feeds of a queue, in the order in which they finished, those that are open last."""
    (names,) = redis.read(("ZRANGE", keys.feeds(queue), 0, -1))
    records = [load(redis, queue, name) for name in names]
    return [record for record in records if record]


def lines(redis: Redis, queue: str) -> list[str]:
    """Return the names of the lines of a queue besides the default one."""
    (found,) = redis.read(("ZRANGE", keys.lines(queue), 0, -1))
    return list(found)


def cursor(record: Record) -> Cursor:
    """Return how far a feed is."""
    row, offset, crc, rows = (int(record.get(name, 0)) for name in ("row", "offset", "crc", "rows"))
    return Cursor(record.get("file", ""), record.get("mark", ""), row, offset, crc, rows, float(record.get("share", 0)))
