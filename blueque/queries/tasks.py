"""Read one task from Redis."""

from __future__ import annotations

from collections.abc import Callable

from blueque.connection.redis import Redis, as_hash
from blueque.model import keys
from blueque.model.task import Task


def load(redis: Redis, task_id: str, wait: Callable[..., Task] | None = None) -> Task:
    """Return a snapshot of a task. For an unknown id all attributes are None, as in 1.0.0.

    wait: the function that `Task.wait` of the snapshot calls.
    """
    (reply,) = redis.read(("HGETALL", keys.task(task_id)))
    return Task(task_id, as_hash(reply), wait)
