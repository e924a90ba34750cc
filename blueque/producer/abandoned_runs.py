"""Leftovers: runs that somebody has begun, and nobody has ended."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from blueque import protocol
from blueque.connection.redis import Redis
from blueque.errors import WrongRun
from blueque.model.run import Record
from blueque.producer.staged_run import discard, finish
from blueque.queries.runs import load, load_all, staged_chunks

STALLED = 60.0  # seconds after which what is decided should have been put in line

log = logging.getLogger("blueque")


class Leftover(NamedTuple):
    """What is left of a run.

    way: how it is ended. `finish`: it is decided, and has to be published; `drop`: nobody has
    decided it; `discard`: chunks are left that were not chosen, when it was committed, or by any
    batch if it is a stream.
    record: of the run, as `Client.get_run` gives it. chunks: what is staged, and would be
        discarded.
    age: seconds since somebody has last shown up there.
    """

    way: str
    record: Record
    chunks: Sequence[str]
    age: float

    @property
    def run(self) -> str:
        return str(self.record["run"])

    @property
    def queue(self) -> str:
        return str(self.record["queue"])


class Leftovers:
    """Finds and ends what is left of runs."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis

    def find(self, queues: Iterable[str], older_than: float) -> list[Leftover]:
        """Return what is left of runs in these queues, and has not moved for so many seconds; what
        is decided, for 60.

        A run whose rows were all there before moves only when it is opened: give those at work the
        time that they need.
        """
        now = time.time()
        found = [
            self._judge(record, now, older_than)
            for queue in queues
            for record in load_all(self._redis, queue)
        ]
        return [leftover for leftover in found if leftover is not None]

    def end(self, leftover: Leftover) -> bool:
        """End it in its way. False: somebody has worked on it meanwhile."""
        queue, run = leftover.queue, leftover.run
        if leftover.way == "finish":
            finish(self._redis, queue, run)
            discard(self._redis, queue, run, leftover.chunks)
            return True
        discarded = discard(self._redis, queue, run, leftover.chunks)
        if leftover.way == "discard":
            return discarded == len(leftover.chunks)
        try:
            return self.drop(queue, run, is_staged_too=False, moved=leftover.record["moved"])
        except WrongRun:  # it has been decided
            return False

    def drop(
        self, queue: str, run: str, is_staged_too: bool = True, moved: float | None = None
    ) -> bool:
        """Forget a run, whatever it says, with all that is staged for it; tasks that are in line
        stay. False: none is there.

        is_staged_too: False leaves the run alone when something is staged for it. moved: see
            `protocol.drop_run`.
        Raises WrongRun when it is decided and not finished. Source: docs/protocol/bulk.md,
        "drop_run".
        """
        is_dropped = protocol.drop_run(self._redis, queue, run, moved)
        while not is_dropped and is_staged_too and load(self._redis, queue, run) is not None:
            discard(self._redis, queue, run, list(staged_chunks(self._redis, queue, run)))
            is_dropped = protocol.drop_run(self._redis, queue, run)
        if is_dropped:
            log.info("drop_run run=%s queue=%s", run, queue)
        return is_dropped

    def _judge(self, record: Record, now: float, older_than: float) -> Leftover | None:
        state, is_stream = record.get("state"), record.get("kind") == "stream"
        chunks: dict[str, float] = {}
        if record["staged"]:
            chunks = staged_chunks(self._redis, record["queue"], record["run"])
        if state == "committing":
            # What it has not chosen nobody can commit any more; of a stream it may be the next
            # batch.
            leftover = Leftover(
                "finish",
                record,
                () if is_stream else list(chunks),
                now - record.get("decided", 0.0),
            )
        elif is_stream or state != "open":
            # Each by itself: what was staged lately may be of the next batch.
            old = {name: since for name, since in chunks.items() if now - since >= older_than}
            if not old:
                return None
            leftover = Leftover("discard", record, list(old), now - max(old.values()))
        else:
            leftover = Leftover(
                "drop", record, list(chunks), now - max([record["moved"], *chunks.values()])
            )
        limit = min(older_than, STALLED) if leftover.way == "finish" else older_than
        return leftover if leftover.age >= limit else None
