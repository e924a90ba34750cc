"""The part of a snapshot for the next batch: the oldest tasks, up to a time of their end."""

from __future__ import annotations

from blueque.connection.redis import Redis
from blueque.model.snapshot import Slice, Snapshot
from blueque.tables import hash_reader

_PROBE = 8  # consecutive entries, among which a task with a time is expected


def ended_before(redis: Redis, snapshot: Snapshot, before: float) -> Snapshot:
    """Return the part of a snapshot that ended before that time, if its lists are in the order of
    their ends.

    They are, except for differences between the clocks of hosts; so the reader checks each task again.
    """
    return snapshot._replace(parts=tuple(_cut(redis, part, before) for part in snapshot.parts))


def window(snapshot: Snapshot, position: int, size: int) -> list[Slice]:
    """Return `size` ids of a snapshot from a position on, counting through all its parts."""
    found = []
    for part in snapshot.parts:
        rows = part.last - part.first
        first, last = max(position, 0), min(position + size, rows)
        if first < last:
            found.append(part._replace(first=part.first + first, last=part.first + last))
        position -= rows
    return found


def _cut(redis: Redis, part: Slice, before: float) -> Slice:
    low, high = part.first, part.last
    while low < high:
        middle = (low + high) // 2
        ended = _ended(redis, part._replace(first=middle, last=min(middle + _PROBE, part.last)))
        if ended is None or ended < before:
            low = middle + 1
        else:
            high = middle
    return part._replace(last=low)


def _ended(redis: Redis, piece: Slice) -> float | None:
    for batch in hash_reader.read(redis, piece, ["finished", "updated"]):
        for row in batch.to_pylist():
            at = row["finished"] or row["updated"]
            if at is not None:
                return float(at.timestamp())
    return None
