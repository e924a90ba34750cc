"""Ends of tasks that their dependents may not know, and the blocked tasks that are to be compared
with the tasks for which they wait.
"""

from __future__ import annotations

from collections.abc import Sequence

from blueque.connection.redis import Redis
from blueque.model import keys


def unsettled_tasks(redis: Redis, before: float, limit: int) -> list[str]:
    """Return tasks that ended before this Unix time and are not settled, the oldest first."""
    (found,) = redis.read(
        ("ZRANGEBYSCORE", keys.UNSETTLED_TASKS, "-inf", before, "LIMIT", 0, limit)
    )
    return list(found)


def with_blocked_tasks(redis: Redis, queues: Sequence[str]) -> list[str]:
    """Return those of the queues that have blocked tasks: in most cases none."""
    (count,) = redis.read(("EXISTS", *map(keys.blocked, queues)))
    if not count or len(queues) == 1:
        return [*queues] if count else []
    exist = redis.read(*[("EXISTS", keys.blocked(queue)) for queue in queues])
    return [queue for queue, exists in zip(queues, exist, strict=True) if exists]


def tasks_to_recheck(redis: Redis, queue: str, now: float, limit: int) -> list[str]:
    """Return blocked tasks of a queue that `recheck` is to look at by now."""
    (due,) = redis.read(("ZRANGEBYSCORE", keys.blocked(queue), "-inf", now, "LIMIT", 0, limit))
    return list(due)
