"""New: a task that a running task creates, through `RunningTask.spawn_many` or at its end (Then)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Generic, Unpack

from blueque.errors import InvalidInput, InvalidType
from blueque.model import labels, trace, units
from blueque.model.conditions import MOST_PARENTS
from blueque.model.encoding import encode, require_due, require_queue_name
from blueque.model.ids import ids_of_spawned, require_key
from blueque.model.new_task import NewTask
from blueque.model.options import Options, SpawnOptions, require_known, task_fields
from blueque.model.outcomes import Outcome
from blueque.model.task_id import R_co
from blueque.model.wait import wait_for

MOST_AT_THE_END = 100  # tasks that a task makes with its end
# Of all tasks that are made at once.
MOST_CONDITIONS = 1000
MOST_BYTES = 4 * 1024 * 1024  # of parameters


class New:
    """A task that a running task creates.

    queue: the name of its queue. Aliases of blueque.toml do not work here.
    parameters: as for `Queue.enqueue`.
    key: a running task makes one task with this key, even if it runs again. 7 means "7".
    options: as for `Queue.enqueue`, and `eta`. `group` may be a closed one, if the running task is in it.
    Raises InvalidInput, InvalidType, TooLarge.
    """

    __slots__ = ("_record", "key", "queue")

    def __init__(
        self, queue: str, parameters: Any, *, key: str | int, **options: Unpack[SpawnOptions]
    ) -> None:
        require_known("blueque.New", options, SpawnOptions)
        self.queue, self.key = require_queue_name(queue), require_key(key)
        wanted = _read(options)
        room = labels.bytes_left_for_parameters(wanted.options, units.max_bytes())
        text, encoding = encode(parameters, "parameters", room)
        coded: Options = {}
        if encoding is not None:
            coded = {"parameters_encoding": encoding}
        self._record = wanted._replace(
            queue=self.queue, parameters=text, options={**coded, **wanted.options}
        )

    def __repr__(self) -> str:
        return f"<New {self.key!r} in {self.queue!r}>"

    def without_id(self) -> NewTask:
        """Return what is written for it, without its id and the task that makes it."""
        return self._record

    def record(self, task: str) -> NewTask:
        """Return what is written for it.

        task: the id of the running task.
        """
        by: Options = {"spawned_by": task}
        return self._record._replace(
            task=spawned_id(task, self.key), options={**self._record.options, **by}
        )


class Then(Outcome, Generic[R_co]):
    """The return value of a handler whose task creates others at its end.

    The task completes and the others appear in one transaction, all or none. The handler needs no
    access to Redis.
    result: the result of the task.
    tasks: at most 100, with at most 100 parents; 2 MiB together with the result. With more, the
        task fails. One may wait for this task, or for one earlier in the list. A task that already
        exists with the same key stays as it is.
    For more tasks, call `spawn_many` before the end, each with `after=task.id` and
    `broken="cancel"`: they run only if the task completes.
    Raises InvalidType.
    Source: docs/protocol/spawning.md, "Tasks that a complete task leaves".
    """

    __slots__ = ("result", "tasks")

    def __init__(self, result: R_co, tasks: Iterable[New]) -> None:
        self.result, self.tasks = result, tuple(tasks)
        for task in self.tasks:
            if not isinstance(task, New):
                raise InvalidType(f"a new task is a blueque.New, not {type(task).__name__}")

    def __repr__(self) -> str:
        return f"<Then {self.result!r}, {len(self.tasks)} new tasks>"

    def records(self, task: str) -> list[NewTask]:
        """Return what is written for the new tasks. Raises InvalidInput."""
        records = [new.record(task) for new in self.tasks]
        if len(records) > MOST_AT_THE_END:
            why = f"more than {MOST_AT_THE_END} tasks cannot be made at once at the end of a task"
            how = (
                'make them before with task.spawn_many, each with after=task.id and broken="cancel"'
            )
            raise InvalidInput(f"{why}; {how}")
        require_room(records, MOST_AT_THE_END)
        if any("group" in record.options for record in records):
            raise InvalidInput(
                "a task that is made at the end of another joins no group; use task.spawn"
            )
        return records


def spawned_id(task: str, key: str) -> str:
    """Return the id of the task that a running task makes with this key."""
    return ids_of_spawned(task, [key.encode()])[0].decode()


class TransactionBudget:
    """The room for new tasks in one transaction. most: how many there may be."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._ids: set[str] = set()
        self._parents: set[str] = set()
        self._conditions = self._bytes = 0

    def take(self, new: NewTask) -> None:
        """Take the room for one more task. Raises InvalidInput."""
        if new.task in self._ids:
            raise InvalidInput("two of the new tasks have the same key")
        self._ids.add(new.task)
        self._parents |= new.conditions.keys()
        self._conditions += len(new.conditions)
        self._bytes += len(new.parameters.encode())
        for taken, most, what in (
            (len(self._ids), self._most, "more than {:,} tasks cannot be made at once"),
            (len(self._parents), MOST_PARENTS, "the new tasks wait for more than {:,} others"),
            (self._conditions, MOST_CONDITIONS, "the new tasks have more than {:,} conditions"),
            (self._bytes, MOST_BYTES, "the parameters of the new tasks take more than {:,} bytes"),
        ):
            if taken > most:
                raise InvalidInput(what.format(most))


def require_room(new: Iterable[NewTask], most: int) -> None:
    """Refuse tasks that cannot be made in one transaction. Raises InvalidInput."""
    budget = TransactionBudget(most)
    for each in new:
        budget.take(each)


def _read(options: SpawnOptions) -> NewTask:
    wait, eta = wait_for(options), options.get("eta")
    fields = {**task_fields(options, trace.of_caller()), **wait.fields()}
    due = None if eta is None else require_due(eta)
    return NewTask("", "", "", fields, wait.conditions, due)
