"""The lines of many queues: how many tasks wait, which are next, and which fit no listener."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from blueque.model import keys
from blueque.model.lines import Needs, needs_of, parse_needs, priority_of, write_needs
from blueque.queries.listeners import LOOKS_AT_LINES, Node
from blueque.queries.steps import of_each

if TYPE_CHECKING:
    from blueque.model.task import Task
    from blueque.queries.steps import Reader

MAX_HEADS = 100  # lines of a queue whose first tasks are read
NEXT = 3  # first tasks of a line that are read


class Misfit(NamedTuple):
    """A line whose tasks need more than any listener of its queue has.

    needs: as text of `lines.write_needs`. first: the id of its next task.
    """

    line: str
    tasks: int
    needs: str
    first: str


class Waits(NamedTuple):
    """A line with waiting tasks: how many, and the ids of the next NEXT tasks."""

    line: str
    length: int
    head: Sequence[str]

    @property
    def first(self) -> str:
        return self.head[0]


def waits(queue: str, names: Sequence[str]) -> Reader[list[Waits]]:
    """Read what waits in these lines of a queue, without empty ones: one round trip."""
    found = yield from of_each({name: _waits(queue, name) for name in names})
    return [line for line in found.values() if line.length and line.head]


def _waits(queue: str, name: str) -> Reader[Waits]:
    key = keys.line(queue, name)
    length, tail = yield [("LLEN", key), ("LRANGE", key, -NEXT, -1)]
    return Waits(name, length, tail[::-1])


def misfits(lines: Iterable[Waits], nodes: Sequence[Node]) -> tuple[Misfit, ...]:
    """Return the lines whose tasks no listener of the queue can ever run, if there are listeners."""
    able = [node for node in nodes if node.state in LOOKS_AT_LINES]
    has = {node.resources or "" for node in able}
    totals = [dict((parse_needs(text) or Needs()).resources) for text in has]
    found = []
    for line in lines:
        needs = needs_of(line.line)
        if totals and needs is not None and lacking(needs, totals) is not None:
            found.append(
                Misfit(line.line, line.length, write_needs(dict(needs.resources)), line.first)
            )
    return tuple(found)


def lacking(needs: Needs, nodes: Sequence[Mapping[str, int]]) -> str | None:
    """Return a resource of which no node has enough for these needs. None: a node has enough of all."""
    if not needs.resources or any(
        all(has.get(name, 0) >= amount for name, amount in needs.resources) for has in nodes
    ):
        return None
    short = [
        name for name, amount in needs.resources if all(has.get(name, 0) < amount for has in nodes)
    ]
    return next(iter(short), needs.resources[0][0])  # each is on some node, but not all on one


def waiting_since(task: Task) -> float | None:
    """Return since when a pending task has been in line, regardless of priority, place and moves.

    A task whose `eta` is later than its last change did not wait for that eta: it was put in line before.
    """
    came = [task.created, task.queued]
    if task.eta is not None and (task.updated is None or task.eta <= task.updated):
        came.append(task.eta)
    return max((at for at in came if at is not None), default=task.updated)


def lock_of(line: str) -> str | None:
    """Return the name of the lock that the tasks of a line need. None: they need none."""
    needs = needs_of(line)
    return needs.lock if needs is not None else None


def runnable(lines: Iterable[Waits], unfit: Iterable[Misfit], held: Mapping[str, int]) -> int:
    """Return how many tasks in these lines could start now, as far as their needs go.

    unfit: the lines whose tasks fit no listener. held: how many tasks hold each lock that the lines
        name.
    """
    left_out = {misfit.line for misfit in unfit}
    count, behind_locks, places = 0, dict[str, int](), dict[str, int]()
    for line in lines:
        needs = needs_of(line.line)
        if needs is None or line.line in left_out:
            continue
        if needs.lock is None:
            count += line.length
        else:
            behind_locks[needs.lock] = behind_locks.get(needs.lock, 0) + line.length
            places[needs.lock] = max(
                places.get(needs.lock, 0), needs.limit - held.get(needs.lock, 0)
            )
    return count + sum(min(waiting, places[lock]) for lock, waiting in behind_locks.items())


def in_turn(lines: Mapping[tuple[str, str], Sequence[Task]]) -> Sequence[Task]:
    """Return the tasks in the order of their turns, if all of them can run.

    lines: the tasks of each queue and line, next first. Between queues, the task that has waited
        longer comes first.
    """
    equals: dict[tuple[int, str], list[Sequence[Task]]] = {}
    for (queue, line), some in lines.items():
        equals.setdefault((priority_of(line), queue), []).append(some)
    queues: dict[str, list[Task]] = {}
    for place in sorted(equals, key=lambda place: (-place[0], place[1])):
        merged = _merged(equals[place], lambda task: task.created or 0.0)
        queues.setdefault(place[1], []).extend(merged)
    return _merged([*queues.values()], lambda task: waiting_since(task) or 0.0)


def _merged(lines: Sequence[Sequence[Task]], key: Callable[[Task], float]) -> Sequence[Task]:
    """Do as `heapq.merge`, which is slow for many short lines: take the smallest next task."""
    if len(lines) == 1:
        return lines[0]
    # A task behind one with a larger key comes with that one.
    keyed = [
        pair for line in lines for pair in zip(accumulate(map(key, line), max), line, strict=True)
    ]
    keyed.sort(key=itemgetter(0))
    return [task for _, task in keyed]
