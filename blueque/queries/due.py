"""What falls due: deadlines for starting, unsettled ends of tasks, and blocked tasks to recheck."""

from __future__ import annotations

from collections.abc import Sequence

from blueque.connection.redis import Redis, as_scores, time_of
from blueque.model import keys


def expiring(redis: Redis, most: int) -> tuple[float, dict[str, float]]:
    """Return the time of Redis, and the start deadlines by id, earliest first; at most `most`."""
    clock, found = redis.read(("TIME",), ("ZRANGE", keys.EXPIRING, 0, most - 1, "WITHSCORES"))
    return time_of(clock), as_scores(found)


def queues_of(redis: Redis, tasks: Sequence[str]) -> list[str | None]:
    """Return the queue of each task; None: it is gone."""
    return list(redis.read(*[("HGET", keys.task(task), "queue") for task in tasks]))


def unsettled_tasks(redis: Redis, before: float, limit: int) -> list[str]:
    """Return tasks that ended before this Unix time and are not settled, oldest first."""
    (found,) = redis.read(
        ("ZRANGEBYSCORE", keys.UNSETTLED_TASKS, "-inf", before, "LIMIT", 0, limit)
    )
    return list(found)


def with_blocked_tasks(redis: Redis, queues: Sequence[str]) -> list[str]:
    """Return the queues that have blocked tasks: usually none."""
    (count,) = redis.read(("EXISTS", *map(keys.blocked, queues)))
    if not count or len(queues) == 1:
        return [*queues] if count else []
    exist = redis.read(*[("EXISTS", keys.blocked(queue)) for queue in queues])
    return [queue for queue, exists in zip(queues, exist, strict=True) if exists]


def tasks_to_recheck(redis: Redis, queue: str, now: float, limit: int) -> list[str]:
    """Return blocked tasks of a queue that `recheck` must check by now."""
    (due,) = redis.read(("ZRANGEBYSCORE", keys.blocked(queue), "-inf", now, "LIMIT", 0, limit))
    return list(due)
