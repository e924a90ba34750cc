"""Purge: delete the tasks of a snapshot that still have the status of their part."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

from blueque import protocol
from blueque.connection.redis import Redis
from blueque.model.snapshot import Slice, Snapshot
from blueque.model.states import HELD, WAITING, Place
from blueque.queries import finished
from blueque.tables import snapshot_reader

log = logging.getLogger("blueque")

AT_ONCE = 50  # tasks; the time of WATCH grows with the square of the keys


def purge(redis: Redis, snapshot: Snapshot) -> Iterator[int]:
    """Delete the tasks of a snapshot that still have the status of their part; pending and
    scheduled count as one status. Leave those that were reserved or started. Yield how many are
    deleted so far.

    Raises SnapshotGone.
    """
    done = 0
    for piece, tasks in snapshot_reader.ids(redis, snapshot, AT_ONCE):
        done += _purge(redis, piece, tasks)
        yield done
    log.info("purge tasks=%d", done)


def _purge(redis: Redis, piece: Slice, tasks: Sequence[str]) -> int:
    if piece.listed_as in HELD:
        return 0
    if piece.listed_as in WAITING:
        return protocol.purge(redis, piece.queue, tasks)
    seen = finished.seen(redis, Place(piece.listed_as, piece.queue), tasks)
    ended = [task for task in seen if task is not None]
    return protocol.prune(redis, piece.queue, piece.listed_as, ended) if ended else 0
