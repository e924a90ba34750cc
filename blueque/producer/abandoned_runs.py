"""Runs that a producer has begun and not ended: finds and drops them."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from typing import NamedTuple

from blueque.connection.redis import Redis
from blueque.errors import WrongRun
from blueque.model.run import Record
from blueque.protocol.runs import drop_run
from blueque.queries.runs import holds_back, load_all

log = logging.getLogger("blueque")


class Leftover(NamedTuple):
    """A run that was never committed.

    record: of the run, as `Client.get_run` returns it. age: seconds since a producer last worked on
    it.
    """

    record: Record
    age: float

    @property
    def run(self) -> str:
        return str(self.record["run"])

    @property
    def queue(self) -> str:
        return str(self.record["queue"])


class Leftovers:
    """Finds and drops runs that were never committed."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis

    def find(self, queues: Iterable[str], older_than: float) -> list[Leftover]:
        """Return the open runs of these queues that have not moved for so many seconds."""
        now = time.time()
        records = load_all(self._redis, [*queues])
        found = [
            Leftover(record, now - record["moved"])
            for record in records
            if record.get("state") == "open"
        ]
        return [leftover for leftover in found if leftover.age >= older_than]

    def end(self, leftover: Leftover) -> bool:
        """Drop it. False: a producer has worked on it meanwhile. Raises as `drop`."""
        return self.drop(leftover.queue, leftover.run, moved=leftover.record["moved"])

    def drop(self, queue: str, run: str, moved: float | None = None) -> bool:
        """Forget a run in any state; its tasks stay. False: there is no such run.

        moved: see `protocol.runs.drop_run`.
        Raises WrongRun for a run of an earlier version that holds back tasks.
        Source: docs/protocol/bulk.md, "drop_run", "Runs of earlier versions".
        """
        if holds_back(self._redis, queue, run):
            why = (
                "its tasks are in no line yet: end the run, or discard it, with the version of "
                "Blueque that has made it; then forget it"
            )
            raise WrongRun(run, queue, why)
        is_dropped = drop_run(self._redis, queue, run, moved)
        if is_dropped:
            log.info("drop_run run=%s queue=%s", run, queue)
        return is_dropped
