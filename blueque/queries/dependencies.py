"""What a task waits for, and which tasks wait for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any, NamedTuple

from blueque.connection.redis import as_hash
from blueque.model import keys
from blueque.model.conditions import OK, is_marked, mark
from blueque.model.group import group_of, is_gate, status_of
from blueque.model.states import FINISHED
from blueque.model.task import Task
from blueque.queries.listing import tasks_shown
from blueque.queries.steps import in_step, of_each, read

if TYPE_CHECKING:
    from blueque.connection.redis import Command, Redis
    from blueque.queries.steps import Reader

FIRST = 5  # dependents of a task that are read
BLOCKED_AT_ONCE = 20  # blocked tasks whose conditions are read in one round trip
LEVELS, MOST = 20, 1000  # how far, and in how many tasks, what holds up a task is searched
MOST_HELD = 10_000  # blocked tasks among which the held ones are searched
CANCEL = "cancel"  # the value of the field `broken`: the task does not wait on


class Condition(NamedTuple):
    """A condition on another task.

    kind: as it is recorded, see model/conditions.py. task: the other task, with the fields in
        `listing.SHOWN`; its status is None if it is gone. A group has the form of a task, see
        `tasks_and_groups`.
    """

    kind: str
    task: Task

    @property
    def verdict(self) -> str | None:
        """The mark that the condition has, or soon gets; None: the other task has not decided it."""
        return self.kind if is_marked(self.kind) else mark(self.kind, self.task.status)

    @property
    def is_met(self) -> bool:
        return (self.verdict or "").startswith("+")

    @property
    def is_broken(self) -> bool:
        """Return whether the other task did not end as wanted. It may run again."""
        return self.verdict is None and self.task.status in FINISHED

    @property
    def cannot_be_met(self) -> bool:
        """Return whether it stays unmet unless a person acts."""
        return self.is_broken or self.verdict == "-gone"

    @property
    def is_blocked(self) -> bool:
        """Return whether the other task is waiting for others itself."""
        return self.verdict is None and self.task.status == "blocked"


class Dependencies(NamedTuple):
    """What a task waits for, and which tasks wait for it.

    is_gated: it waits, or waited, until all tasks of its workflow exist.
    dependents: how many tasks wait for it; first: at most FIRST of them.
    """

    conditions: Sequence[Condition] = ()
    is_gated: bool = False
    dependents: int = 0
    first: Sequence[Task] = ()


NONE = Dependencies()


def dependencies(redis: Redis, task: Task) -> Dependencies:
    """Return both: two round trips; none for a task without dependencies."""
    if task.after is None and task.fields.get("dependents") is None:
        return NONE
    key = keys.dependents(task.id)
    commands = ("HGETALL", keys.conditions(task.id)), ("ZCARD", key), ("ZRANGE", key, 0, FIRST - 1)
    conditions, count, first = redis.read(*commands)
    found = load_all(redis, [*parents_of(conditions), *first])
    its = dependencies_of(conditions, found)
    return its._replace(dependents=count, first=[found[each] for each in first])


def load_all(redis: Redis, names: Iterable[str]) -> dict[str, Task]:
    """Return snapshots of tasks, and of groups by their names in conditions: one round trip."""
    return read(redis, tasks_and_groups(names))


def tasks_and_groups(names: Iterable[str]) -> Reader[dict[str, Task]]:
    """Read tasks, and groups by their names in conditions: one round trip.

    A group has the form of a task. Its fields are status (`open`, `complete`, `failed`), state (of
    its record) and three numbers: members, open (not ended) and bad (ended, not complete).
    """
    unique = dict.fromkeys(names)
    groups = {name: group for name in unique if (group := group_of(name)) is not None}
    tasks, as_tasks = yield from in_step(
        tasks_shown([name for name in unique if name not in groups]),
        of_each({name: _group(name, group) for name, group in groups.items()}),
    )
    return {name: as_tasks[name] if name in groups else tasks[name] for name in unique}


def _group(name: str, group: str) -> Reader[Task]:
    (state, cancel), members, unended, bad = yield [
        ("HMGET", keys.group(group), "state", "cancel"),
        ("ZCARD", keys.members(group)),
        ("SCARD", keys.open_members(group)),
        ("SCARD", keys.bad_members(group)),
    ]
    status = status_of(state, unended, bad)
    if status is None:
        return Task(name, {})
    numbers = {"members": str(members), "open": str(unended), "bad": str(bad)}
    cancelled = {} if cancel is None else {"cancel": cancel}
    return Task(name, {"status": status, "state": state, **cancelled, **numbers})


def parents_of(reply: Sequence[str]) -> list[str]:
    """Return the ids of the tasks in conditions, from the reply to HGETALL."""
    return [*without_gate(as_hash(reply))]


def count_awaited(redis: Redis, ids: Sequence[str]) -> int:
    """Return how many of these tasks others wait for, as far as they know: one round trip."""
    asked: list[Command] = [("HEXISTS", keys.task(task), "dependents") for task in ids]
    return sum(redis.read(*asked))


def dependents_and_group(redis: Redis, task_id: str) -> tuple[bool, str | None]:
    """Return whether others wait for a task, as far as it knows, and its group."""
    ((dependents, group),) = redis.read(("HMGET", keys.task(task_id), "dependents", "group"))
    return dependents is not None, group


def dependents_from(redis: Redis, key: str, first: int, count: int) -> list[str]:
    """Return dependents of a task or a group from this place on. key: of the dependents."""
    (found,) = redis.read(("ZRANGE", key, first, first + count - 1))
    return list(found)


def kinds(redis: Redis, task_id: str) -> dict[str, str]:
    """Return the recorded condition on each task that a task waits for: one round trip."""
    (reply,) = redis.read(("HGETALL", keys.conditions(task_id)))
    return as_hash(reply)


def without_gate(conditions: Mapping[str, str]) -> dict[str, str]:
    """Return the conditions without that on the gate of a workflow."""
    return {name: kind for name, kind in conditions.items() if not is_gate(group_of(name) or "")}


def dependencies_of(reply: Sequence[str], tasks: Mapping[str, Task]) -> Dependencies:
    """Return what a task waits for, from the reply to HGETALL for its conditions.

    tasks: snapshots of all that the conditions name.
    """
    found = as_hash(reply)
    conditions = without_gate(found)
    return Dependencies(
        [Condition(kind, tasks[task]) for task, kind in conditions.items()],
        any(name not in conditions and kind[0] != "+" for name, kind in found.items()),
    )


def broken_in(redis: Redis, queues: Sequence[str]) -> dict[str, list[Task]]:
    """See Inspector.broken_in."""
    most = MOST_HELD // max(len(queues), 1)
    reads: list[Command] = [("ZRANGE", keys.blocked(queue), 0, most - 1) for queue in queues]
    ids = [task for found in redis.read(*reads) for task in found]
    return broken(redis, ids, MOST_HELD)


def broken(redis: Redis, ids: Sequence[str], most: int) -> dict[str, list[Task]]:
    """Return the tasks that hold up each of these blocked tasks.

    They did not end as wanted, or are gone. They may hold up a task that it waits for: at most
    LEVELS up, and in at most `most` blocked tasks. Two round trips for BLOCKED_AT_ONCE tasks of a
    level. Tasks that are about to be cancelled for that reason are left out.
    """
    known: dict[str, _Waiting] = {}
    level = [*ids]
    for _ in range(LEVELS):
        level = [task for task in dict.fromkeys(level) if task not in known]
        for first in range(0, min(len(level), most - len(known)), BLOCKED_AT_ONCE):
            known |= _conditions(redis, level[first : first + BLOCKED_AT_ONCE])
        level = [
            each.task.id
            for task in level
            if task in known
            for each in known[task].conditions
            if each.is_blocked
        ]
    holders = {task: _holders(task, known) for task in ids}
    return {task: found for task, found in holders.items() if found}


def causes(redis: Redis, tasks: Iterable[Task]) -> dict[str, list[Task]]:
    """Return, for each task that was cancelled because of another one, the chain of causes.

    It has the task or group that caused the cancellation, then the cause of that, up to the first
    cause. At most LEVELS, one round trip for each.
    """
    found = {task.id: [task] for task in tasks if _is_cancelled_for_another(task)}
    for _ in range(LEVELS):
        open_ones = [each for each in found.values() if _is_cancelled_for_another(each[-1])]
        names = {each[-1].broken_by or "" for each in open_ones}
        if not names:
            break
        nearer = load_all(redis, [*names])
        for each in open_ones:
            each.append(nearer[each[-1].broken_by or ""])
    return {task: above for task, (_, *above) in found.items()}


def _is_cancelled_for_another(task: Task) -> bool:
    return task.status == "cancelled" and task.broken_by is not None


class _Waiting(NamedTuple):
    """A blocked task. broken: its field, see docs/protocol/dependencies.md, "Task"."""

    conditions: Sequence[Condition]
    broken: str | None


def _conditions(redis: Redis, ids: Sequence[str]) -> dict[str, _Waiting]:
    found = read(redis, of_each({task: _waiting(task) for task in ids}))
    parents = load_all(redis, [name for reply, _ in found.values() for name in parents_of(reply)])
    return {
        task: _Waiting(dependencies_of(reply, parents).conditions, field)
        for task, (reply, field) in found.items()
    }


def _waiting(task: str) -> Reader[Sequence[Any]]:
    """Read the conditions of a task, and its field `broken`: one round trip."""
    return (yield [("HGETALL", keys.conditions(task)), ("HGET", keys.task(task), "broken")])


def _is_ending(task: str, known: Mapping[str, _Waiting], seen: Set[str] = frozenset()) -> bool:
    """Return whether a blocked task is about to be cancelled because of a task that it waits for."""
    if task not in known or task in seen or known[task].broken != CANCEL:
        return False
    return any(
        each.cannot_be_met
        or (each.is_blocked and each.kind == OK and _is_ending(each.task.id, known, {*seen, task}))
        for each in known[task].conditions
    )


def _holders(task: str, known: Mapping[str, _Waiting]) -> list[Task]:
    """Return the tasks that hold it up, nearest first."""
    if _is_ending(task, known):
        return []
    found: dict[str, Task] = {}
    seen, near = {task}, [task]
    for one in near:  # it grows
        for each in known[one].conditions if one in known else ():
            if each.cannot_be_met:
                found[each.task.id] = each.task
            elif each.is_blocked and each.task.id not in seen:
                seen.add(each.task.id)
                near.append(each.task.id)
    return [*found.values()]
