"""Purge: delete the tasks of a snapshot that still have the status of their part."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterator, Sequence

from blueque.connection.redis import Redis
from blueque.model.parts import grouped
from blueque.model.snapshot import Slice, Snapshot
from blueque.model.states import HELD, WAITING, Place
from blueque.producer.dependents import is_awaited
from blueque.protocol import pruning
from blueque.protocol.events import Event
from blueque.queries import finished
from blueque.queries.dependencies import count_awaited
from blueque.system import process
from blueque.tables import snapshot_reader

log = logging.getLogger("blueque")

READ_AT_ONCE = 1000
PURGED_AT_ONCE = 50  # tasks; the time of WATCH grows with the square of the keys


def purge(
    redis: Redis, snapshot: Snapshot, is_forced: bool = False, by: str | None = None
) -> Iterator[int]:
    """Delete the tasks of a snapshot that still have the status of their part. Yield how many so far.

    Pending, scheduled and blocked count as one status. Reserved and started tasks stay, and so do
    those that others wait for.
    is_forced: also delete waiting tasks that others wait for.
    by: who deletes them, for the streams of their queues. Default: this user and host.
    Raises SnapshotGone.
    """
    who = process.who_of(by)
    done, events = 0, _events(snapshot, who)
    for piece, tasks in snapshot_reader.ids(redis, snapshot, PURGED_AT_ONCE):
        deleted = _purge(redis, piece, tasks, is_forced, events.get(piece.queue))
        if deleted:
            events.pop(piece.queue, None)
        done += deleted
        yield done
    log.info("purge tasks=%d by=%s", done, who)


def _events(snapshot: Snapshot, by: str) -> dict[str, Event]:
    """Return the event of each queue, recorded with the first tasks that are deleted there."""
    parts = [part for part in snapshot.parts if part.listed_as not in HELD]
    now = time.time()
    return {
        queue: Event(
            "purged",
            by,
            now,
            {
                "tasks": sum(part.last - part.first for part in found),
                "status": " ".join(dict.fromkeys(part.listed_as for part in found)),
            },
        )
        for queue, found in grouped(parts, lambda part: part.queue).items()
    }


def awaited(redis: Redis, snapshot: Snapshot, is_forced: bool = False) -> Counter[tuple[str, str]]:
    """Return how many tasks of a snapshot `purge` would leave because others wait for them.

    By state and queue: one round trip for each thousand. Raises SnapshotGone.
    """
    found = Counter[tuple[str, str]]()
    for piece, tasks in snapshot_reader.ids(redis, snapshot, READ_AT_ONCE):
        if is_forced and piece.listed_as in (*WAITING, "blocked"):
            continue
        found[piece.listed_as, piece.queue] += count_awaited(redis, tasks)
    return found


def _purge(
    redis: Redis, piece: Slice, tasks: Sequence[str], is_forced: bool, event: Event | None
) -> int:
    if piece.listed_as in HELD:
        return 0
    if piece.listed_as in (*WAITING, "blocked"):
        return pruning.purge(redis, piece.queue, tasks, is_forced, event)
    seen = finished.seen(redis, Place(piece.listed_as, piece.queue), tasks)
    now = time.time()
    ended = [
        task
        for task in seen
        if task is not None and not (task.has_dependents and is_awaited(redis, task.task, now))
    ]
    if not ended:
        return 0
    return pruning.prune(redis, piece.queue, piece.listed_as, ended, event=event)
