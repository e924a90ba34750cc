"""The methods of a Queue that change tasks which are there: delete, cancel, requeue, move and so on."""

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
        """Put at most a hundred due tasks in line, so that it never takes long. None: nothing was
        due.
        """
        moved = submit.enqueue_due(self._redis, self.name, time.time() if now is None else now)
        for task_id in moved or ():
            log.info("enqueue_due task=%s queue=%s", task_id, self.name)
        return moved

    def delete_task(self, task: Task, *, force: bool = False, by: str | None = None) -> None:
        """Remove a complete, failed or cancelled task for good. A task that is gone already is
        fine.

        force: even if other tasks wait for it. What it did is unknown to them then: they stay
            blocked until `unblock`, or are cancelled if they were made so.
        by: who deletes it (this user and host if left out), for the stream of the queue.
        Raises WrongQueue or WrongState, by the snapshot as in 1.0.0 and again by the current
        state; HasDependents.
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
        """Cancel a task. Return `cancelled`, or `cancelling` if its listener first has to end it.

        A running task gets SIGTERM and, after its grace, SIGKILL. If it ends by itself first, that
        outcome counts.
        by, reason: who cancels (this user and host if left out), and why; both stay with the task.
        only: the statuses in which the task may be cancelled. With ["scheduled", "pending"], a task
            that has started meanwhile runs on.
        Raises WrongState when it has ended, is in another status, or a listener of 1.0.0 has
        it; WrongQueue.
        Source: docs/protocol.md, "cancel".
        """
        who = process.who_of(by)
        status = operator.cancel(self._redis, self.name, task_id, who, reason, time.time(), only)
        log.info("cancel task=%s queue=%s by=%s status=%s", task_id, self.name, who, status)
        if status == "cancelled":
            tell_of_end(self._redis, task_id, time.time())
        return status

    def interrupt(self, task_id: str, by: str | None = None, reason: str | None = None) -> None:
        """Take a running task off its listener, and make it the next in line, at no cost.

        The task gets SIGTERM and, after its grace, SIGKILL. Its checkpoint stays. If it ends by
        itself first, that outcome counts. This is your consent to another start, also without a
        retry policy.
        by, reason: who interrupts it (this user and host if left out), and why; both stay with the
            task.
        Raises WrongState when it does not run, is being cancelled, or a listener of 1.0.0 has
        it; WrongQueue.
        Source: docs/protocol/operator.md, "interrupt".
        """
        who = process.who_of(by)
        operator.interrupt(self._redis, self.name, task_id, who, reason, time.time())
        log.info("interrupt task=%s queue=%s by=%s", task_id, self.name, who)

    def set_priority(self, task_id: str, priority: int, by: str | None = None) -> None:
        """Give a waiting task another priority; it becomes the last of that priority.

        by: who changes it, for its history; this user and host if left out.
        Raises WrongState, WrongQueue. Source: docs/protocol/operator.md, "place".
        """
        who = process.who_of(by)
        number = require_priority(priority)
        placement.place(self._redis, self.name, task_id, time.time(), who, priority=number)
        log.info(
            "set_priority task=%s queue=%s priority=%d by=%s", task_id, self.name, priority, who
        )

    def put_first(self, task_id: str, by: str | None = None) -> None:
        """Make a pending task the next of its priority.

        A scheduled task has no place in line yet: WrongState.
        by: as for `set_priority`.
        Raises WrongState, WrongQueue. Source: docs/protocol/operator.md, "place".
        """
        who = process.who_of(by)
        placement.place(self._redis, self.name, task_id, time.time(), who, is_first=True)
        log.info("put_first task=%s queue=%s by=%s", task_id, self.name, who)

    def bring_forward(self, task_id: str, by: str | None = None) -> None:
        """Put a scheduled task in line now, with all other due tasks of the queue.

        by: as for `set_priority`.
        Raises WrongState, WrongQueue. Source: docs/protocol/operator.md, "bring_forward".
        """
        who = process.who_of(by)
        placement.bring_forward(self._redis, self.name, task_id, time.time(), who)
        log.info("bring_forward task=%s queue=%s by=%s", task_id, self.name, who)
        self.enqueue_due_tasks()

    def move(self, task_id: str, to: str, by: str | None = None) -> None:
        """Move a waiting task to another queue, as the last of its line.

        by: as for `set_priority`.
        Raises WrongState, WrongQueue. Source: docs/protocol/operator.md, "place".
        """
        who = process.who_of(by)
        to = self._redis.settings.queue_name(require_queue_name(to))
        placement.place(self._redis, self.name, task_id, time.time(), who, to=to)
        log.info("move task=%s queue=%s to=%s by=%s", task_id, self.name, to, who)

    def ask_stack(self, task_id: str, mark: str) -> str | None:
        """Order the listener of a running task to show in its log where the task is; return the
        status of the task.

        mark: a random text in the line of the log that begins the answer. If the status is not
            started, no listener was asked.
        Source: docs/protocol/operator.md, "ask_stack".
        """
        return operator.ask_stack(self._redis, self.name, task_id, mark)

    def requeue(self, task_id: str, by: str | None = None) -> str:
        """Put a failed or cancelled task in line again. This is your consent to another start.
        Return the status that it has then: `pending`, or `blocked` if it still waits for other
        tasks. Its failures and interruptions count from 0 again; the numbers of its attempts go on.

        by: who requeues it (this user and host if left out). If its last attempt is still running
            somewhere, it can no longer report.
        Raises WrongState, WrongQueue; WrongGroup for a task of a workflow whose tasks are not all
            there. Source: docs/protocol/operator.md, "requeue".
        """
        who = process.who_of(by)
        mark = os.urandom(16).hex()
        status = operator.requeue(self._redis, self.name, task_id, mark, time.time(), who)
        log.info("requeue task=%s queue=%s status=%s", task_id, self.name, status)
        return status

    def unblock(self, task_id: str, parents: Ids | None = None, by: str | None = None) -> str:
        """Have a blocked task no longer wait for some tasks, or for any. Return the status that it
        has then: `pending` or `scheduled` if nothing is left to wait for, else `blocked`.

        parents: those that it is not to wait for, as for `after` of `enqueue`; None: all.
        by: as for `set_priority`.
        Raises WrongState, WrongQueue; InvalidInput for one that it does not wait for; WrongGroup if
            it might run before all tasks of its workflow are there.
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
