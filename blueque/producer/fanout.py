"""Fanout: one call puts a task into each of several queues."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Any, Unpack

from blueque.connection.redis import Redis
from blueque.errors import InvalidInput
from blueque.model.options import FanoutOptions, require_known
from blueque.model.task_id import TaskId
from blueque.producer.dependent_tasks import make_each
from blueque.producer.queue import Queue
from blueque.protocol.dependencies import AT_ONCE

log = logging.getLogger("blueque")


class Fanout:
    """Several queues that each get a task of their own.

    name: for people and the log; Redis does not know it.
    queues: their names.
    """

    def __init__(self, redis: Redis, name: str, queues: Sequence[Queue]) -> None:
        self.name = name
        self.queues = tuple(queue.name for queue in queues)
        if not queues:
            raise InvalidInput(f"fan-out {name!r}: it needs a queue")
        if len(queues) > AT_ONCE:
            why = f"it takes at most {AT_ONCE} queues, not {len(queues)}"
            raise InvalidInput(f"fan-out {name!r}: {why}")
        twice = [queue for queue in dict.fromkeys(self.queues) if self.queues.count(queue) > 1]
        if twice:
            raise InvalidInput(f"fan-out {name!r}: queue {twice[0]!r} is there twice")
        self._redis, self._queues = redis, tuple(queues)

    def __repr__(self) -> str:
        return f"<Fanout {self.name!r} to {', '.join(self.queues)}>"

    def enqueue(self, parameters: Any, **options: Unpack[FanoutOptions]) -> dict[str, TaskId]:
        """Put a new task into each queue, all or none, and return their ids by queue.

        The tasks are independent: each is run, retried and cancelled on its own.
        options: for all tasks: those of `Queue.enqueue` except `id`, and `eta` of `Queue.schedule`.
            `[queues.X]` applies to the task of each queue. `after` takes at most 100 tasks.
        key: counts in each queue separately. A queue that has a task with this key gets no second
            one; its id is returned, and is not `is_new`.
        Raises what `Queue.enqueue` raises.
        Source: docs/protocol/dependencies.md, "enqueue_after".
        """
        require_known("Fanout.enqueue", options, FanoutOptions)
        if options.get("tags") is not None:
            options["tags"] = [*options["tags"]]  # type: ignore[misc]  # each task reads them
        new = [queue.new_task(parameters, **options) for queue in self._queues]
        are_new = make_each(self._redis, new, time.time())
        log.info("fan_out name=%s tasks=%s", self.name, ",".join(task.task for task in new))
        return {
            task.queue: TaskId(task.task, is_new) for task, is_new in zip(new, are_new, strict=True)
        }
