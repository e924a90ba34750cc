"""Tells blocked tasks of the ends that they wait for, where listeners have not done so."""

from __future__ import annotations

import logging
import time

from blueque.connection.redis import Redis
from blueque.errors import Contended, RedisRefused
from blueque.queries.queue_changes import Lookout
from blueque.recovery.dependents import ENDS_AT_ONCE, GRACE, Dependents

LOOK_AT_ALL = 60.0  # seconds between two looks where no change is known

log = logging.getLogger("blueque")


class Settling:
    """Settles ends that have stayed unsettled for GRACE, and groups whose time has come."""

    def __init__(self, redis: Redis, lookout: Lookout) -> None:
        self._lookout = lookout
        self._dependents = Dependents(redis)
        self._look_at = 0.0  # when to look for ends, on the monotonic clock
        self._group_at = 0.0  # when a group is to be looked at, in Unix seconds
        self._are_groups_due = False

    def step(self) -> bool:
        """Settle some ends and groups. Return whether there may be more."""
        if not (self._dependents.has_work or self._are_groups_due):
            self._look()
        is_more = False
        try:
            is_more = self._dependents.step()
            if self._are_groups_due:
                self._are_groups_due = False
                self._are_groups_due = self._dependents.step_of_groups()
        except Contended as error:  # others do the same
            log.debug("settle: %s", error)
        except RedisRefused as error:
            if not error.is_wrong_type:
                raise
            log.warning("cannot settle groups: %s", error)
        return is_more or self._are_groups_due

    def recheck(self, queue: str) -> None:
        """Compare blocked tasks of a queue that are due with those that they wait for."""
        self._dependents.recheck([queue])

    def rest(self) -> float:
        """Return for how many seconds there is nothing to settle, if nothing changes."""
        rest = self._group_at - time.time()
        return min(rest, self._look_at - time.monotonic()) if self._lookout.is_unsettled else rest

    def _look(self) -> None:
        """Find ends that their own listeners have not settled, and groups."""
        is_due = self._lookout.is_unsettled and time.monotonic() >= self._look_at
        if not is_due and time.time() < self._group_at:
            return
        self._look_at, now = time.monotonic() + GRACE, time.time()
        self._group_at = now + LOOK_AT_ALL
        try:
            found = self._lookout.unsettled(self._dependents.limit)
        except RedisRefused as error:  # a key of a wrong type
            log.warning("cannot see which ends are not settled: %s", error)
            self._look_at = time.monotonic() + LOOK_AT_ALL
            return
        ended = [task for task, at in found.tasks.items() if at <= now - GRACE]
        self._dependents.note(ended)
        if len(ended) >= ENDS_AT_ONCE and self._dependents.has_work:
            self._look_at = 0.0  # there may be more
        if found.group_at is not None:
            self._group_at = min(found.group_at, self._group_at)
        self._are_groups_due = found.has_members or self._group_at <= now
        self._group_at = max(self._group_at, now + GRACE)
