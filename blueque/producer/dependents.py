"""The tasks that wait for a finished one: tell them of its end, and find out whether any are left."""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

from blueque.connection.redis import Redis
from blueque.errors import Contended, RedisAway, RedisRefused
from blueque.protocol import groups, rechecking, settling
from blueque.protocol.parents import Parent, TaskParent
from blueque.queries.dependencies import dependents_and_group, dependents_from

DEPENDENTS_AT_ONCE = 100  # dependents of one look
MOST_LOOKS = 100  # dependents that the caller tells of the end of one task, and of what follows


class RecheckCount(NamedTuple):
    """The result of checking dependents. removed: those that no longer wait."""

    removed: int
    waiting: int


def tell_of_end(redis: Redis, task: str, now: float) -> None:
    """Tell the tasks that wait for a task, and its group, that it has ended.

    Listeners and schedulers do it, too, but perhaps only after a minute. What fails here, or is too
    much, is left to them.
    """
    with suppress(RedisAway, RedisRefused, Contended):
        has_dependents, group = dependents_and_group(redis, task)
        ended, looked_at = [task] if has_dependents else [], 0
        while ended and looked_at < MOST_LOOKS:
            settled = settling.settle(redis, ended[0], now)
            looked_at += settled.removed + settled.waiting
            left = ended[1:] if settled.is_over else ended
            ended = [*left, *settled.ended]
        if group is not None:
            groups.settle_members(redis, group, [task])
            if groups.finish_group(redis, group, now) == "ended":
                groups.settle_group(redis, group, now)


def recheck_dependents(
    redis: Redis, parent: Parent, now: float, first: int = 0, is_one_enough: bool = False
) -> RecheckCount:
    """Check up to a hundred dependents of a task or a group, from this place on.

    One with a key of a wrong type counts as waiting, because its state cannot be read.
    is_one_enough: stop at the first that waits.
    """
    removed = waiting = 0
    for child in dependents_from(redis, parent.dependents, first, DEPENDENTS_AT_ONCE):
        if _waits(redis, child, parent, now):
            waiting += 1
            if is_one_enough:
                break
        else:
            removed += 1
    return RecheckCount(removed, waiting)


def _waits(redis: Redis, child: str, parent: Parent, now: float) -> bool:
    try:
        return rechecking.tell(redis, child, parent, now).waits
    except RedisRefused as error:
        if not error.is_wrong_type:
            raise
        return True


def is_awaited(redis: Redis, task: str, now: float, most: int | None = None) -> bool:
    """Return whether others wait for a finished task, so that it must not be deleted.

    Drops entries of tasks that no longer wait for it.
    most: check at most so many hundred entries; True if that was not enough.
    """
    tries = 0
    while most is None or tries < most:
        found = recheck_dependents(redis, TaskParent(task), now, is_one_enough=True)
        if found.waiting:
            return True
        if not found.removed:
            settling.settle(redis, task, now)
            return False
        tries += 1
    return True


def drop_stale(redis: Redis, task: str, now: float) -> bool:
    """Drop all entries of tasks that no longer wait for a finished one. False: there were none."""
    dropped, is_over = 0, False
    while not is_over:  # from then on, the order of those that wait does not change
        settled = settling.settle(redis, task, now)
        dropped, is_over = dropped + settled.removed, settled.is_over
    first = 0
    while True:
        found = recheck_dependents(redis, TaskParent(task), now, first)
        first, dropped = first + found.waiting, dropped + found.removed
        if not found.removed + found.waiting:
            settling.settle(redis, task, now)
            return dropped > 0
