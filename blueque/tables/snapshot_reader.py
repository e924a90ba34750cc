"""Reads the ids of a snapshot, and its tasks."""

from __future__ import annotations

from collections.abc import Iterator

from blueque.connection.redis import Redis, as_hash
from blueque.errors import SnapshotGone
from blueque.model import keys
from blueque.model.snapshot import Slice, Snapshot
from blueque.model.task import Task

FEWEST, MOST = 4, 1000  # tasks in one round trip
ROOM = 4 * 2**20  # characters of their fields


def ids(redis: Redis, snapshot: Snapshot, count: int) -> Iterator[tuple[Slice, list[str]]]:
    """Yield the ids of a snapshot, oldest first, `count` at a time, with their part of the snapshot.

    Raises SnapshotGone when it has expired.
    """
    for piece in snapshot.slices(count):
        if not piece.key:
            yield piece, list(piece.ids)
            continue
        # In a list the oldest is at the tail, in a sorted set at the head.
        places = (
            (piece.first, piece.last - 1) if piece.is_scored else (-piece.last, -piece.first - 1)
        )
        (found,) = redis.read(("ZRANGE" if piece.is_scored else "LRANGE", piece.key, *places))
        if len(found) < piece.last - piece.first:
            raise SnapshotGone(piece.key)
        yield piece, found if piece.is_scored else found[::-1]


def tasks(redis: Redis, snapshot: Snapshot) -> Iterator[Task]:
    """Yield the existing tasks of a snapshot in their present state, a few MiB at a time."""
    count = FEWEST
    for _, some in ids(redis, snapshot, MOST):
        while some:
            now, some = some[:count], some[count:]
            hashes = redis.read(*[("HGETALL", keys.task(one)) for one in now])
            size = sum(len(text) for found in hashes for text in found)
            count = max(1, min(MOST, ROOM * len(now) // max(size, 1), 4 * count))
            for one, found in zip(now, hashes, strict=True):
                if found:
                    yield Task(one, as_hash(found))
