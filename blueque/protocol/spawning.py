"""Create tasks from a running one: spawn; and tasks that it creates when it is complete."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from blueque.connection.redis import AnyLook, Command, Look, Redis
from blueque.errors import InvalidInput, WrongGroup
from blueque.model import keys
from blueque.model.attempt_ref import AttemptRef
from blueque.model.conditions import mark
from blueque.model.group import condition_on
from blueque.model.ids import octets_of
from blueque.model.new import require_room
from blueque.model.new_task import NewTask
from blueque.protocol.dependencies import creation
from blueque.protocol.fields import TaskFields, require_owner
from blueque.protocol.parents import Parents, joins_of, require_parents
from blueque.protocol.transaction import Answer, Change, Verdict, transact
from blueque.protocol.watches import Reads, fields_of

SPAWNED_AT_ONCE = 200  # tasks that one `spawn` makes


class Spawning:
    """The tasks that a running task creates: what to watch and read for them, and their commands.

    tasks: at most `most`, with at most 100 parents and 4 MiB of parameters together. One of them
        may wait for an earlier one.
    Raises InvalidInput, WrongGroup.
    """

    def __init__(self, task: str, tasks: Sequence[NewTask], most: int) -> None:
        self._task, self._tasks = task, tasks
        self.watch: list[str] = []
        reads = Reads()
        self.reads = reads.commands
        if not tasks:  # most tasks leave none when they are complete
            return
        require_room(tasks, most)
        self._parents = _parents_of(tasks)
        hashes = [keys.task(new.task) for new in tasks]
        self.watch = [*hashes, *self._parents.watch]
        # The set needs no watch: who adds to it writes into the hash of the task as well.
        self._were_made = reads.add([("SMISMEMBER", keys.spawned(task), *_octets(tasks))])
        self._exist = reads.add(("EXISTS", key) for key in hashes)
        self._of_parents = reads.add(self._parents.reads)

    def new(self, replies: Sequence[Any]) -> list[NewTask]:
        """Return the tasks that do not exist and that no attempt has made before."""
        (were_made,) = replies[self._were_made]
        rows = zip(self._tasks, were_made, replies[self._exist], strict=True)
        return [each for each, was, exists in rows if not (was or exists)]

    def of_running(
        self, new: Sequence[NewTask], replies: Sequence[Any], group: str | None, now: float
    ) -> list[Command]:
        """Return the commands that make new tasks while the task runs. group: of the task.

        Raises NoSuchTask, NoSuchGroup, WrongGroup.
        """
        found = self._parents.found(replies[self._of_parents])
        found.require_open(joins_of(new), group)
        states = _states(found.statuses, new)
        for each in new:
            require_parents(each.conditions, states, found.making)
        return creation(new, states, now)

    def of_ended(self, replies: Sequence[Any], now: float) -> tuple[list[Command], bool]:
        """Return the commands that create the tasks when the task is complete, and whether one
        waits for it.

        A parent that is not in Redis is gone.
        """
        if not self._tasks:
            return [], False
        new = self.new(replies)
        found = self._parents.found(replies[self._of_parents])
        states = _states(found.statuses, new)
        if self._task in states:
            states[self._task] = "complete"
        gone = {parent for parent, status in states.items() if status is None}
        known = {parent: states[parent] for parent in states if parent not in gone}
        commands = creation([_marked_gone(each, gone) for each in new], known, now)
        return commands, self._task in known


def spawn(redis: Redis, attempt: AttemptRef, tasks: Sequence[NewTask], now: float) -> list[bool]:
    """Create tasks of any queues from a running attempt. Return for each whether this EXEC created it.

    A task that an attempt has made before is not made again, even if it was deleted since.
    tasks: at most 200, as for `Spawning`. They join the group in their options. The group of the
        running task takes them even if it is closed, because it does not end before that task.
    Raises NotOwner; NoSuchTask for a parent that is not in Redis; NoSuchGroup, WrongGroup for a
        group that does not take the task; InvalidInput.
    """
    task = attempt.task
    spawning = Spawning(task, tasks, SPAWNED_AT_ONCE)

    def decide(reply: list[str | None], *replies: Any) -> Verdict[list[bool]]:
        fields = TaskFields._make(reply)
        require_owner(attempt, fields, "started")
        new = spawning.new(replies)
        made = {each.task for each in new}
        is_new = [each.task in made for each in tasks]
        if not new:
            return Answer(is_new)
        return Change(
            [
                # Written even if it is there: another attempt that has not seen these must fail.
                ("HSET", keys.task(task), "spawned", 1),
                ("SADD", keys.spawned(task), *_octets(new)),
                *spawning.of_running(new, replies, fields.group, now),
            ],
            is_new,
        )

    own = fields_of(task)
    look: AnyLook = Look((*own.watch, *spawning.watch), (*own.reads, *spawning.reads), task)
    return transact(redis, "spawn", look, decide)


def _parents_of(tasks: Sequence[NewTask]) -> Parents:
    """Return all parents, and the groups that the tasks join. Raises InvalidInput, WrongGroup."""
    places = {new.task: place for place, new in enumerate(tasks)}
    for place, new in enumerate(tasks):
        for parent in new.conditions:
            if places.get(parent, -1) >= place:
                raise InvalidInput("a new task can only wait for one that comes before it")
        for group in joins_of([new]):
            if condition_on(group) in new.conditions:
                raise WrongGroup(group, "a task that joins it cannot wait for it")
    return Parents((parent for new in tasks for parent in new.conditions), joins_of(tasks))


def _states(statuses: Mapping[str, str | None], new: Sequence[NewTask]) -> dict[str, str | None]:
    """Return the status of each parent once the new tasks exist."""
    made = {each.task for each in new}
    return {parent: "pending" if parent in made else status for parent, status in statuses.items()}


def _marked_gone(new: NewTask, gone: Collection[str]) -> NewTask:
    """Return a new task with marks for conditions on tasks that are gone.

    The marks stay even if one of these is made later: it could wait for the new task.
    """
    marks = {
        parent: mark(kind, None) or kind if parent in gone else kind
        for parent, kind in new.conditions.items()
    }
    return new._replace(conditions=marks)


def _octets(tasks: Sequence[NewTask]) -> list[bytes]:
    return octets_of([new.task.encode() for new in tasks])
