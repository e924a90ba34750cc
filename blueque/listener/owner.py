"""Owner: the part of a Listener that owns attempts: it takes them over, hands them back, and puts
back what Redis has lost.
"""

from __future__ import annotations

import logging
import os
import time

from blueque.errors import NotFree
from blueque.listener.member import Member
from blueque.model.attempt_ref import AttemptRef
from blueque.model.task import Task
from blueque.protocol import attempts, placement, recover, reserving
from blueque.queries.inspector import Inspector
from blueque.system import process

log = logging.getLogger("blueque")


class Owner(Member):
    """The attempts under the node id of one listener."""

    def held(self) -> list[Task]:
        """Return the tasks in our own list that are reserved or started under our node id."""
        inspector = Inspector(self._redis)
        tasks = [inspector.task(task_id) for task_id in inspector.reserved(self.queue, self.node)]
        return [
            task
            for task in tasks
            if task.status in ("reserved", "started") and task.node == self.node
        ]

    def put_back(self, task_id: str) -> None:
        """Put a task of our own list back in its line, if it is pending: Redis has lost that we
        reserved it.

        One that we have reserved or started stays. Source: docs/protocol.md, "beat" and "reserve".
        """
        if self._put_back(task_id):
            log.warning(
                "put back task=%s queue=%s: Redis had lost its reservation", task_id, self.queue
            )
            self._do_for_others(lambda: reserving.wake(self._redis, self.queue))

    def release(self, task: Task, reason: str | None = None) -> str:
        """Hand back an attempt of ours; return the status that the task has now. Source:
        docs/protocol.md, "release".

        reason: one word, for the history of the task.
        """
        attempt = AttemptRef(self.queue, task.id, task.token, task.node or "")
        status = attempts.release(self._redis, attempt, time.time(), reason=reason)
        lock = task.fields.get("lock")
        if lock is not None:
            self._do_for_others(lambda: placement.wake_waiting(self._redis, lock))
        return status

    def adopt(self, task: Task) -> Task | None:
        """Take over a started attempt from a listener that the caller knows to be dead; None:
        another was first.

        Source: docs/protocol/recovery.md, "adopt".
        """
        attempt = AttemptRef(self.queue, task.id, task.token, task.node or "")
        fields = recover.adopt(self._redis, attempt, self.node, self.instance or "", time.time())
        if fields is None:
            return None
        text = "adopt task=%s queue=%s node=%s pid=%s from=%s"
        log.warning(text, task.id, self.queue, self.node, task.pid, task.node)
        return Task(task.id, fields)

    def reassert(self, task: Task, pid: int, since: str | None = None) -> Task | None:
        """Put back a running attempt of ours that Redis has lost; None: it is not ours to put back.

        since: our `instance` when we began to watch it. Source: docs/protocol/recovery.md, "reassert".
        """
        identity = {name: str(value) for name, value in process.identity(pid).items()}
        ours = {**identity, **task.fields, "pid": str(pid)}
        now = time.time()
        fields = recover.reassert(
            self._redis, self.queue, task.id, self.node, self.instance or "", ours, now, since
        )
        if fields is None:
            return None
        text = "reassert task=%s queue=%s node=%s pid=%d: Redis had lost it"
        log.warning(text, task.id, self.queue, self.node, pid)
        return Task(task.id, fields)

    def restore(self, task: Task, pid: int, started: float) -> Task | None:
        """Take back a task that was declared lost although its process is there; None: it has
        another attempt by now.

        task: as it was when the attempt ran. Source: docs/protocol/recovery.md, "restore".
        """
        attempt = AttemptRef(self.queue, task.id, task.token or "", self.node)
        instance, identity = self.instance or "", process.identity(pid)
        fields = recover.restore(
            self._redis, attempt, instance, pid, identity, started, time.time()
        )
        if fields is None:
            return None
        log.warning("restore task=%s queue=%s node=%s pid=%d", task.id, self.queue, self.node, pid)
        return Task(task.id, fields)

    def _put_back(self, task_id: str) -> bool:
        attempt = AttemptRef(self.queue, task_id, os.urandom(16).hex(), self.node)
        try:
            reserving.reserve(self._redis, attempt, self.instance or "", time.time(), is_met=False)
        except NotFree:
            return True
        return False
