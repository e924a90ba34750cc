"""What a running task does in Redis: create tasks, and let tasks wait for more.

Imported with the first call, because most tasks do not use Redis.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from blueque.connection.redis import Redis
from blueque.errors import InvalidInput, InvalidType
from blueque.model.attempt_ref import AttemptRef
from blueque.model.new import New, TransactionBudget
from blueque.model.new_task import NewTask
from blueque.model.task import Task
from blueque.model.task_id import TaskId
from blueque.producer.sealing import store
from blueque.protocol import spawning
from blueque.protocol.spawning import SPAWNED_AT_ONCE

log = logging.getLogger("blueque")


class Spawner(NamedTuple):
    """A running task with its connection to the Redis of its listener."""

    attempt: AttemptRef
    redis: Redis

    @classmethod
    def of(cls, task: Task, redis: Redis) -> Spawner:
        attempt = AttemptRef(task.queue or "", task.id, task.token, task.node or "")
        return cls(attempt, redis)

    def spawn(self, tasks: Iterable[New]) -> list[TaskId]:
        """Create the tasks in as few transactions as possible. Raises as `protocol.spawning.spawn`."""
        made: list[TaskId] = []
        for chunk in _chunks(self._records(tasks)):
            are_new = spawning.spawn(self.redis, self.attempt, chunk, time.time())
            for new, is_new in zip(chunk, are_new, strict=True):
                made.append(TaskId(new.task, is_new))
                if is_new:
                    log.info("spawn task=%s queue=%s by=%s", new.task, new.queue, self.attempt.task)
        return made

    def _records(self, tasks: Iterable[New]) -> Iterator[NewTask]:
        for new in tasks:
            if not isinstance(new, New):
                raise InvalidType(f"a new task is a blueque.New, not {type(new).__name__}")
            yield store(self.redis, new.record(self.attempt.task))


def _chunks(tasks: Iterable[NewTask]) -> Iterator[list[NewTask]]:
    """Yield lists of tasks that fit into a transaction. Raises InvalidInput for a task too large."""
    chunk: list[NewTask] = []
    budget = TransactionBudget(SPAWNED_AT_ONCE)
    for new in tasks:
        try:
            budget.take(new)
        except InvalidInput:
            if chunk:
                yield chunk
            chunk, budget = [], TransactionBudget(SPAWNED_AT_ONCE)
            budget.take(new)
        chunk.append(new)
    if chunk:
        yield chunk
