"""The tasks that must start by a time."""

from __future__ import annotations

from collections.abc import Sequence

from blueque.connection.redis import Redis
from blueque.model import keys


def first(redis: Redis, most: int) -> dict[str, float]:
    """Return until when tasks must have started, by id, the earliest first; at most so many."""
    (found,) = redis.read(("ZRANGE", keys.EXPIRING, 0, most - 1, "WITHSCORES"))
    return dict(zip(found[::2], map(float, found[1::2]), strict=True))


def queues_of(redis: Redis, tasks: Sequence[str]) -> list[str | None]:
    """Return the queue of each task; None: it is gone."""
    return list(redis.read(*[("HGET", keys.task(task), "queue") for task in tasks]))
