"""Inspector: every look at Redis that changes nothing. No KEYS, no SCAN, no range without a bound but a listener's own."""

from __future__ import annotations

from blueque import keys
from blueque.connection import Redis, as_hash
from blueque.task import Task, load


class Inspector:
    """Looks at one Redis."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis

    def task(self, task_id: str) -> Task:
        return load(self._redis, task_id)

    def queues(self) -> list[str]:
        """Return the names of all queues, sorted."""
        (names,) = self._redis.read(("ZRANGE", keys.QUEUES, 0, -1))
        return sorted(names)

    def pending(self, queue: str) -> int:
        """Return how many tasks are in line."""
        (length,) = self._redis.read(("LLEN", keys.pending(queue)))
        return int(length)

    def listeners(self, queue: str) -> list[str]:
        """Return the node ids of the queue's listeners, 1.0.0's among them, sorted."""
        (nodes,) = self._redis.read(("SMEMBERS", keys.listeners(queue)))
        return sorted(nodes)

    def registration(self, queue: str, node: str) -> dict[str, str]:
        """Return what a listener said when it registered; empty for one of 1.0.0."""
        (reply,) = self._redis.read(("HGETALL", keys.listener(queue, node)))
        return as_hash(reply)

    def reserved(self, queue: str, node: str) -> list[str]:
        """Return the ids of the tasks that a listener holds, newest first."""
        (held,) = self._redis.read(("LRANGE", keys.reserved(queue, node), 0, -1))
        return list(held)
