"""Wakes other listeners: for work that needs resources which our node lacks, and for a lock that
was given back.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence

from blueque.connection.redis import Redis
from blueque.errors import RedisAway, RedisRefused
from blueque.model.task import Task
from blueque.protocol import placement, reserving
from blueque.queries.inspector import Inspector

log = logging.getLogger("blueque")

Resources = tuple[tuple[str, int], ...]

MOST_WANTED = 5  # different needs for which one look at the lines makes calls
CALLED = 3  # of those that seem idle: one may be busy for another queue
PAUSE = 1.0  # seconds before we call again for the same
MOST_NOTES = 1000  # things of one kind that a listener remembers before it forgets them all


class PeerWakeup:
    """Wakes other listeners of our queues."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._not_before: dict[tuple[str, Resources], float] = {}  # by queue and needs

    def call(self, queue: str, wanted: Sequence[Resources], asker: str) -> None:
        """Wake idle listeners that have what a task needs: for the first of these needs that any
        can meet.

        asker: our node. Listeners that share its resources are not woken.
        Source: docs/protocol.md, "wake".
        """
        now = time.monotonic()
        wanted = [needs for needs in wanted if now >= self._not_before.get((queue, needs), 0.0)]
        if not wanted:
            return
        if len(self._not_before) > MOST_NOTES:
            self._not_before.clear()
        inspector = Inspector(self._redis)
        others = inspector.others_with_resources(queue, asker)
        for needs in wanted:
            self._not_before[queue, needs] = now + PAUSE
            nodes = inspector.idle(
                queue, [node for node, has in others.items() if meets(has, needs)]
            )
            for node in nodes[:CALLED]:
                reserving.wake(self._redis, queue, node)
            if nodes:
                return


def wake_for_lock_of(redis: Redis, task: Task) -> None:
    """Wake listeners of all queues that have tasks waiting for the lock of an ended attempt."""
    lock = task.fields.get("lock")
    if lock is None:
        return
    try:
        placement.wake_waiting(redis, lock)
    except (RedisAway, RedisRefused) as error:
        # the change is recorded; they look for themselves at each beat
        log.info("wake_waiting lock=%r: %s", lock, error)


def meets(has: Mapping[str, int], needs: Resources) -> bool:
    """Return whether the node has that much of each resource, free or not."""
    return all(has.get(name, 0) >= amount for name, amount in needs)
