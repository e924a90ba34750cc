"""The tasks that wait for a finished one: are there any left?"""

from __future__ import annotations

from blueque import protocol
from blueque.connection.redis import Redis


def is_awaited(redis: Redis, task: str, now: float, most: int | None = None) -> bool:
    """Tell whether others wait for a finished task, which must not be deleted then. Entries of tasks
    that do not wait for it any more are dropped.

    most: look at so many hundred entries at most; True if that was not enough.
    """
    tries = 0
    while most is None or tries < most:
        settled = protocol.settle(redis, task, now, skip=0)
        if settled.held or settled.is_over:
            return settled.held > 0
        tries += 1
    return True


def drop_stale(redis: Redis, task: str, now: float) -> bool:
    """Drop all entries of tasks that do not wait for a finished one any more. False: there are
    none.
    """
    dropped, is_over = 0, False
    while not is_over:  # each look moves those that wait on to the end
        settled = protocol.settle(redis, task, now)
        dropped, is_over = dropped + settled.told, settled.is_over
    skip, is_over = 0, False
    while not is_over:
        settled = protocol.settle(redis, task, now, skip=skip)
        skip, dropped = skip + settled.held, dropped + settled.told
        is_over = settled.is_over
    return dropped > 0
