"""Queue: what producers and schedulers do with one queue.

bulk.py has the methods that make many tasks, orders.py those that change tasks, and settings.py
those that pause and set up the queue.
"""

from __future__ import annotations

import copy
import json
import logging
import time
from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any, Self, Unpack, cast

from blueque.connection.redis import Redis
from blueque.errors import IdTaken, InvalidInput
from blueque.model import labels
from blueque.model.converter import Types
from blueque.model.encoding import encode, require_due, require_timeout
from blueque.model.ids import DEFAULT_KEEP, id_fields, id_of_key, key_fields, random_id, require_id
from blueque.model.limits import NAMES as LIMITS
from blueque.model.new_task import NewTask
from blueque.model.options import (
    Defaults,
    EnqueueOptions,
    Options,
    TaskOptions,
    UnnamedOptions,
    require_known,
    require_retry,
)
from blueque.model.retry import Retry
from blueque.model.task import Task
from blueque.model.task_id import TaskId
from blueque.model.wait import NOTHING, wait_for
from blueque.producer.bulk import ManyTasks
from blueque.producer.dependent_tasks import make_one
from blueque.producer.orders import TaskOrders
from blueque.producer.room import ask_for_room, only_new_of
from blueque.producer.sealing import store, store_template
from blueque.producer.settings import Settings
from blueque.protocol import reserving
from blueque.protocol.create import OneTask, create
from blueque.queries.tasks import load

log = logging.getLogger("blueque")

_NO_SETTINGS: Mapping[str, Any] = MappingProxyType({})


class Queue(ManyTasks, TaskOrders, Settings):
    """A named line of tasks of one type."""

    def __init__(
        self,
        redis: Redis,
        name: str,
        max_bytes: int,
        retry: Retry | int | None = None,
        settings: Mapping[str, Any] = _NO_SETTINGS,
    ) -> None:
        """settings: the table of the queue in blueque.toml, by key."""
        self.name = name
        limits = {name: settings[name] for name in LIMITS if name in settings}
        self._defaults = Defaults(
            require_retry(settings.get("retry") if retry is None else retry),
            # A task has a limit or no field: "no limit" concerns the file and the listeners only.
            {name: limit for name, limit in limits.items() if limit is not None},
            settings.get("resources") or None,
        )
        self._start_within = settings.get("start_within")
        self._redis = redis
        self._max_bytes = max_bytes
        self._types = Types()

    def __repr__(self) -> str:
        return f"<Queue {self.name!r}>"

    def enqueue(self, parameters: Any, **options: Unpack[EnqueueOptions]) -> TaskId:
        """Put a new task in line and return its id.

        The id is a str that also knows whether the task `is_new`.
        parameters: a str is stored unchanged, any other value as JSON; so a tuple comes back as a list.
        key: identifies the task within the queue. While that task is in Redis, and for `keep` after
            that, the call makes no second one and returns its id. 7 and "7" are the same key.
        id: an id of your choice. If a task with this id and these parameters exists, the call makes
            no second one. 1 to 200 ASCII letters, digits and `._:-`; it begins with a letter or digit.
        keep: how long the key or the id stays in use after its task was deleted; seconds, or text
            such as "1d" (the default).
        priority: -100 to 100, default 0. Higher goes first; of equal ones, the older task.
        resources: what its node must have free, such as {"gpu": 1, "memory": "8GiB"}. It is
            reserved for the task.
        lock: at most one task with this lock runs at a time, across all queues. With ("licence",
            3), at most three.
        retry: a policy, or a number of retries. None: the policy of this Queue object, else that of
            the listener. False: never retry the task.
        time_limit, stall_limit: how long it may run, and how long without progress; seconds, or
            text such as "2h".
        memory_limit: how much its processes may use together; bytes, or text such as "8GiB".
        grace, lead: the time from SIGTERM to SIGKILL, and the time from a warning to a limit.
        title: shown to people beside its id: one line of at most 200 bytes.
        tags: to find the task by, such as ["customer:17"]: at most 20, each of at most 200 bytes
            without spaces.
        context: a dict for `RunningTask.context`, such as {"trace": "4bf9"}: where the call comes
            from. At most 64 KiB, which count towards the size of the parameters.
        after: the ids of tasks in any queue that must complete first; for other conditions,
            `blueque.after`. It may contain groups, and results of calls that make many tasks of a
            `group`. At most 1,000. An empty list means no condition.
        broken: what to do when one of them fails, is cancelled or is deleted. "hold" (the default):
            wait until it is put right. "cancel": cancel the task.
        results: whether the task gets their results as `RunningTask.inputs`. Groups have none.
        group: an open group to join, see `Client.group`.
        start_within, start_before: cancel the task, with the reason `expired`, unless it starts in
            time. The first is a delay from now, in seconds or such as "2h". The second is a time,
            in Unix seconds or as a datetime with a time zone. Once started, it may run again at any
            time. start_within=False lifts the limit that `[queues.X]` sets.
        expired_to: the queue to which it moves instead, to wait there without a limit.
        Raises InvalidInput before anything is written; IdTaken; NoSuchTask or NoSuchGroup for what
            to wait for; QueueFull; RedisAway when nothing was written; OutcomeUnknown, with
            `task_id`, when the answer was lost and Redis stayed away.
        Source: docs/protocol.md, "create"; docs/protocol/dependencies.md, "enqueue_after".
        """
        require_known("Queue.enqueue", options, EnqueueOptions)
        now = time.time()
        new = store(self._redis, self._new(parameters, options, now))
        if new.conditions or new.group is not None:
            return self._enqueue_after(new)
        return self._create(new, now)

    def of_types(self, types: Types) -> Self:
        """Return this queue with other converters for parameters and results."""
        other = copy.copy(self)
        other._types = types
        return other

    def schedule(
        self, parameters: Any, eta: float | datetime, **options: Unpack[EnqueueOptions]
    ) -> TaskId:
        """Create a task that joins the line at `eta` and return its id.

        eta: Unix seconds, or a datetime with a time zone. A past time, or 0, enqueues at once. A
            number before the year 2000 is refused, because it was probably meant as a delay.
        options: as for `enqueue`, with the same errors. `start_within` counts from `eta`. With
            `after`, the task joins the line when its time has come and its conditions are met.
        Source: docs/protocol.md, "create".
        """
        require_known("Queue.schedule", options, EnqueueOptions)
        now, due = time.time(), require_due(eta)
        new = self._new(parameters, options, now, due if due >= now else None)
        new = store(self._redis, new)
        if new.conditions or new.group is not None:
            return self._enqueue_after(new if due > now else new._replace(eta=None))
        return self._create(new, now)

    def template(
        self, parameters: Any, schedule: str = "", **options: Unpack[TaskOptions]
    ) -> tuple[str, Options]:
        """Return what all tasks of a schedule have in common: the text of the parameters, and the fields.

        schedule: its name. Both are as `enqueue` writes them.
        """
        require_known("Queue.template", options, TaskOptions)
        # no trace: each deployment would change a schedule
        fields = self._fields(options, labels.NO_TRACE)
        text, coded = self._encode(parameters, fields)
        del fields["producer"]  # the caller may have tasks made by another program
        new = NewTask("", self.name, text, {**coded, **fields}, NOTHING.conditions)
        new = store_template(self._redis, schedule, new)
        return new.parameters, dict(new.options)

    def new_task(
        self,
        parameters: Any,
        *,
        eta: float | datetime | None = None,
        **options: Unpack[UnnamedOptions],
    ) -> NewTask:
        """Return a task of this queue as it is stored, without writing it.

        Arguments and errors are those of `enqueue` and `schedule`. The caller cannot choose the id.
        """
        require_known("Queue.new_task", options, UnnamedOptions)
        due = None if eta is None else require_due(eta)
        new = self._new(parameters, cast(EnqueueOptions, options), time.time(), due)
        return store(self._redis, new._replace(task=random_id()) if new.is_drawn else new)

    def join(self, timeout: float | None = None) -> None:
        """Block until the queue has nothing left to do: no task is in line, runs, is blocked or is due.

        timeout: in seconds; None: no limit.
        Tasks and retries that are scheduled for later do not count. Blocked tasks do, because they
        join the line when another task ends. So join does not return while the queue is paused, or
        while a task is held because another one failed. It learns of changes as `Client.wait` does.
        Raises WaitTimedOut; InvalidInput.
        """
        from blueque.queries.queue_ends import QueueWatcher, join  # here: most programs never wait

        timeout = require_timeout(timeout)
        join(QueueWatcher(self._redis, [self.name]), self._redis.patience, timeout)

    def wake_listener(self) -> None:
        """Wake an idle listener for a task of a 1.0.0 producer, which sends no wake-up.

        Source: docs/protocol.md, "wake".
        """
        reserving.wake(self._redis, self.name)

    def _new(
        self, parameters: Any, options: EnqueueOptions, now: float, due: float | None = None
    ) -> NewTask:
        """Return a new task. Its id comes from the key or the caller; else it is the spare id of
        the previous call on this connection, or a random one.
        """
        fields = self._fields(options)
        text, coded = self._encode(parameters, fields)
        if not options and self._start_within is None:  # the rest would add nothing: 1 of 35 us
            fields = {**coded, **fields}
            return NewTask(self._next_id(), self.name, text, fields, NOTHING.conditions, due)
        named, of_name = self._name(options)
        start = self._start(options, self._start_within).fields(now, due)
        wait = wait_for(options)
        fields = {**coded, **fields, **of_name, **start}
        if wait:
            fields |= wait.fields()
        task = named or self._next_id()
        return NewTask(task, self.name, text, fields, wait.conditions, due)

    def _create(self, new: NewTask, now: float) -> TaskId:
        redis, is_drawn = self._redis, new.is_drawn
        if new.eta is None:
            only_new = None if is_drawn else only_new_of(redis, self.name, [new.task])
            ask_for_room(redis, {self.name: 1}, only_new)
        spare = random_id() if is_drawn else None
        (is_new,) = create(redis, OneTask(new, now), spare, is_drawn)
        if new.eta is None:
            log.info("create task=%s queue=%s", new.task, self.name)
        else:
            log.info("create task=%s queue=%s eta=%s", new.task, self.name, new.eta)
        # without a key or an id of its own an earlier try of this call has made it
        if is_drawn:
            return TaskId(new.task, converter=self._types.result)
        return self._made(new, is_new)

    def _enqueue_after(self, new: NewTask) -> TaskId:
        is_new = make_one(self._redis, new, time.time())
        log.info("enqueue_after task=%s queue=%s", new.task, self.name)
        return self._made(new, is_new)

    def _name(self, options: EnqueueOptions) -> tuple[str | None, Options]:
        """Return the id that a key or the caller gives a task, and the fields about it. None: draw an id."""
        key, own, keep = options.get("key"), options.get("id"), options.get("keep", DEFAULT_KEEP)
        if own is None:
            fields = key_fields(key, keep)
            return (None if key is None else id_of_key(self.name, str(fields["key"]))), fields
        if key is not None:
            raise InvalidInput("give a key or an id, not both: of a key, an id is made")
        return require_id(own), id_fields(keep)

    def _made(self, new: NewTask, is_new: bool) -> TaskId:
        """Return the id of a task. Raises IdTaken if the caller chose an id that another task has."""
        fields = new.options
        if not is_new and "key" not in fields:
            task = load(self._redis, new.task)
            if task.queue not in (None, self.name):
                raise IdTaken(new.task, f"in queue {task.queue!r}")
            named = {"parameters": new.parameters, "parameters_encoding": "", **fields}
            ours = Task(new.task, {name: str(value) for name, value in named.items()})
            if task.status is not None and _meaning(ours) != _meaning(task):
                raise IdTaken(new.task, "with other parameters")
        return TaskId(new.task, is_new, self._types.result)

    def _encode(self, parameters: Any, options: Options) -> tuple[str, dict[str, str]]:
        """Return the text of the parameters, and the field that names their encoding."""
        if self._types.parameters is not None:
            parameters = self._types.parameters.to_json(parameters, "parameters")
        room = labels.bytes_left_for_parameters(options, self._max_bytes)
        text, encoding = encode(parameters, "parameters", room)
        return text, {} if encoding is None else {"parameters_encoding": encoding}

    def _next_id(self) -> str:
        """Return the id that the previous call on this connection has drawn, or a random one."""
        ahead = self._redis.look_ahead
        return (ahead.task if ahead is not None else None) or random_id()


def _meaning(task: Task) -> tuple[bool, str]:
    """Return whether parameters are JSON, and their value in a form in which equal values compare equal."""
    _, encoding = task.plain("parameters")
    return encoding == "json", json.dumps(task.parameters, sort_keys=True)
