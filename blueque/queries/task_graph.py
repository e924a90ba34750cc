"""The tasks that a task waits for, directly or not, and the tasks that wait for it.

They are read level by level, each in one round trip. Every read is bounded: DEPTH levels, MAX_TASKS
tasks in each direction, the neighbours of TASKS_AT_ONCE tasks of a level, MAX_DEPENDENTS of one
task. No neighbours are read twice, so circles end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from blueque.connection.redis import as_hash
from blueque.model import keys
from blueque.model.conditions import OK
from blueque.model.group import group_of
from blueque.queries.dependencies import tasks_and_groups, without_gate
from blueque.queries.steps import clock, in_step, of_each, read

if TYPE_CHECKING:
    from blueque.connection.redis import Command, Redis
    from blueque.model.task import Task
    from blueque.queries.steps import Reader

DEPTH = 20  # levels in each direction
MAX_TASKS = 1000  # in each direction
TASKS_AT_ONCE = 50  # tasks of a level whose neighbours are read
MAX_DEPENDENTS = 1000  # of one task
MAX_BAD = 100  # members of a group that are read before the others


class Graph(NamedTuple):
    """A task and its neighbourhood.

    task: its id, or the name of a group in conditions.
    tasks: all that were read, by id, with the fields in `listing.SHOWN`; the status of a task that
        is gone is None. Groups are among them, see `dependencies.tasks_and_groups`.
    parents: of each task whose conditions were read, the condition on each other task; of a group,
        `ok` on each of its tasks.
    children: of each task whose dependents were read, the condition of each on that task; None: it
        was not read. counts: how many dependents each has.
    is_whole: nothing is left out.
    """

    now: float
    task: str
    tasks: Mapping[str, Task]
    parents: Mapping[str, Mapping[str, str]]
    children: Mapping[str, Mapping[str, str | None]]
    counts: Mapping[str, int]
    is_whole: bool


def load(redis: Redis, task: str) -> Graph:
    """See Inspector.graph."""
    now = read(redis, clock())
    walk = _Walk(task)
    up, down = [task], [task]
    for level in range(DEPTH + 1):
        if not (up or down):
            break
        expands = TASKS_AT_ONCE if level < DEPTH else 0
        walk.read(redis, up, down, expands)
        up, down = walk.next_up(up[:expands]), walk.next_down(down[:expands])
    walk.leave_out_gates(redis)
    return Graph(now, task, walk.tasks, walk.parents, walk.children, walk.counts, walk.is_whole())


class _Walk:
    """What was read so far, and the ids that were met in each direction."""

    def __init__(self, task: str) -> None:
        self.tasks: dict[str, Task] = {}
        self.parents: dict[str, dict[str, str]] = {}
        self.children: dict[str, dict[str, str | None]] = {}
        self.counts: dict[str, int] = {}
        self._above, self._below = {task}, {task}
        self._expanded: Sequence[str] = ()  # the tasks whose dependents were read last

    def read(self, redis: Redis, up: Sequence[str], down: Sequence[str], expands: int) -> None:
        """Read these tasks, and the neighbours of the first `expands` in each direction."""
        new = [task for task in dict.fromkeys((*up, *down)) if task not in self.tasks]
        asked = {*down}
        edges = [
            (parent, child)
            for parent in self._expanded
            for child in self.children[parent]
            if child in asked
        ]
        self._expanded = down[:expands]
        tasks, kinds, above, below = read(
            redis,
            in_step(
                tasks_and_groups(new),
                of_each({(parent, child): _kind(parent, child) for parent, child in edges}),
                of_each({task: _parents(task) for task in up[:expands]}),
                of_each({task: _dependents(task) for task in down[:expands]}),
            ),
        )
        self.tasks |= tasks
        for (parent, child), kind in kinds.items():
            self.children[parent][child] = kind
        self.parents |= above
        for task, (count, dependents) in below.items():
            self.counts[task], self.children[task] = count, dict.fromkeys(dependents)

    def next_up(self, tasks: Iterable[str]) -> list[str]:
        return _new(self._above, (self.parents[task] for task in tasks))

    def next_down(self, tasks: Iterable[str]) -> list[str]:
        return _new(self._below, (self.children[task] for task in tasks))

    def leave_out_gates(self, redis: Redis) -> None:
        """Find which tasks, whose neighbours were not read, wait for their workflow only."""
        ones = [
            task
            for task, known in self.tasks.items()
            if known.after == 1 and task in self._above and task not in self.parents
        ]
        commands: list[Command] = [("HGETALL", keys.conditions(task)) for task in ones]
        replies = redis.read(*commands)
        for task, reply in zip(ones, replies, strict=True):
            if not without_gate(as_hash(reply)):
                self.parents[task] = {}

    def is_whole(self) -> bool:
        return not any(self._left_out())

    def _left_out(self) -> Iterator[bool]:
        for named in (*map(set, self.parents.values()), *map(set, self.children.values())):
            yield not named <= self.tasks.keys()
        for task, count in self.counts.items():
            yield count > len(self.children[task])
        for task, known in self.tasks.items():
            is_above = task in self._above and task not in self.parents
            is_below = task in self._below and task not in self.children
            yield is_above and known.after is not None
            yield is_below and "dependents" in known.fields


def _kind(parent: str, child: str) -> Reader[str | None]:
    (kind,) = yield [("HGET", keys.conditions(child), parent)]
    return None if kind is None else str(kind)


def _parents(task: str) -> Reader[dict[str, str]]:
    group = group_of(task)
    if group is None:
        (conditions,) = yield [("HGETALL", keys.conditions(task))]
        return without_gate(as_hash(conditions))
    bad, members = yield [
        ("SRANDMEMBER", keys.bad_members(group), MAX_BAD),
        ("ZRANGE", keys.members(group), 0, MAX_TASKS - 1),
    ]
    return dict.fromkeys([*bad, *members], OK)  # it is complete when its members are


def _dependents(task: str) -> Reader[tuple[int, Sequence[str]]]:
    group = group_of(task)
    key = keys.dependents(task) if group is None else keys.awaiting(group)
    count, first = yield [("ZCARD", key), ("ZRANGE", key, 0, MAX_DEPENDENTS - 1)]
    return count, first


def _new(seen: set[str], neighbours: Iterable[Iterable[str]]) -> list[str]:
    """Return the neighbours that were not seen before, as many as there is room for."""
    found = dict.fromkeys(task for some in neighbours for task in some if task not in seen)
    chosen = list(found)[: MAX_TASKS - len(seen)]
    seen.update(chosen)
    return chosen
