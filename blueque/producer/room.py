"""Room in a bounded queue that discards its oldest tasks: make it for new ones."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from blueque.connection.redis import Redis
from blueque.errors import QueueFull, WrongQueue, WrongState
from blueque.model.queue_settings import DISCARDED
from blueque.producer.dependents import tell_of_end
from blueque.protocol import operator
from blueque.protocol.children import BLUEQUE
from blueque.queries.line_order import oldest_pending

log = logging.getLogger("blueque")

AT_ONCE = 500  # tasks that are looked up and discarded in one go

Result = TypeVar("Result")


def in_room(redis: Redis, action: Callable[[], Result]) -> Result:
    """Do what puts new tasks in line. If a queue has no room for them and discards its oldest
    tasks, make room first.

    action: puts in all of its tasks or none. Raises QueueFull.
    """
    while True:
        try:
            return action()
        except QueueFull as full:
            # A bound may be far below what is in line.
            if full.excess is None or not _discard(redis, full.queue, min(full.excess, AT_ONCE)):
                raise


def _discard(redis: Redis, queue: str, count: int) -> int:
    """Cancel so many of the oldest pending tasks; return how many were there to be cancelled."""
    oldest = oldest_pending(redis, queue, count)
    for task in oldest:
        now = time.time()
        # A listener may have taken it, or a person has moved it: that makes room, too.
        with suppress(WrongState, WrongQueue):
            operator.cancel(redis, queue, task, BLUEQUE, DISCARDED, now, ("pending",))
            log.info("discard task=%s queue=%s: the queue is full", task, queue)
            tell_of_end(redis, task, now)
    return len(oldest)
