"""Queue: what producers and schedulers do with one queue."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Any, Unpack

from blueque import protocol
from blueque.config.contents import QueueConfig
from blueque.config.toml_file import check_setting, require_setting
from blueque.connection.redis import Redis
from blueque.errors import (
    HasDependents,
    IdTaken,
    InvalidInput,
    NotFailed,
    NotFinished,
    NotSettled,
    WrongGroup,
    WrongQueue,
)
from blueque.model import labels, limits, trace
from blueque.model.conditions import After, Ids, names_of
from blueque.model.encoding import (
    decode,
    encode,
    require_queue_name,
    require_text_keys,
    require_time,
    require_timeout,
    require_whole,
)
from blueque.model.group import Group
from blueque.model.ids import (
    DEFAULT_KEEP,
    TaskId,
    id_fields,
    id_of_key,
    key_fields,
    random_id,
    require_id,
)
from blueque.model.lines import require_priority
from blueque.model.new import EnqueueOptions
from blueque.model.options import (
    Broken,
    Common,
    Options,
    option_fields,
    require_known,
    require_retry,
)
from blueque.model.queue_settings import (
    BOUNDS,
    malformed,
    read_setting,
    read_settings,
    write_setting,
)
from blueque.model.retry import Retry
from blueque.model.start_time import StartTime, Within, start_time
from blueque.model.task import Task
from blueque.producer.bulk import ManyTasks
from blueque.producer.dependent_tasks import make_one
from blueque.producer.dependents import is_awaited, tell_of_end
from blueque.producer.room import in_room
from blueque.producer.wait import wait_for
from blueque.protocol.dependencies import NewTask
from blueque.protocol.events import Event
from blueque.protocol.watches import ASK_BOUNDED
from blueque.queries import groups
from blueque.queries.dependencies import kinds
from blueque.queries.inspector import Inspector
from blueque.queries.tasks import load
from blueque.system import process

log = logging.getLogger("blueque")


class Queue(ManyTasks):
    """A named line of tasks of one type."""

    def __init__(
        self,
        redis: Redis,
        name: str,
        max_bytes: int,
        retry: Retry | int | None = None,
        config: QueueConfig = QueueConfig(),  # noqa: B008  # it does not change
    ) -> None:
        self.name = name
        self._retry = require_retry(config.retry if retry is None else retry)
        # A task has a limit or no field: "no limit" concerns the file and the listeners only.
        self._limits = {name: limit for name, limit in config.limits.items() if limit is not None}
        self._resources = config.resources or {}
        self._start_within = config.start_within
        self._redis = redis
        self._max_bytes = max_bytes

    def __repr__(self) -> str:
        return f"<Queue {self.name!r}>"

    def enqueue(
        self,
        parameters: Any,
        *,
        key: str | int | None = None,
        id: str | None = None,
        keep: float | str = DEFAULT_KEEP,
        priority: int = 0,
        resources: Mapping[str, int | str] | None = None,
        lock: str | tuple[str, int] | None = None,
        retry: Retry | int | None = None,
        time_limit: float | str | None = None,
        stall_limit: float | str | None = None,
        memory_limit: int | str | None = None,
        grace: float | str | None = None,
        lead: float | str | None = None,
        title: str | None = None,
        tags: Iterable[str] | None = None,
        context: Mapping[str, Any] | None = None,
        after: After | Ids | None = None,
        broken: Broken = "hold",
        results: bool = False,
        group: Group | str | None = None,
        start_within: Within = None,
        start_before: float | datetime | None = None,
        expired_to: str | None = None,
    ) -> TaskId:
        """Put a new task in line and return its id, a str that also knows whether the task
        `is_new`.

        parameters: a str is stored unchanged; any other value as JSON, so a tuple comes back as a
            list.
        key: the same key in the same queue is the same task, and makes no second one while the
            first is in Redis. A whole number is the same key as its digits.
        id: of the task, chosen by the caller; for a task that exists with these parameters, it
            makes no second one. 1 to 200 letters, digits and . _ : - of ASCII.
        keep: how long the key or the id stays in use after its task was deleted; seconds, or text as
            "1d".
        priority: -100 to 100. A higher priority goes first; among equal ones, the older task.
        resources: what its node must have free, as {"gpu": 1, "memory": "8GiB"}; it is reserved for
            the task.
        lock: only one task with this lock runs at a time, in all queues together. With
            ("licence", 3), three do.
        retry: a policy, or a number of retries; None: the policy of this Queue object, or else that
            of the listener; False: the task is never retried.
        time_limit, stall_limit: how long it may run, and how long without progress; seconds, or
            text as "2h".
        memory_limit: how much its processes may use together; bytes, or text as "8GiB".
        grace, lead: the time between SIGTERM and SIGKILL, and the time before a limit at which the
            task is warned.
        title: what people read beside its id: one line of at most 200 bytes.
        tags: what it is found by, as ["customer:17"]: at most 20, each of at most 200 bytes without
            spaces.
        context: a dict beside the parameters, for `RunningTask.context`: what the caller is about,
            such as {"trace": "4bf9"}. It counts to the size of the parameters; 64 KiB at most.
        after: other tasks, of any queue: their ids, or `blueque.after` for other conditions than
            that they are complete. The task is put in line when all conditions are met. 1,000 at
            most; no task, no condition. It takes groups, and what a call that makes many tasks of a
            `group` has returned.
        broken: what happens when one of them fails, is cancelled or deleted: "hold": the task waits
            until that is put right; "cancel": it is cancelled.
        results: whether the task is given their results, as `RunningTask.inputs`. Groups have none.
        group: the group that it joins, which must be open: see `Client.group`.
        start_within, start_before: if it has not started so long from now, in seconds or as "2h",
            or by then, in Unix seconds or as a datetime with a time zone, it is cancelled, for the
            reason `expired`. It never starts later. Once it has started, it may run again at any
            time. start_within=False: at any time, whatever `[queues.X]` says.
        expired_to: the queue to which it moves instead, to wait there for as long as it takes.
        Raises InvalidInput before anything is written; IdTaken; NoSuchTask or NoSuchGroup for what to wait for; RedisAway
        when nothing was written; OutcomeUnknown, with `task_id`, when the answer was lost and Redis
        stayed away, or when it went away before all of more than 100 conditions were written.
        Source: docs/protocol.md, "enqueue"; docs/protocol/dependencies.md, "enqueue_after".
        """
        its_limits = limits.fields(
            time_limit=time_limit,
            stall_limit=stall_limit,
            memory_limit=memory_limit,
            grace=grace,
            lead=lead,
        )
        its_labels = labels.fields(title, tags, context, trace.of_caller())
        named, of_name = self._name(key, id, keep)
        options = {
            **self._options(retry, its_limits, priority, resources, lock, its_labels),
            **of_name,
            **self._start(start_within, start_before, expired_to).fields(time.time()),
        }
        wait = wait_for(after, broken, results, group)
        text, coded = self._encode(parameters, options)
        fields = {**coded, **options}
        if wait:
            fields |= wait.fields()
            return self._enqueue_after(NewTask(named or random_id(), text, fields, wait.conditions))
        return self._enqueue(text, fields, named)

    def schedule(
        self, parameters: Any, eta: float | datetime, **options: Unpack[EnqueueOptions]
    ) -> TaskId:
        """Create a task that joins the line at `eta` and return its id.

        eta: Unix seconds, or a datetime with a time zone. A time already past enqueues at once.
        options: those of `enqueue`; `start_within` counts from `eta`. With `after`, it joins the
            line when both its time has come and the conditions are met.
        Source: docs/protocol.md, "schedule".
        """
        require_known("Queue.schedule", options, EnqueueOptions)
        now, due = time.time(), require_time(eta)
        new, named = self._new(parameters, now, due, **options)
        task_id, text, fields = new.task, new.parameters, new.options or {}
        if new.conditions or new.group is not None:
            return self._enqueue_after(new if due > now else new._replace(eta=None))
        if due < now:
            return self._enqueue(text, fields, named)
        is_new = protocol.schedule(
            self._redis, self.name, task_id, text, due, now, fields, named is None
        )
        log.info("schedule task=%s queue=%s eta=%s", task_id, self.name, due)
        return self._made(task_id, is_new or named is None, text, fields)

    def enqueue_due_tasks(self) -> list[str]:
        """Put every due task in line, earliest first, and return their ids.

        Source: docs/protocol.md, "enqueue_due".
        """
        now = time.time()
        moved: list[str] = []
        while (batch := self.enqueue_due_batch(now)) is not None:
            moved += batch
        return moved

    def enqueue_due_batch(self, now: float | None = None) -> list[str] | None:
        """Put at most a hundred due tasks in line, so that it never takes long. None: nothing was
        due.
        """
        moved = protocol.enqueue_due(self._redis, self.name, time.time() if now is None else now)
        for task_id in moved or ():
            log.info("enqueue_due task=%s queue=%s", task_id, self.name)
        return moved

    def delete_task(self, task: Task, *, force: bool = False, by: str | None = None) -> None:
        """Remove a complete, failed or cancelled task for good. A task that is gone already is
        fine.

        force: even if other tasks wait for it. What it did is unknown to them then: they stay
            blocked until `unblock`, or are cancelled if they were made so.
        by: who deletes it (this user and host if left out), for the stream of the queue.
        Raises WrongQueue or NotFinished, by the snapshot as in 1.0.0 and again by the current
        state; HasDependents.
        Source: docs/protocol.md, "delete".
        """
        if task.queue != self.name:
            raise WrongQueue(task.id, self.name)
        if task.status not in ("complete", "failed", "cancelled"):
            raise NotFinished(task.id, task.status)
        now, who = time.time(), by if by is not None else process.user_at_host()
        event = Event("deleted", who, now)
        try:
            protocol.delete(self._redis, self.name, task.id, force, event)
        except (HasDependents, NotSettled) as refusal:
            if not force:  # others may have waited, and not wait any more
                is_awaited(self._redis, task.id, now)
            if isinstance(refusal, NotSettled):
                for member in groups.look_at(self._redis, [task.id]):
                    protocol.settle_members(self._redis, member.group or "", [task.id], now)
            protocol.delete(self._redis, self.name, task.id, force, event)
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
        Raises NotCancellable when it has ended, is in another status, or a listener of 1.0.0 has
        it; WrongQueue.
        Source: docs/protocol.md, "cancel".
        """
        who = by if by is not None else process.user_at_host()
        status = protocol.cancel(self._redis, self.name, task_id, who, reason, time.time(), only)
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
        Raises NotInterruptible when it does not run, is being cancelled, or a listener of 1.0.0 has
        it; WrongQueue.
        Source: docs/protocol/operator.md, "interrupt".
        """
        who = by if by is not None else process.user_at_host()
        protocol.interrupt(self._redis, self.name, task_id, who, reason, time.time())
        log.info("interrupt task=%s queue=%s by=%s", task_id, self.name, who)

    def set_priority(self, task_id: str, priority: int, by: str | None = None) -> None:
        """Give a waiting task another priority; it becomes the last of that priority.

        by: who changes it, for its history; this user and host if left out.
        Raises NotWaiting, WrongQueue. Source: docs/protocol/operator.md, "set_priority".
        """
        who = by if by is not None else process.user_at_host()
        protocol.set_priority(
            self._redis, self.name, task_id, require_priority(priority), time.time(), who
        )
        log.info(
            "set_priority task=%s queue=%s priority=%d by=%s", task_id, self.name, priority, who
        )

    def put_first(self, task_id: str, by: str | None = None) -> None:
        """Make a pending task the next of its priority.

        A scheduled task has no place in line yet: NotWaiting.
        by: as for `set_priority`.
        Raises NotWaiting, WrongQueue. Source: docs/protocol/operator.md, "put_first".
        """
        who = by if by is not None else process.user_at_host()
        protocol.put_first(self._redis, self.name, task_id, time.time(), who)
        log.info("put_first task=%s queue=%s by=%s", task_id, self.name, who)

    def bring_forward(self, task_id: str) -> None:
        """Put a scheduled task in line now, with all other due tasks of the queue.

        Raises NotWaiting, WrongQueue. Source: docs/protocol/operator.md, "bring_forward".
        """
        protocol.bring_forward(self._redis, self.name, task_id, time.time())
        log.info("bring_forward task=%s queue=%s", task_id, self.name)
        self.enqueue_due_tasks()

    def move(self, task_id: str, to: str, by: str | None = None) -> None:
        """Move a waiting task to another queue, as the last of its line.

        by: as for `set_priority`.
        Raises NotWaiting, WrongQueue. Source: docs/protocol/operator.md, "move".
        """
        who = by if by is not None else process.user_at_host()
        to = self._redis.queue_name(require_queue_name(to))
        protocol.move(self._redis, self.name, task_id, to, time.time(), who)
        log.info("move task=%s queue=%s to=%s by=%s", task_id, self.name, to, who)

    def pause(self, by: str | None = None, reason: str | None = None) -> bool:
        """Stop listeners from taking tasks of this queue; running tasks run on. False: it was
        paused already.

        by, reason: who pauses it (this user and host if left out), and why. Listeners of 1.0.0 do
            not know pauses. A queue may be paused before it has tasks; `blueque status` shows it
            from its first task or listener on.
        Source: docs/protocol/operator.md, "pause".
        """
        who = by if by is not None else process.user_at_host()
        is_new = protocol.pause(self._redis, self.name, who, reason, time.time())
        log.info("pause queue=%s by=%s", self.name, who)
        return is_new

    def resume(self, by: str | None = None) -> bool:
        """End a pause. False: it was not paused.

        by: as for `pause`. Source: docs/protocol/operator.md, "resume".
        """
        who = by if by is not None else process.user_at_host()
        was_paused = protocol.resume(self._redis, self.name, time.time(), who)
        log.info("resume queue=%s by=%s", self.name, who)
        return was_paused

    def set_max_concurrency(self, most: int | None, by: str | None = None) -> None:
        """Set how many tasks of this queue may run at a time, on all nodes together. None: as many
        as there are listeners.

        by: who sets it (this user and host if left out).
        Listeners of 1.0.0 do not know this limit. What runs already runs on.
        Source: docs/protocol/operator.md, "set_max_concurrency".
        """
        number = None if most is None else require_whole(most, "max_concurrency", 0, 1_000_000)
        who = by if by is not None else process.user_at_host()
        protocol.set_max_concurrency(self._redis, self.name, number, time.time(), who)
        log.info("set_max_concurrency queue=%s most=%s by=%s", self.name, number, who)

    def get_settings(self) -> dict[str, Any]:
        """Return what the settings of this queue in Redis say of its tasks, by the names in
        blueque.toml: those that are set. A malformed one is left out.
        """
        (fields,) = Inspector(self._redis).settings([self.name]).values()
        settings, right = read_settings(fields), fields.keys() - malformed(fields).keys()
        found = {"weight": settings.weight, "retry": settings.retry}
        given = {name: value for name, value in found.items() if value is not None}
        keeps = {f"retention.{status}": keep for status, keep in settings.retention.items()}
        bounds = {name: read_setting(name, fields[name]) for name in BOUNDS if name in right}
        return {**given, **settings.limits, **keeps, **bounds}

    def set_settings(self, settings: Mapping[str, Any], by: str | None = None) -> bool:
        """Set what holds for the tasks of this queue that say nothing else, on all nodes. False:
        it is so already.

        settings: weight, retry, time_limit, stall_limit, memory_limit, grace, lead,
            retention.complete, retention.failed or retention.cancelled, each as in the table of the
            queue in blueque.toml; retry may be a `Retry`. None removes a setting. max_pending: how many
            tasks may be in line; then a call that adds more raises QueueFull. discard: "oldest", to
            cancel the oldest of them instead.
        by: who sets them (this user and host if left out).
        What a listener is told nearer to it goes first: by its options, the table of the queue in
        its blueque.toml, or its handler. Listeners know settings within a beat; those of 1.0.0 know
        none. Limits hold for attempts that start then; a retry policy is your consent to further
        attempts, of tasks that run already, too. Raises InvalidInput.
        Source: docs/protocol/operator.md, "set_settings".
        """
        wanted: dict[str, str | None] = {}
        for name, value in settings.items():
            require_setting(name)
            checked = None if value is None else check_setting(name, value)
            wanted[name] = None if value is None else write_setting(name, checked)
        if not wanted:
            return False
        who = by if by is not None else process.user_at_host()
        is_new = protocol.set_settings(self._redis, self.name, wanted, time.time(), who)
        log.info("set_settings queue=%s by=%s: %s", self.name, who, wanted)
        return is_new

    def ask_stack(self, task_id: str, mark: str) -> str | None:
        """Order the listener of a running task to show in its log where the task is; return the
        status of the task.

        mark: a random text in the line of the log that begins the answer. If the status is not
            started, no listener was asked.
        Source: docs/protocol/operator.md, "ask_stack".
        """
        return protocol.ask_stack(self._redis, self.name, task_id, mark)

    def requeue(self, task_id: str, by: str | None = None) -> str:
        """Put a failed or cancelled task in line again, as if it had never run. This is your
        consent to another start. Return the status that it has then: `pending`, or `blocked` if it
        still waits for other tasks.

        by: who requeues it (this user and host if left out). If its last attempt is still running
            somewhere, it can no longer report.
        Raises NotFailed, WrongQueue; WrongGroup for a task of a workflow whose tasks are not all
            there. Source: docs/protocol/operator.md, "requeue".
        """
        who = by if by is not None else process.user_at_host()
        mark = os.urandom(16).hex()
        status = protocol.requeue(self._redis, self.name, task_id, mark, time.time(), who)
        log.info("requeue task=%s queue=%s status=%s", task_id, self.name, status)
        return status

    def unblock(self, task_id: str, parents: Ids | None = None, by: str | None = None) -> str:
        """Have a blocked task no longer wait for some tasks, or for any. Return the status that it
        has then: `pending` or `scheduled` if nothing is left to wait for, else `blocked`.

        parents: those that it is not to wait for, as for `after` of `enqueue`; None: all.
        by: as for `set_priority`.
        Raises NotBlocked, WrongQueue; InvalidInput for one that it does not wait for; WrongGroup if
            it might run before all tasks of its workflow are there.
        Source: docs/protocol/dependencies.md, "unblock".
        """
        who = by if by is not None else process.user_at_host()
        dropped = None if parents is None else names_of(parents)
        known = kinds(self._redis, task_id) if dropped else {}
        for name in dropped or ():
            if known and name not in known:
                raise InvalidInput(f"task {task_id} does not wait for {name}")
        status = protocol.unblock(self._redis, self.name, task_id, time.time(), who, dropped)
        log.info("unblock task=%s queue=%s by=%s status=%s", task_id, self.name, who, status)
        return status

    def requeue_failed(
        self,
        error_type: str | None = None,
        older_than: float | None = None,
        limit: int | None = None,
    ) -> list[str]:
        """Requeue failed tasks in the order in which they failed, and return their ids; see
        `failed_tasks`.
        """
        requeued: list[str] = []
        for task in self.failed_tasks(error_type, older_than, limit):
            try:
                self.requeue(task.id)
            except (NotFailed, WrongQueue, WrongGroup):
                # Another call was faster, its hash is odd, or its workflow is not complete.
                continue
            requeued.append(task.id)
        return requeued

    def failed_tasks(
        self,
        error_type: str | None = None,
        older_than: float | None = None,
        limit: int | None = None,
    ) -> list[Task]:
        """Return failed tasks in the order in which they failed, with the fields in
        `listing.SHOWN`.

        error_type: only this type, as lost or ValueError. older_than: only tasks that failed at
            least so many seconds ago.
        limit: at most so many.
        """
        found = Inspector(self._redis).failed(self.name)
        if error_type is not None:
            found = [task for task in found if task.error_type == error_type]
        if older_than is not None:
            before = time.time() - older_than
            found = [task for task in found if (task.finished or task.updated or 0.0) <= before]
        return found[:limit]

    def template(self, parameters: Any, **options: Unpack[Common]) -> tuple[str, Options]:
        """Return the text of the parameters and the fields of a task with these options, as `enqueue`
        writes them.
        """
        # no trace: each deployment would change a schedule
        fields = self.fields_of(is_traced=False, **options)
        text, coded = self._encode(parameters, fields)
        del fields["producer"]  # the caller may have tasks made by another program
        return text, {**coded, **fields}

    def new_task(
        self,
        parameters: Any,
        *,
        eta: float | datetime | None = None,
        **options: Unpack[EnqueueOptions],
    ) -> NewTask:
        """Return a task of this queue that is not in Redis yet. Arguments and errors are those of
        `enqueue` and `schedule`.
        """
        due = None if eta is None else require_time(eta)
        return self._new(parameters, time.time(), due, **options)[0]

    def join(self, timeout: float | None = None) -> None:
        """Block until nothing is left to do in this queue: no task is in line, runs, is blocked, or is
        scheduled for a time that is past.

        timeout: in seconds; None: no limit.
        A task that is scheduled for later is not waited for, nor is a retry whose time has not come.
        A blocked one is: it is put in line when another task ends. So join does not return as long
        as one is held because that other task has failed, or as long as the queue is paused.
        It sees changes as `Client.wait` does. Raises WaitTimedOut; InvalidInput.
        """
        from blueque.queries.queue_ends import QueueWatcher, join  # here: most programs never wait

        require_timeout(timeout)
        join(QueueWatcher(self._redis.connect, [self.name]), self._redis.patience, timeout)

    def wake_listener(self) -> None:
        """Wake an idle listener, for a task of a 1.0.0 producer, which sends no wake-up.

        Source: docs/protocol.md, "wake".
        """
        protocol.wake(self._redis, self.name)

    def _new(
        self,
        parameters: Any,
        now: float,
        due: float | None,
        *,
        key: str | int | None = None,
        id: str | None = None,
        keep: float | str = DEFAULT_KEEP,
        after: After | Ids | None = None,
        broken: Broken = "hold",
        results: bool = False,
        group: Group | str | None = None,
        start_within: Within = None,
        start_before: float | datetime | None = None,
        expired_to: str | None = None,
        **options: Unpack[Common],
    ) -> tuple[NewTask, str | None]:
        """Return a new task, and its id if a key or the caller has chosen that."""
        fields = self.fields_of(**options)
        named, of_name = self._name(key, id, keep)
        start = self._start(start_within, start_before, expired_to).fields(now, due)
        wait = wait_for(after, broken, results, group)
        text, coded = self._encode(parameters, fields)
        fields = {**coded, **fields, **of_name, **start, **wait.fields()}
        return NewTask(named or random_id(), text, fields, wait.conditions, due), named

    def _enqueue(
        self, text: str, fields: Mapping[str, str | int | float], named: str | None
    ) -> TaskId:
        task_id, spare = self._ids() if named is None else (named, None)
        is_new = in_room(
            self._redis,
            lambda: protocol.enqueue(
                self._redis, self.name, task_id, text, time.time(), fields, spare, named is None
            ),
        )
        log.info("enqueue task=%s queue=%s", task_id, self.name)
        # without a key or an id of its own an earlier try of this call has made it
        return self._made(task_id, is_new or named is None, text, fields)

    def _enqueue_after(self, new: NewTask) -> TaskId:
        is_new = make_one(self._redis, self.name, new, time.time())
        log.info("enqueue_after task=%s queue=%s", new.task, self.name)
        return self._made(new.task, is_new, new.parameters, new.options or {})

    def _name(
        self, key: str | int | None, own: str | None, keep: float | str
    ) -> tuple[str | None, Options]:
        """Return the id of a task with a key or an id of its own, and the fields that have to do with
        it. None: an id is drawn.
        """
        if own is None:
            fields = key_fields(key, keep)
            return (None if key is None else id_of_key(self.name, str(fields["key"]))), fields
        if key is not None:
            raise InvalidInput("give a key or an id, not both: of a key, an id is made")
        return require_id(own), id_fields(keep)

    def _made(self, task_id: str, is_new: bool, text: str, fields: Mapping[str, Any]) -> TaskId:
        """Return the id of a task. Raises IdTaken if the caller has chosen it, and it is that of
        another task.
        """
        if not is_new and "key" not in fields:
            task = load(self._redis, task_id)
            if task.queue not in (None, self.name):
                raise IdTaken(task_id, f"in queue {task.queue!r}")
            ours = {"parameters": text, **fields}
            if task.status is not None and _meaning(ours) != _meaning(task.fields):
                raise IdTaken(task_id, "with other parameters")
        return TaskId(task_id, is_new)

    def _options(
        self,
        retry: Retry | int | None,
        its_limits: Mapping[str, int | float],
        priority: int,
        resources: Mapping[str, int | str] | None,
        lock: str | tuple[str, int] | None,
        its_labels: Mapping[str, str],
    ) -> Options:
        policy = self._retry if retry is None else require_retry(retry)
        wanted = self._resources or None if resources is None else resources
        bounds = {**self._limits, **its_limits}
        options = option_fields(policy, bounds, priority, wanted, lock, its_labels)
        options["producer"] = process.producer()
        return options

    def _start(
        self, within: Within, before: float | datetime | None, expired_to: str | None
    ) -> StartTime:
        to = None if expired_to is None else self._redis.queue_name(expired_to)
        return start_time(self.name, within, before, to, self._start_within)

    def _encode(self, parameters: Any, options: Options) -> tuple[str, dict[str, str]]:
        """Return the text of the parameters, and the field that names their encoding."""
        room = labels.room_beside(options, self._max_bytes)
        text, encoding = encode(parameters, "parameters", room)
        if encoding is None:
            return text, {}
        require_text_keys(parameters, "parameters")
        return text, {"parameters_encoding": encoding}

    def _ids(self) -> tuple[str, str]:
        """Return the id for this call and one for the next call on this connection."""
        ahead = self._redis.ahead
        # Only the look at a spare id reads nothing of the task.
        is_spare = ahead is not None and ahead.look.reads == (ASK_BOUNDED,)
        watched = ahead.look.task if ahead is not None and is_spare else None
        return watched or random_id(), random_id()


def _meaning(fields: Mapping[str, Any]) -> tuple[str | None, str]:
    """Return the encoding and the value of parameters, so that equal ones compare equal however they
    are written; true is not 1.
    """
    encoding = fields.get("parameters_encoding")
    return encoding, json.dumps(decode(fields.get("parameters"), encoding), sort_keys=True)
