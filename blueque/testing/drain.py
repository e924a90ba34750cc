"""drain: run pending tasks in this process, through the real protocol."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import Any

from blueque.client import Client
from blueque.listener.listener import Listener
from blueque.listener.processor import Processor
from blueque.listener.resources import MOST_NUMBERED, Claim, Pool
from blueque.model import inputs
from blueque.model import limits as task_limits
from blueque.model.converter import Types
from blueque.model.task import Task
from blueque.model.task_id import TaskId
from blueque.node import checkpoint_sync
from blueque.node.checkpoint_sync import CheckpointSync
from blueque.recovery.dependents import Dependents
from blueque.spool import checkpoint
from blueque.spool.attempt import Attempt
from blueque.spool.spool import Spool
from blueque.system import process
from blueque.task_process.handlers import Handler
from blueque.task_process.registered import QueueHandler, Settings
from blueque.testing.ended import Ended
from blueque.testing.simulated_task import Run, SimulatedTask, ended_of, run_attempt
from blueque.testing.time_limits import TimeLimits

MOST = 1000


def drain(
    client: Client,
    handlers: Mapping[str, Handler] | Sequence[QueueHandler[Any, Any]],
    *,
    most: int = MOST,
) -> list[Ended]:
    """Run the tasks of these queues in this process until none is in line.

    Return how each attempt ended, in order. Tasks are written to Redis as by a listener, and run
    one after another. Tasks that a handler enqueues, that are due, retried at once, or no longer
    blocked run, too. Later ones stay scheduled. Limits are simulated as by `run_task`, and every
    resource is available. In a handler, `task.client` is this client, and a `blueque.handler`
    enqueues there.
    handlers: by queue name, or a list from `blueque.handler`. Tasks of the first queue go first.
    most: the most attempts to run.
    """
    if not isinstance(handlers, Mapping):
        handlers = {queue: handler for handler in handlers for queue in handler.queues}
    listener = Listener(client.connections, [*handlers])
    ended: list[Ended] = []
    with tempfile.TemporaryDirectory(prefix="blueque-test-") as root:
        spool = Spool(root, client.max_bytes)
        spool.open()
        try:
            listener.reserver.pool = _Plenty()
            listener.register(None)
            while len(ended) < most:
                for queue in handlers:
                    client.get_queue(queue).enqueue_due_tasks()
                task = listener.take()
                if task is None:
                    break
                claim, listener.reserver.claim = listener.reserver.claim, None
                resources = claim.granted() if claim is not None else {}
                attempt = _Attempt(client, spool, task, resources)
                ended.append(attempt.run(handlers[task.queue or ""]))
        finally:
            listener.leave()
    return ended


class _Plenty(Pool):
    """Resources that are always free."""

    def __init__(self) -> None:
        super().__init__("", {})

    def claim(self, wanted: Mapping[str, int]) -> Claim | None:
        numbers = {name: list(range(n)) for name, n in wanted.items() if n <= MOST_NUMBERED}
        return Claim(wanted, numbers, [])


class _Attempt:
    """One attempt of a task that is reserved for this process. resources: see `RunningTask`."""

    def __init__(
        self, client: Client, spool: Spool, task: Task, resources: Mapping[str, list[int] | int]
    ) -> None:
        self._client, self._spool, self._resources = client, spool, resources
        self._processor = Processor(client.connections, task, client.max_bytes)

    def run(self, handler: Handler) -> Ended:
        self._processor.start(os.getpid(), process.identity(os.getpid()))
        task, attempt = self._processor.task, self._open(self._processor.task)
        settings, types = Settings(None, {}), Types()
        if isinstance(handler, QueueHandler):
            types = handler.types
            settings = handler.settings if task.queue in handler.queues else settings
        texts = {name: str(limit) for name, limit in settings.limits.items()}
        timing = TimeLimits(task_limits.of({**texts, **task.fields}, task_limits.Limits()))
        most = self._client.max_bytes
        running = SimulatedTask(
            task.id, task.fields, attempt, self._resources, most, timing, client=self._client
        )
        run = run_attempt(handler, running, attempt, timing, most)
        for number, text in enumerate(running.noted, 1):
            self._processor.note(number, text, time.time())
        CheckpointSync(attempt, most).finish(self._processor)
        default = settings.retry or None
        self._processor.report(run.record, default, checkpoint.exists(attempt.path))
        attempt.mark_reported()
        self._settle(task)
        return self._ended(TaskId(task.id, converter=types.result), running, attempt, run)

    def _ended(self, task_id: TaskId, running: SimulatedTask, attempt: Attempt, run: Run) -> Ended:
        now = self._client.get_task(task_id)
        is_over = now.status in ("complete", "failed", None)
        outcome = run.record["status"] if is_over else "retried"
        delay = None if is_over else max((now.eta or 0.0) - time.time(), 0.0)
        return ended_of(running, run, attempt, outcome, now.result, delay, now.failures or 0)

    def _open(self, task: Task) -> Attempt:
        """Create the files that the attempt finds at its start."""
        inspector, number = self._client.get_inspector(), task.attempt or 1
        attempt = self._spool.create(task.id, number, task.fields)
        if number > 1:
            kept = checkpoint_sync.trusted(task, inspector.checkpoint(task.id))
            checkpoint_sync.carry(self._spool, task, attempt, kept, self._client.max_bytes)
        if task.inputs is not None:
            given = inputs.to_json(inspector.inputs(task.id), task.parents or ())
            if given is not None:
                attempt.write_inputs(given)
        return attempt

    def _settle(self, task: Task) -> None:
        """Tell the tasks that wait for this one, and its group, how it ended."""
        dependents = Dependents(self._client.connections)
        if self._processor.is_awaited:
            dependents.note([task.id])
        while dependents.step():
            pass
        if "group" in task.fields:
            while dependents.step_of_groups():
                pass
