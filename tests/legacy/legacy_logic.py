"""The command order of blueque 1.0.0: which commands it sends in one write, and what it does with
the answers.

Copied by hand from redis_queue.py, listener.py and forking_runner.py of 1.0.0. A pipeline of
redis-py is one MULTI ... EXEC in one write; redis-py 5, for which it was made, tries nothing again.
The real package runs in tests/legacy/test_interop.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from blueque.connection.redis import Command, Redis, raise_refusal


class LegacyQueue:
    """1.0.0's RedisQueue of one queue."""

    def __init__(self, redis: Redis, queue: str) -> None:
        self._redis, self._queue = redis, queue

    def add_listener(self, node: str) -> None:
        self._pipeline(
            ("SADD", self._key("listeners"), node), ("ZINCRBY", "blueque_queues", 1, self._queue)
        )

    def remove_listener(self, node: str) -> int:
        removed: int = self._execute(("SREM", self._key("listeners"), node))
        if removed > 0:
            self._execute(("ZINCRBY", "blueque_queues", -1, self._queue))
        return removed

    def listeners(self) -> list[str]:
        return sorted(self._execute(("SMEMBERS", self._key("listeners"))))

    def enqueue(self, task: str, parameters: str, now: float) -> None:
        self._pipeline(
            (
                "HSET",
                f"blueque_task_{task}",
                "status",
                "pending",
                "queue",
                self._queue,
                "parameters",
                parameters,
                "created",
                now,
                "updated",
                now,
            ),
            ("ZINCRBY", "blueque_queues", 0, self._queue),
            ("LPUSH", self._key("pending_tasks"), task),
        )

    def dequeue(self, node: str, now: float) -> str | None:
        task: str | None = self._execute(
            ("RPOPLPUSH", self._key("pending_tasks"), self._key("reserved_tasks", node))
        )
        if task is not None:
            self._execute(
                ("HSET", f"blueque_task_{task}", "status", "reserved", "node", node, "updated", now)
            )
        return task

    def start(self, task: str, node: str, pid: int, now: float) -> None:
        self._pipeline(
            ("SADD", self._key("started_tasks"), f"{node} {pid} {task}"),
            ("HSET", f"blueque_task_{task}", "status", "started", "pid", pid, "updated", now),
        )

    def reclaim_task(self, old: str, node: str) -> str | None:
        task: str | None = self._execute(("LINDEX", self._key("reserved_tasks", old), 0))
        if task is not None:
            self.claim(task, node)
        return task

    def claim(self, task: str, node: str) -> None:
        self._execute(("HSET", f"blueque_task_{task}", "reclaimed_node", node))

    def finish(self, task: str, node: str, pid: int, status: str, value: str, now: float) -> None:
        """complete, or fail with an error."""
        self._pipeline(
            ("LREM", self._key("reserved_tasks", node), 1, task),
            ("SREM", self._key("started_tasks"), f"{node} {pid} {task}"),
            (
                "HSET",
                f"blueque_task_{task}",
                "status",
                status,
                "result" if status == "complete" else "error",
                value,
                "updated",
                now,
            ),
            ("LPUSH", self._key(f"{status}_tasks"), task),
        )

    def enqueue_due_tasks(self, now: float) -> None:
        """Its `redis.transaction`, once; that one tries again for ever when the watched set has
        changed.
        """
        connection = self._redis.connection()
        due_tasks = self._key("scheduled_tasks")
        connection.exchange([("WATCH", due_tasks)])
        (due,) = connection.exchange([("ZRANGEBYSCORE", due_tasks, 0, now)])
        if due:
            commands: list[Command] = [("ZREMRANGEBYSCORE", due_tasks, 0, now)]
            for task in due:
                commands += [
                    ("LPUSH", self._key("pending_tasks"), task),
                    ("HSET", f"blueque_task_{task}", "status", "pending", "updated", now),
                ]
            self._pipeline(*commands)
        connection.exchange([("UNWATCH",)])

    def task(self, task: str) -> dict[str, str]:
        reply = self._execute(("HGETALL", f"blueque_task_{task}"))
        return dict(zip(reply[::2], reply[1::2], strict=True))

    def _key(self, *parts: str) -> str:
        return "_".join(("blueque", parts[0], self._queue, *parts[1:]))

    def _execute(self, command: Command) -> Any:
        (reply,) = replies = self._redis.connection().exchange([command])
        raise_refusal(replies)
        return reply

    def _pipeline(self, *commands: Command) -> None:
        replies = self._redis.connection().exchange([("MULTI",), *commands, ("EXEC",)])
        raise_refusal([*replies, *(replies[-1] or [])])


def run_task(
    queue: LegacyQueue,
    task: dict[str, str],
    task_id: str,
    pid: int,
    call: Callable[[], str],
    now: float,
) -> None:
    """What the child of its ForkingRunner does. Its parent only waits for it, and looks at nothing."""
    queue.start(task_id, task["node"], pid, now)
    end_task(queue, task, task_id, pid, call, now)


def end_task(
    queue: LegacyQueue,
    task: dict[str, str],
    task_id: str,
    pid: int,
    call: Callable[[], str],
    now: float,
) -> None:
    """The second half of that."""
    try:
        queue.finish(task_id, task["node"], pid, "complete", call(), now)
    except Exception as error:  # an answer that was lost, too
        queue.finish(task_id, task["node"], pid, "failed", str(error), now)


def claim_orphan(queue: LegacyQueue, node: str, is_running: Callable[[str], bool]) -> str | None:
    """Its Listener.claim_orphan."""
    for other in queue.listeners():
        if other == node or is_running(other) or queue.remove_listener(other) == 0:
            continue
        task = queue.reclaim_task(other, node)
        if task is not None:
            return task
    return None
