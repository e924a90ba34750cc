"""Workflow: tasks that wait for each other; none runs before all are in Redis."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Unpack

from blueque.connection.redis import Redis
from blueque.errors import (
    CycleFound,
    InvalidInput,
    NoSuchTask,
    OutcomeUnknown,
    RedisAway,
    WrongGroup,
)
from blueque.model.conditions import After, Ids, conditions_of
from blueque.model.group import is_of_workflow
from blueque.model.ids import DEFAULT_KEEP, ids_of_workflow, require_keep, require_key
from blueque.model.new import New
from blueque.model.new_task import NewTask
from blueque.model.options import (
    Broken,
    MemberOptions,
    require_broken,
    require_known,
    waiting_fields,
)
from blueque.model.task_id import TaskId
from blueque.producer.dependent_tasks import joining
from blueque.producer.groups import AT_ONCE, TaskGroup
from blueque.producer.room import Joining, ask_for_room
from blueque.producer.workflow_writer import WorkflowWriter, in_order
from blueque.queries import groups
from blueque.system import process
from blueque.text.hints import of_group

log = logging.getLogger("blueque")


class Workflow(TaskGroup):
    """A group whose tasks are all created by `commit`. It takes no more afterwards.

    No task runs before all are in Redis. As a context manager it commits unless the block raises.
    broken: for tasks that do not set it.
    keep: how long the record of the workflow stays after its end.
    """

    def __init__(
        self, redis: Redis, name: str, broken: Broken = "hold", keep: float | str = DEFAULT_KEEP
    ) -> None:
        super().__init__(redis, name)
        require_broken(broken)
        self._broken, self._keep = broken, require_keep(keep)
        self._is_unknown = False
        self._why_final = ""  # why it takes no more tasks
        self._tasks: dict[str, NewTask] = {}
        self._keys: dict[str, str] = {}
        self._asked: dict[str, str] = {}  # the keys for which `id_of` was called, by their ids

    def __enter__(self) -> Workflow:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        if kind is None:
            self.commit()

    def add(
        self,
        queue: str,
        parameters: Any,
        *,
        key: str | int | None = None,
        **options: Unpack[MemberOptions],
    ) -> TaskId:
        """Add a task and return its id, for `after` of other tasks. `commit` writes it.

        key: names the task in this workflow. Default: its number, from 0. The same key in a
            workflow of the same name gives the same id.
        options: as for `Queue.enqueue`, and `eta`. `after` takes tasks of this workflow, other
            tasks and other groups.
        Raises InvalidInput, also once `commit` has made the tasks or had no answer from Redis;
            InvalidType, TooLarge.
        """
        require_known("Workflow.add", options.keys() - {"group"}, MemberOptions)
        self._require_open()
        named = require_key(len(self._tasks) if key is None else key)
        task = self.id_of(named)
        if task in self._tasks:
            raise InvalidInput(f"two tasks of workflow {self.name!r} have the key {named!r}")
        if options.get("after") is not None:
            options.setdefault("broken", self._broken)
        record = New(queue, parameters, key=named, **options).without_id()
        if "group" in record.options:
            raise InvalidInput("a task of a workflow joins no other group")
        fields = {**record.options, "group": self.name, "producer": process.producer()}
        of_task = self._redis.settings.queue_name(record.queue)
        new = record._replace(task=task, queue=of_task, options=fields)
        self._tasks[task], self._keys[task] = new, named
        return TaskId(task)

    def link(self, task: str, after: After | Ids) -> None:
        """Let a task of this workflow wait for more tasks. Raises InvalidInput, as `add`."""
        self._require_open()
        if task not in self._tasks:
            raise InvalidInput(f"task {task} is not in workflow {self.name!r}")
        new = self._tasks[task]
        conditions = {**new.conditions}
        for parent, kind in conditions_of(after).items():
            if conditions.setdefault(parent, kind) != kind:
                raise InvalidInput(f"after: {parent} is to be both {conditions[parent]} and {kind}")
        fields = {**waiting_fields({} if new.conditions else conditions, self._broken, False)}
        options = {**new.options, **fields}
        self._tasks[task] = new._replace(conditions=conditions, options=options)

    def id_of(self, key: str | int) -> str:
        """Return the id of the task with this key, also before it is added."""
        named = require_key(key)
        task = ids_of_workflow(self.name, [named.encode()])[0].decode()
        self._asked[task] = named
        return task

    def commit(self) -> bool:
        """Create all tasks, or none. Return False if this workflow exists already.

        Nothing changes then. It is the same workflow if it has this name and the ids of all these
        tasks, even if some were deleted. At most 100,000 tasks. They are written in several
        transactions, and none runs before the last one. If that stops halfway, commit the same
        workflow again, in any process: it continues and returns True. Otherwise cancel it; `blueque
        doctor --fix` does so after a day.
        Raises CycleFound, InvalidInput, NoSuchTask, NoSuchGroup or QueueFull before anything is
            written; WrongGroup if the name belongs to another group, or to a workflow without some
            of these tasks; RedisAway. After OutcomeUnknown, call it again: it returns True if
            either call made the tasks. If a task was deleted meanwhile, NoSuchTask leaves the
            workflow unfinished: cancel it.
        Source: docs/protocol/workflows.md.
        """
        tasks = [self._tasks[task] for task in self._in_order()]
        try:
            writer = WorkflowWriter(self._redis, self.name, self._keep, tasks)
            self._ask_for_room(tasks)
            is_new = writer.commit(self._is_unknown)
        except RedisAway as error:
            self._is_unknown = self._is_unknown or isinstance(error, OutcomeUnknown)
            self._why_final = "a call of commit had no answer; commit it again as it is"
            raise
        except NoSuchTask as error:
            if error.task_id in self._tasks or error.task_id not in self._asked:
                raise
            key = self._asked[error.task_id]
            raise NoSuchTask(error.task_id, key=f"{key!r} of workflow {self.name!r}") from error
        if not is_new:
            self._require_same()
        self._why_final = "it was committed"
        # The next call is another one: what this one has made, it does not take for its own.
        self._is_unknown = False
        log.info("commit group=%s tasks=%d new=%s", self.name, len(tasks), is_new)
        return is_new

    def _in_order(self) -> list[str]:
        """Return the ids of the tasks, each after those that it waits for. Raises CycleFound."""
        places = {task: place for place, task in enumerate(self._tasks)}
        parents = {
            task: sorted(
                (each for each in new.conditions if each in places), key=places.__getitem__
            )
            for task, new in self._tasks.items()
        }
        order, circle = in_order(parents)
        if circle:
            raise CycleFound([self._keys[each] for each in circle])
        return order

    def _ask_for_room(self, tasks: Sequence[NewTask]) -> None:
        needed = joining(tasks, time.time())

        def only_new() -> Joining:
            return needed if groups.load(self._redis, self.name) is None else {}

        ask_for_room(self._redis, needed, only_new)

    def _require_open(self) -> None:
        if self._why_final:
            raise InvalidInput(f"workflow {self.name!r} takes no more tasks: {self._why_final}")

    def _require_same(self) -> None:
        """Refuse a group that is not this workflow. Raises WrongGroup."""
        seen = groups.load(self._redis, self.name)
        if seen is None:  # removed meanwhile
            return
        maker = seen.record.get("made_by")
        if not is_of_workflow(maker):
            why = f"it belongs to a {maker}" if maker else "a program or a person has opened it"
            why = f"it is not a workflow: {why}; give the workflow another name"
            raise WrongGroup(self.name, why)
        missing = dict(self._keys)
        for first in range(0, seen.members, AT_ONCE):
            for task in groups.members(self._redis, self.name, first, AT_ONCE):
                missing.pop(task, None)
        if missing:
            key = next(iter(missing.values()))
            why = (
                f"another workflow has this name, without a task of key {key!r}; give each its own"
            )
            then = f"name, or remove that one when it has ended: {of_group('forget', self.name)}"
            raise WrongGroup(self.name, f"{why} {then}")
