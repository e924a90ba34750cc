"""Purge: deletes every task of a queue that was in some states at one instant, and still is."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

from blueque import protocol
from blueque.connection.redis import Redis
from blueque.model.snapshot import Slice, Snapshot
from blueque.model.states import FINISHED, Place
from blueque.queries import finished
from blueque.tables import snapshot_reader

log = logging.getLogger("blueque")

AT_ONCE = 50  # WATCH gets slow with the square of their number


def purge(redis: Redis, snapshot: Snapshot) -> Iterator[int]:
    """Delete those tasks of a snapshot that still wait, or have ended, as they had then; yield how
    many are gone so far.

    Raises SnapshotGone.
    """
    done = 0
    for piece, some in snapshot_reader.ids(redis, snapshot, AT_ONCE):
        done += _purge(redis, piece, some)
        yield done
    log.info("purge tasks=%d", done)


def _purge(redis: Redis, piece: Slice, some: Sequence[str]) -> int:
    if piece.listed_as not in FINISHED:
        return protocol.purge(redis, piece.queue, some)
    seen = [
        one
        for one in finished.seen(redis, Place(piece.listed_as, piece.queue), some)
        if one is not None
    ]
    return protocol.prune(redis, piece.queue, piece.listed_as, seen) if seen else 0
