"""Retention: deletes finished tasks that are old enough, some at a time."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from blueque import protocol
from blueque.connection import Redis
from blueque.errors import NotFinished, WrongQueue
from blueque.inspector import Inspector
from blueque.places import Place

log = logging.getLogger("blueque")

AT_ONCE = 20                                           # of one list, so that it never takes long


class Retention:
    """Deletes the finished tasks of some queues.

    ages: how many seconds a task stays after its end, by queue and by its status.
    """

    def __init__(self, redis: Redis, ages: Mapping[str, Mapping[str, float]]) -> None:
        self._redis, self._inspector = redis, Inspector(redis)
        self._ages = {Place(status, queue): age for queue, its in ages.items() for status, age in its.items()}
        self._passed = dict.fromkeys(self._ages, 0)    # how many at the end of a list are not to be deleted

    @property
    def is_asked_for(self) -> bool:
        return bool(self._ages)

    def step(self) -> bool:
        """Delete what is old, oldest first; return whether there may be more. Three round trips while there is nothing."""
        now = self._inspector.now()                    # one clock for all: a wrong one here would delete everything
        oldest = self._inspector.oldest_ended(self._passed, AT_ONCE)
        left = [self._delete(place, ended, now - self._ages[place]) for place, ended in oldest.items()]
        return any(left)

    def _delete(self, place: Place, oldest: Sequence[tuple[str, float | None]], before: float) -> bool:
        deleted, is_more = 0, bool(oldest)
        for task_id, at in oldest:
            if at is None:                             # no task that has ended so; the doctor sees to it
                self._passed[place] += 1
                continue
            if at > before:                            # and those that come next have ended later
                is_more = False
                break
            try:
                deleted += protocol.delete(self._redis, place.queue, task_id)
            except (NotFinished, WrongQueue):          # it has been put in line again
                pass
        if not is_more:
            self._passed[place] = 0                    # somebody may have seen to them by the next time
        if deleted:
            log.info("delete queue=%s status=%s tasks=%d: kept as long as they are to be", place.queue, place.kind, deleted)
        return is_more
