"""The tasks that must start by a time."""

from __future__ import annotations

from collections.abc import Sequence

from blueque.connection.redis import Redis
from blueque.model import keys
from blueque.protocol.membership import scores
from blueque.protocol.schedule_record import time_of


def first(redis: Redis, most: int) -> tuple[float, dict[str, float]]:
    """Return the clock of Redis, and until when tasks must have started, by id, the earliest first;
    at most so many.
    """
    clock, found = redis.read(("TIME",), ("ZRANGE", keys.EXPIRING, 0, most - 1, "WITHSCORES"))
    return time_of(clock), scores(found)


def queues_of(redis: Redis, tasks: Sequence[str]) -> list[str | None]:
    """Return the queue of each task; None: it is gone."""
    return list(redis.read(*[("HGET", keys.task(task), "queue") for task in tasks]))
