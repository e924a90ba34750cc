"""Expiry: cancel or move the tasks that have not started in time."""

from __future__ import annotations

import logging

from blueque.connection.redis import Redis
from blueque.errors import Contended, RedisRefused
from blueque.producer.dependents import tell_of_end
from blueque.protocol import placement
from blueque.queries.due import expiring, queues_of

log = logging.getLogger("blueque")

EXPIRED_AT_ONCE = 100  # tasks that one step looks at
EVERY = 60.0  # seconds after which the index is read again: a task may come before all others
SOON = 1.0  # seconds after which a task is looked at again that a listener has just popped


class Expiry:
    """Handles the tasks of all queues that must start by a time.

    The reservation of a task refuses late ones, so nothing depends on how often this runs.
    """

    def __init__(self, redis: Redis) -> None:
        self._redis = redis

    def step(self) -> float:
        """Handle a hundred tasks whose time is over. Return in how many seconds to look again.

        It takes one round trip when there is nothing to do. Raises what Redis raises.
        """
        try:
            return self._step()
        except RedisRefused as error:
            if not error.concerns_keys:
                raise
            log.debug("expire: %s", error)  # others may do it
            return EVERY

    def _step(self) -> float:
        now, times = expiring(self._redis, EXPIRED_AT_ONCE + 1)
        due = [task for task, before in times.items() if before <= now][:EXPIRED_AT_ONCE]
        if not due:
            return max(min([EVERY, *(before - now for before in times.values())]), 0.0)
        for task, queue in zip(due, queues_of(self._redis, due), strict=True):
            try:
                placement.expire(self._redis, queue or "", task, now)
                tell_of_end(self._redis, task, now)
                log.info("expire task=%s queue=%s", task, queue)
            except Contended as error:  # a listener takes it, or others do the same
                log.debug("expire: %s", error)
        return SOON if len(due) < EXPIRED_AT_ONCE else 0.0
