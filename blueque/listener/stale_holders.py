"""StaleHolders: frees a lock, or a running place of a queue, whose task does not run."""

from __future__ import annotations

import logging
import time

from blueque.connection.redis import Redis
from blueque.listener.peer_wakeup import MOST_NOTES
from blueque.model.states import Entry, Place
from blueque.protocol import placement, reserving
from blueque.protocol.alignment import align_task
from blueque.queries.inspector import Inspector
from blueque.queries.queues import RunningLimit

log = logging.getLogger("blueque")

LOOK_AT_HOLDERS = 10.0  # seconds between two looks at who holds a lock


class StaleHolders:
    """Checks at most every 10 seconds that the holders of a lock or a full queue still run.

    A listener calls it when it finds a lock taken or a queue full.
    """

    def __init__(self, redis: Redis) -> None:
        self._redis, self._inspector = redis, Inspector(redis)
        self._not_before: dict[tuple[str, str | None], float] = {}  # by queue and lock
        # of the started tasks of each queue, those that the last look found wrong
        self._suspects: dict[str, set[str]] = {}

    def look(self, queue: str, lock: str | None, running: RunningLimit | None = None) -> None:
        """Free what is held by tasks that are neither reserved nor started.

        lock: the name of a lock; None: the places of the queue, with `running`.
        Source: docs/protocol/placement.md, "Which line"; docs/protocol/audit.md, "align_task".
        """
        if time.monotonic() < self._not_before.get((queue, lock), 0.0):
            return
        if len(self._not_before) > MOST_NOTES:
            self._not_before.clear()
        self._not_before[queue, lock] = time.monotonic() + LOOK_AT_HOLDERS
        freed = self._free(queue, lock)
        if running is not None and running.limit is not None and running.started >= running.limit:
            freed += self._drop_started(queue)
        if freed:
            log.warning(
                "free queue=%s lock=%s tasks=%d: they had no attempt that could hold it",
                queue,
                lock,
                freed,
            )
            reserving.wake(self._redis, queue)
            if lock is not None:
                placement.wake_waiting(self._redis, lock)

    def _free(self, queue: str, lock: str | None) -> int:
        place = Place("counted", queue) if lock is None else Place("lock", "", line=lock)
        holders = self._inspector.holders(queue, lock)
        return sum(
            align_task(self._redis, task.id, [Entry(place, task.id)], time.time())
            for task in holders
            if task.status not in ("reserved", "started")
        )

    def _drop_started(self, queue: str) -> int:
        """Drop entries of started tasks that no hash backs, at the second look: 1.0.0 makes the
        entry first.
        """
        strays = self._inspector.contradicted_started(queue)
        wrong = self._suspects.get(queue, set()) & strays.keys()
        self._suspects[queue] = set(strays)
        place = Place("started", queue)
        return sum(
            align_task(self._redis, strays[member], [Entry(place, member)], time.time())
            for member in sorted(wrong)
        )
