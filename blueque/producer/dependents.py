"""The tasks that wait for a finished one: tell them of its end; are there any left?"""

from __future__ import annotations

from contextlib import suppress

from blueque.connection.redis import Redis
from blueque.errors import Contended, RedisAway, RedisRefused
from blueque.protocol import groups, settling
from blueque.queries.dependencies import ties

AT_ONCE = 100  # transactions for the end of one task


def tell_of_end(redis: Redis, task: str, now: float) -> None:
    """Tell the tasks that wait for a task, and its group, that it has ended. Listeners and
    schedulers do it, too, but perhaps only after a minute: what fails here, or is too much, is left
    to them.
    """
    with suppress(RedisAway, RedisRefused, Contended):
        has_dependents, group = ties(redis, task)
        ended = [task] if has_dependents else []
        for _ in range(AT_ONCE):
            if not ended:
                break
            settled = settling.settle(redis, ended[0], now)
            left = ended[1:] if settled.is_over else ended
            ended = [*left, *settled.ended]
        if group is not None:
            groups.settle_members(redis, group, [task])
            if groups.finish_group(redis, group, now) == "ended":
                groups.settle_group(redis, group, now)


def is_awaited(redis: Redis, task: str, now: float, most: int | None = None) -> bool:
    """Tell whether others wait for a finished task, which must not be deleted then. Entries of tasks
    that do not wait for it any more are dropped.

    most: look at so many hundred entries at most; True if that was not enough.
    """
    tries = 0
    while most is None or tries < most:
        settled = settling.settle(redis, task, now, skip=0)
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
        settled = settling.settle(redis, task, now)
        dropped, is_over = dropped + settled.told, settled.is_over
    skip, is_over = 0, False
    while not is_over:
        settled = settling.settle(redis, task, now, skip=skip)
        skip, dropped = skip + settled.held, dropped + settled.told
        is_over = settled.is_over
    return dropped > 0
