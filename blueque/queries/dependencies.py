"""What a task waits for, and which tasks wait for it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from blueque.connection.redis import as_hash
from blueque.model import keys
from blueque.model.conditions import HOLD, is_marked, mark
from blueque.model.group import group_of, status_of
from blueque.model.states import FINISHED
from blueque.model.task import Task
from blueque.queries.listing import ask_shown, take_shown

if TYPE_CHECKING:
    from blueque.connection.redis import Command, Redis

FIRST = 5  # dependents of a task that are read
AT_ONCE = 20  # blocked tasks whose conditions are read in one round trip
LEVELS, MOST = 20, 1000  # how far, and in how many tasks, what holds up a task is searched


class Condition(NamedTuple):
    """A condition on another task.

    kind: as it is recorded, see model/conditions.py. task: the other task, with the fields in
        `listing.SHOWN`; its status is None if it is gone. A group has the form of a task, see
        `load_all`.
    """

    kind: str
    task: Task

    @property
    def verdict(self) -> str | None:
        """The mark that the condition has, or gets soon; None: the other task has not decided it."""
        return self.kind if is_marked(self.kind) else mark(self.kind, self.task.status)

    @property
    def is_met(self) -> bool:
        return (self.verdict or "").startswith("+")

    @property
    def is_broken(self) -> bool:
        """Tell whether the other task has ended in another way than wanted. It may run again."""
        return self.verdict is None and self.task.status in FINISHED

    @property
    def is_blocked(self) -> bool:
        """Tell whether the other task waits for others itself."""
        return self.verdict is None and self.task.status == "blocked"


class Dependencies(NamedTuple):
    """What a task waits for, and which tasks wait for it.

    is_incomplete: its producer has not named all conditions yet.
    dependents: how many tasks wait for it; first: FIRST of them at most.
    """

    conditions: Sequence[Condition] = ()
    is_incomplete: bool = False
    dependents: int = 0
    first: Sequence[Task] = ()


NONE = Dependencies()


def dependencies(redis: Redis, task: Task) -> Dependencies:
    """Return both: two round trips; none for a task without."""
    if task.after is None and task.fields.get("dependents") is None:
        return NONE
    conditions, count, first = redis.read(*ask_dependencies(task.id))
    found = load_all(redis, [*parents_of(conditions), *first])
    return take_dependencies([conditions, count, first], found)


def ask_dependencies(task_id: str) -> list[Command]:
    """Return the commands that read conditions and dependents; `take_dependencies` takes the
    replies.
    """
    dependents = keys.dependents(task_id)
    return [
        ("HGETALL", keys.conditions(task_id)),
        ("ZCARD", dependents),
        ("ZRANGE", dependents, 0, FIRST - 1),
    ]


def load_all(redis: Redis, names: Iterable[str]) -> dict[str, Task]:
    """Return snapshots of tasks, and of groups by their names in conditions: one round trip.

    A group has the form of a task with the fields status (`open`, `complete`, `failed`), members,
    open and bad: the numbers of its tasks, of those that have not ended, and of those that have
    ended and are not complete.
    """
    unique = list(dict.fromkeys(names))
    return take_all(unique, redis.read(*ask_all(unique))) if unique else {}


def ask_all(names: Iterable[str]) -> list[Command]:
    """Return the commands that read tasks and groups; `take_all` takes the replies."""
    return [command for name in names for command in _ask_one(name)]


def _ask_one(name: str) -> list[Command]:
    group = group_of(name)
    if group is None:
        return ask_shown([name])
    return [
        ("HGET", keys.group(group), "state"),
        ("LLEN", keys.members(group)),
        ("SCARD", keys.open_members(group)),
        ("SCARD", keys.bad_members(group)),
    ]


def take_all(names: Iterable[str], replies: Iterable[Any]) -> dict[str, Task]:
    left = iter(replies)
    return {
        name: _group(name, left) if group_of(name) is not None else _task(name, left)
        for name in names
    }


def _task(name: str, replies: Iterator[Any]) -> Task:
    return take_shown([name], [next(replies)])[name]


def _group(name: str, replies: Iterator[Any]) -> Task:
    state, members, unended, bad = (next(replies) for _ in range(4))
    status = status_of(state, unended, bad)
    numbers = {"members": str(members), "open": str(unended), "bad": str(bad)}
    return Task(name, {} if status is None else {"status": status, **numbers})


def parents_of(reply: Sequence[str]) -> list[str]:
    """Return the ids of the tasks on which there is a condition, given the reply to HGETALL."""
    return [task for task in as_hash(reply) if task != HOLD]


def take_dependencies(
    replies: Sequence[Sequence[str] | int], tasks: Mapping[str, Task]
) -> Dependencies:
    """Return both. tasks: snapshots of all that the replies name."""
    reply, count, first = replies
    assert not isinstance(reply, int) and isinstance(count, int) and not isinstance(first, int)
    conditions = as_hash(reply)
    hold = conditions.pop(HOLD, None)
    return Dependencies(
        [Condition(kind, tasks[task]) for task, kind in conditions.items()],
        hold is not None and not is_marked(hold),
        count,
        [tasks[task] for task in first],
    )


def broken(redis: Redis, ids: Sequence[str]) -> dict[str, list[Task]]:
    """Return the tasks that hold up each of these blocked tasks, if any do: they have ended in
    another way than wanted, or are gone. Also tasks that hold up what it waits for: LEVELS up at
    most, and in MOST blocked tasks at most. Two round trips for AT_ONCE tasks of a level.
    """
    known: dict[str, Sequence[Condition]] = {}
    level = [*ids]
    for _ in range(LEVELS):
        level = [task for task in dict.fromkeys(level) if task not in known]
        for first in range(0, min(len(level), MOST - len(known)), AT_ONCE):
            known |= _conditions(redis, level[first : first + AT_ONCE])
        level = [each.task.id for task in level for each in known.get(task, ()) if each.is_blocked]
    holders = {task: _holders(task, known) for task in ids}
    return {task: found for task, found in holders.items() if found}


def _conditions(redis: Redis, ids: Sequence[str]) -> dict[str, Sequence[Condition]]:
    replies = redis.read(*[("HGETALL", keys.conditions(task)) for task in ids])
    parents = load_all(redis, [task for reply in replies for task in parents_of(reply)])
    return {
        task: take_dependencies([reply, 0, ()], parents).conditions
        for task, reply in zip(ids, replies, strict=True)
    }


def _holders(task: str, known: Mapping[str, Sequence[Condition]]) -> list[Task]:
    """Return the tasks that hold it up, the nearest first."""
    found: dict[str, Task] = {}
    seen, near = {task}, [task]
    for one in near:  # it grows
        for each in known.get(one, ()):
            if each.is_broken or each.verdict == "-gone":
                found[each.task.id] = each.task
            elif each.is_blocked and each.task.id not in seen:
                seen.add(each.task.id)
                near.append(each.task.id)
    return [*found.values()]
