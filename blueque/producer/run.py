"""Run: what pipelines and people do with all tasks of one run."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import suppress

from blueque.connection.redis import Redis
from blueque.errors import Contended
from blueque.model.encoding import require_timeout
from blueque.model.parts import in_parts
from blueque.model.task import Task
from blueque.producer.groups import TaskGroup
from blueque.protocol import groups, runs
from blueque.protocol.groups import MEMBERS_AT_ONCE
from blueque.queries import run_progress
from blueque.queries.run_progress import RunSeen, RunWatcher
from blueque.queries.task_ends import ends

log = logging.getLogger("blueque")


class Run:
    """A run by its name: how far it is, the wait for its end, its failed tasks.

    It needs a group of its own: `group=` of the call that made it. `blueque.spark` gives one to
    each named run.
    """

    def __init__(self, redis: Redis, queue: str, name: str) -> None:
        self._redis, self.queue, self.name = redis, queue, name

    def __repr__(self) -> str:
        return f"<Run {self.name!r} of {self.queue!r}>"

    def progress(self) -> RunSeen:
        """Return how many of its tasks have ended, and how. Raises RunDropped: there is no such run."""
        return run_progress.load(self._redis, self.queue, self.name, time.time())

    def wait(self, timeout: float | None = None) -> RunSeen:
        """Block until the run is committed and all its tasks have ended; return its progress.

        timeout: in seconds; None: no limit. A failed task has ended, also if others wait for it.
        Redis reports the changes; where it cannot, the run is looked at each second.
        Raises WaitTimedOut; RunDropped; InvalidInput for a run without a group of its own.
        """
        require_timeout(timeout)
        watcher = RunWatcher(self._redis.connect, self._redis, self.queue, self.name)
        for _ in ends(watcher, self._redis.patience, timeout):
            pass  # it yields no tasks
        return self.progress()

    def tasks(self) -> Iterator[Task]:
        """Yield a snapshot of each of its tasks, with its result, in the order in which they were made.
        Those that were deleted or archived are left out.

        Raises RunDropped; InvalidInput for a run without a group of its own.
        """
        group = run_progress.require_own_group(self._redis, self.queue, self.name)
        return TaskGroup(self._redis, group).tasks()

    def requeue_failed(self, by: str | None = None) -> list[str]:
        """Put its tasks in line again that have failed or were cancelled; return their ids.

        by: who requeues them (this user and host if left out). `wait` then waits for them.
        Raises RunDropped; InvalidInput for a run without a group of its own.
        """
        group = run_progress.require_own_group(self._redis, self.queue, self.name)
        requeued = TaskGroup(self._redis, group).requeue(by)
        for some in in_parts(requeued, MEMBERS_AT_ONCE):
            with suppress(Contended):  # listeners and schedulers do it, too
                groups.settle_members(self._redis, group, some)
        return requeued

    def collected(self) -> bool:
        """Note that its results are where they are needed: retention may delete its tasks.

        False: that was noted before, or its tasks are not held. Raises RunDropped.
        Source: docs/protocol/bulk.md, "collect_run".
        """
        is_noted = runs.collect_run(self._redis, self.queue, self.name, time.time())
        if is_noted:
            log.info("collect_run run=%s queue=%s", self.name, self.queue)
        return is_noted
