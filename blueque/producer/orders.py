"""The methods of a Queue that change existing tasks: delete, cancel, requeue, move and others."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Collection

from blueque.connection.redis import Redis
from blueque.errors import HasDependents, InvalidInput, WrongQueue, WrongState
from blueque.model.conditions import Ids, names_of
from blueque.model.encoding import require_queue_name
from blueque.model.lines import require_priority
from blueque.model.task import Task
from blueque.producer.dependents import is_awaited, tell_of_end
from blueque.protocol import operator, placement, rechecking, submit
from blueque.protocol.events import Event
from blueque.protocol.groups import settle_members
from blueque.queries import groups
from blueque.queries.dependencies import kinds
from blueque.system import process

log = logging.getLogger("blueque")


class TaskOrders:
    """The part of a Queue that changes its tasks."""

    name: str
    _redis: Redis

    def enqueue_due_tasks(self, now: float | None = None) -> list[str]:
        """Put every due task in line, earliest first, and return their ids.

        now: the time by which they are due, in Unix seconds; None: that of this machine.
        Source: docs/protocol.md, "enqueue_due".
        """
        now = time.time() if now is None else now
        moved: list[str] = []
        while (batch := self.enqueue_due_batch(now)) is not None:
            moved += batch
        return moved

    def enqueue_due_batch(self, now: float | None = None) -> list[str] | None:
        """Put at most a hundred due tasks in line and return their ids. None: no task was due."""
        moved = submit.enqueue_due(self._redis, self.name, time.time() if now is None else now)
        for task_id in moved or ():
            log.info("enqueue_due task=%s queue=%s", task_id, self.name)
        return moved

    def delete_task(self, task: Task, *, force: bool = False, by: str | None = None) -> None:
        """Delete a complete, failed or cancelled task. A missing task is not an error.

        force: even if other tasks wait for it. They never learn how it ended: they stay blocked
            until `unblock`, or are cancelled if they were made with broken="cancel".
        by: who deletes it, for the events of the queue. Default: this user and host.
        Raises HasDependents; WrongQueue or WrongState, for the snapshot as in 1.0.0 or the present state.
        Source: docs/protocol.md, "delete".
        """
        if task.queue != self.name:
            raise WrongQueue(task.id, self.name)
        if task.status not in ("complete", "failed", "cancelled"):
            raise WrongState(task.id, task.status, "delete")
        now, who = time.time(), process.who_of(by)
        event = Event("deleted", who, now)
        try:
            submit.delete(self._redis, self.name, task.id, force, event)
        except HasDependents as refusal:
            if not force:  # others may have waited, and not wait any more
                is_awaited(self._redis, task.id, now)
            if refusal.is_group:
                for member in groups.look_at(self._redis, [task.id]):
                    settle_members(self._redis, member.group or "", [task.id])
            submit.delete(self._redis, self.name, task.id, force, event)
        log.info("delete task=%s queue=%s by=%s", task.id, self.name, who)

    def cancel(
        self,
        task_id: str,
        by: str | None = None,
        reason: str | None = None,
        *,
        only: Collection[str] | None = None,
    ) -> str:
        """Cancel a task. Return `cancelled`, or `cancelling` if its listener has to end it first.

        A running task gets SIGTERM and, after its grace, SIGKILL. If it ends on its own first, that
        outcome counts.
        by, reason: who cancels (default: this user and host), and why. The task keeps both.
        only: the statuses in which the task may be cancelled. With ["scheduled", "pending"], a task
            that has started meanwhile keeps running.
        Raises WrongQueue; WrongState if it is complete, failed or gone, has another status, or is
            with a 1.0.0 listener. A cancelled task stays as it is.
        Source: docs/protocol.md, "cancel".
        """
        who = process.who_of(by)
        status = operator.cancel(self._redis, self.name, task_id, who, reason, time.time(), only)
        log.info("cancel task=%s queue=%s by=%s status=%s", task_id, self.name, who, status)
        if status == "cancelled":
            tell_of_end(self._redis, task_id, time.time())
        return status

    def interrupt(self, task_id: str, by: str | None = None, reason: str | None = None) -> None:
        """Take a running task from its listener and make it the next in line, at no cost.

        The task gets SIGTERM and, after its grace, SIGKILL. Its checkpoint stays. If it ends on its
        own first, that outcome counts. This is your consent to another start, even without a retry
        policy.
        by, reason: who interrupts it (default: this user and host), and why. The task keeps both.
        Raises WrongQueue; WrongState if it is not running, is being cancelled, or is with a 1.0.0
            listener.
        Source: docs/protocol/operator.md, "interrupt".
        """
        who = process.who_of(by)
        operator.interrupt(self._redis, self.name, task_id, who, reason, time.time())
        log.info("interrupt task=%s queue=%s by=%s", task_id, self.name, who)

    def set_priority(self, task_id: str, priority: int, by: str | None = None) -> None:
        """Give a waiting task another priority, as the last of that priority.

        by: who changes it, for its history. Default: this user and host.
        Raises WrongState, WrongQueue; InvalidInput for a priority out of range.
        Source: docs/protocol/operator.md, "place".
        """
        who = process.who_of(by)
        number = require_priority(priority)
        placement.place(self._redis, self.name, task_id, time.time(), who, priority=number)
        log.info(
            "set_priority task=%s queue=%s priority=%d by=%s", task_id, self.name, priority, who
        )

    def put_first(self, task_id: str, by: str | None = None) -> None:
        """Make a pending task the next of its priority.

        by: as for `set_priority`.
        Raises WrongState, also for a scheduled task, which has no place in line yet; WrongQueue.
        Source: docs/protocol/operator.md, "place".
        """
        who = process.who_of(by)
        placement.place(self._redis, self.name, task_id, time.time(), who, is_first=True)
        log.info("put_first task=%s queue=%s by=%s", task_id, self.name, who)

    def bring_forward(self, task_id: str, by: str | None = None) -> None:
        """Put a scheduled task in line now, along with all due tasks of the queue.

        by: as for `set_priority`.
        Raises WrongState, WrongQueue.
        Source: docs/protocol/operator.md, "bring_forward".
        """
        who = process.who_of(by)
        placement.bring_forward(self._redis, self.name, task_id, time.time(), who)
        log.info("bring_forward task=%s queue=%s by=%s", task_id, self.name, who)
        self.enqueue_due_tasks()

    def move(self, task_id: str, to: str, by: str | None = None) -> None:
        """Move a waiting task to the end of another queue.

        by: as for `set_priority`.
        Raises WrongState, WrongQueue; InvalidInput for a wrong name.
        Source: docs/protocol/operator.md, "place".
        """
        who = process.who_of(by)
        to = self._redis.settings.queue_name(require_queue_name(to))
        placement.place(self._redis, self.name, task_id, time.time(), who, to=to)
        log.info("move task=%s queue=%s to=%s by=%s", task_id, self.name, to, who)

    def ask_stack(self, task_id: str, mark: str) -> str | None:
        """Ask the listener of a running task to write the stack of the task into its log. Return
        the status of the task.

        Unless the status is started, no listener was asked.
        mark: a random text, which begins the answer in the log.
        Source: docs/protocol/operator.md, "ask_stack".
        """
        return operator.ask_stack(self._redis, self.name, task_id, mark)

    def requeue(self, task_id: str, by: str | None = None) -> str:
        """Put a failed or cancelled task in line again and return its new status.

        The status is `pending`, or `blocked` if the task still waits for others. This is your
        consent to another start. Its failures and interruptions count from 0 again; its attempts
        keep their numbering. If its last attempt still runs somewhere, that can no longer report.
        by: who requeues it. Default: this user and host.
        Raises WrongState, WrongQueue; WrongGroup for a task of an incomplete workflow.
        Source: docs/protocol/operator.md, "requeue".
        """
        who = process.who_of(by)
        mark = os.urandom(16).hex()
        status = operator.requeue(self._redis, self.name, task_id, mark, time.time(), who)
        log.info("requeue task=%s queue=%s status=%s", task_id, self.name, status)
        return status

    def unblock(self, task_id: str, parents: Ids | None = None, by: str | None = None) -> str:
        """Let a blocked task no longer wait for some tasks, or for any. Return its new status.

        It is `pending` or `scheduled` if nothing is left to wait for, else `blocked`.
        parents: the tasks that it no longer waits for, as for `after` of `enqueue`; None: all.
        by: as for `set_priority`.
        Raises WrongState, WrongQueue; InvalidInput for a task that it does not wait for; WrongGroup
            if it might run before all tasks of its workflow are in Redis.
        Source: docs/protocol/dependencies.md, "unblock".
        """
        who = process.who_of(by)
        dropped = None if parents is None else names_of(parents)
        known = kinds(self._redis, task_id) if dropped else {}
        for name in dropped or ():
            if known and name not in known:
                raise InvalidInput(f"task {task_id} does not wait for {name}")
        status = rechecking.unblock(self._redis, self.name, task_id, time.time(), who, dropped)
        log.info("unblock task=%s queue=%s by=%s status=%s", task_id, self.name, who, status)
        return status
