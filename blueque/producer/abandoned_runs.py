"""Runs that a producer has begun and not ended: finds and ends them."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from blueque.connection.redis import Redis
from blueque.errors import WrongRun
from blueque.model.run import PUBLISHED, Record
from blueque.producer.staged_run import discard, finish
from blueque.protocol import runs
from blueque.queries.runs import load, load_all, staged_chunks

STALLED = 60.0  # seconds after which a committed run should be in line

log = logging.getLogger("blueque")


class Leftover(NamedTuple):
    """What is left of a run.

    way: how to end it. `finish`: it is committed and has to be published; `drop`: it was never
        committed; `discard`: chunks are left that no commit has chosen.
    record: of the run, as `Client.get_run` returns it. chunks: the staged chunks that ending it
        would delete.
    age: seconds since a producer last worked on it.
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
        """Return what is left of runs in these queues and has not moved for so many seconds; for a
        committed run 60 seconds.

        A run that was staged as a whole moves only when it is opened: allow producers the time that
        they need.
        """
        now = time.time()
        records = load_all(self._redis, [*queues])
        found = [self._judge(record, now, older_than) for record in records]
        return [leftover for leftover in found if leftover is not None]

    def end(self, leftover: Leftover) -> bool:
        """End it in its way. False: a producer has worked on it meanwhile."""
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
        except WrongRun:  # it has been committed
            return False

    def drop(
        self, queue: str, run: str, is_staged_too: bool = True, moved: float | None = None
    ) -> bool:
        """Forget a run in any state, with everything that is staged for it; tasks in line stay.
        False: there is no such run.

        is_staged_too: False leaves the run alone when something is staged for it. moved: see
            `protocol.drop_run`.
        Raises WrongRun when it is committed and not finished. Source: docs/protocol/bulk.md,
        "drop_run".
        """
        is_dropped = runs.drop_run(self._redis, queue, run, moved)
        while not is_dropped and is_staged_too and load(self._redis, queue, run) is not None:
            discard(self._redis, queue, run, list(staged_chunks(self._redis, queue, run)))
            is_dropped = runs.drop_run(self._redis, queue, run)
        if is_dropped:
            log.info("drop_run run=%s queue=%s", run, queue)
        return is_dropped

    def _judge(self, record: Record, now: float, older_than: float) -> Leftover | None:
        state, is_stream = record.get("state"), record.get("kind") == "stream"
        chunks: dict[str, float] = {}
        if record["staged"]:
            chunks = staged_chunks(self._redis, record["queue"], record["run"])
        if state in PUBLISHED:
            # A chunk that the commit has not chosen cannot be committed any more; in a stream it may
            # belong to the next batch.
            leftover = Leftover(
                "finish",
                record,
                () if is_stream else list(chunks),
                now - record.get("decided", 0.0),
            )
        elif is_stream or state != "open":
            # Judge each chunk: those staged lately may belong to the next batch.
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
