"""Create the tasks of a workflow: open_graph, extend_graph for some at a time, and close_graph."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any, NamedTuple

from blueque.connection.redis import AnyLook, Command, Look, Redis
from blueque.errors import InvalidInput, NoSuchGroup, WrongGroup
from blueque.model import keys
from blueque.model.group import MAKING, condition_on, gate_of
from blueque.model.new_task import NewTask
from blueque.protocol.dependencies import creation
from blueque.protocol.fields import flat
from blueque.protocol.opening import sets_of
from blueque.protocol.parents import LOOK_EVERY, Parents, require_parents
from blueque.protocol.transaction import Answer, Change, Verdict, transact

MOST_TASKS = 200  # of one transaction
MOST_BYTES = 4 * 1024 * 1024  # of parameters
LARGEST = 100_000  # tasks of a workflow
_LEFT = "tasks of an earlier workflow with this name are in Redis"


class Graph(NamedTuple):
    """A workflow: tasks that wait for each other and for others, and their group.

    keep: as for open_group. mark: a digest of everything that will be written.
    tasks: with the group in their options, each after those that it waits for.
    """

    group: str
    keep: int
    mark: str
    tasks: Sequence[NewTask]


class _Record(NamedTuple):
    """The fields of a group that identify a workflow and show its progress."""

    state: str | None
    made_by: str | None
    gate: str | None


def open_graph(redis: Redis, graph: Graph, now: float) -> bool:
    """Create the group of a workflow, and its gate. False: another group has this name.

    Raises WrongGroup if another workflow with this name is incomplete or was cancelled while
        incomplete.
    """
    group, gate = graph.group, gate_of(graph.group)
    keep = str(graph.keep)
    record = {"group": group, "state": MAKING, "made_by": graph.mark, "keep": keep, "gate": gate}
    # The record of the gate is of no use once the tasks that wait for it are told.
    of_gate = {"group": gate, "state": "open", "keep": "0", "gate_of": group}

    def decide(reply: list[str | None]) -> Verdict[bool]:
        found = _Record._make(reply)
        if found.state is not None:
            return Answer(_is_ours(graph, found))
        return Change(
            [
                # Left by a group with this name whose record has expired.
                ("UNLINK", *sets_of(group), *sets_of(gate)),
                ("HSET", keys.group(group), *flat(record), "created", now, "updated", now),
                ("HSET", keys.group(gate), *flat(of_gate), "created", now),
                ("ZADD", keys.GROUPS, now + LOOK_EVERY, group, now + LOOK_EVERY, gate),
            ],
            True,
        )

    look: Look[list[str | None]] = Look([keys.group(group)], [_ask(group)])
    return transact(redis, "open_graph", look, decide)


def extend_graph(
    redis: Redis, graph: Graph, first: int, tasks: Sequence[NewTask], now: float
) -> int:
    """Create the next tasks of a workflow, unless others are next. Return how many of its tasks exist.

    first: how many come before these. tasks: each after those that it waits for, and with a
        condition on one of these or on the gate; as many as one transaction takes.
    Raises NoSuchTask, NoSuchGroup, WrongGroup.
    """
    own = dict.fromkeys(new.task for new in tasks)
    others = Parents([name for new in tasks for name in new.conditions if name not in own])

    def decide(reply: list[str | None], made: int, exist: int, *replies: Any) -> Verdict[int]:
        ours = _require_ours(graph, _Record._make(reply))
        if ours.state != MAKING or made != first:
            return Answer(_tasks_of(graph, ours, made))
        if exist:
            raise WrongGroup(graph.group, _LEFT)
        found = others.found(replies)
        require_parents(others.names, found.statuses, found.making)
        known = found.statuses | dict.fromkeys(own, "blocked")
        # All who add to the workflow change its record, so the later one is refused.
        updated: Command = ("HSET", keys.group(graph.group), "updated", now)
        return Change([updated, *creation(tasks, known, now)], first + len(tasks))

    hashes = [keys.task(task) for task in own]
    own_look = _look(graph.group)
    look: AnyLook = Look(
        [*own_look.watch, *hashes, *others.watch],
        [*own_look.reads, ("EXISTS", *hashes), *others.reads],
    )
    return transact(redis, "extend_graph", look, decide)


def close_graph(redis: Redis, graph: Graph, now: float) -> int:
    """Declare a workflow complete, unless tasks are missing. Return how many exist.

    Raises NoSuchGroup, WrongGroup.
    """
    group, gate = graph.group, gate_of(graph.group)
    closed = ("state", "closed", "closed", now)

    def decide(reply: list[str | None], made: int) -> Verdict[int]:
        found = _require_ours(graph, _Record._make(reply))
        if found.state != MAKING or made < len(graph.tasks):
            return Answer(_tasks_of(graph, found, made))
        return Change(
            [
                ("HSET", keys.group(group), *closed),
                ("HDEL", keys.group(group), "gate", "updated"),
                ("HSET", keys.group(gate), *closed),
                ("ZADD", keys.GROUPS, 0, group, 0, gate),
            ],
            made,
        )

    return transact(redis, "close_graph", _look(group), decide)


def _look(group: str) -> Look[list[str | None], int]:
    return Look([keys.group(group)], [_ask(group), ("ZCARD", keys.members(group))])


def _ask(group: str) -> Command:
    return ("HMGET", keys.group(group), *_Record._fields)


def _tasks_of(graph: Graph, found: _Record, made: int) -> int:
    """Return how many tasks of a workflow exist. made: how many it has had so far."""
    return made if found.state == MAKING else len(graph.tasks)


def _require_ours(graph: Graph, found: _Record) -> _Record:
    """Return the record of a workflow that we have opened."""
    if found.state is None:
        raise NoSuchGroup(graph.group)
    if not _is_ours(graph, found):
        raise WrongGroup(graph.group, "another program has made a group with this name meanwhile")
    return found


def _is_ours(graph: Graph, found: _Record) -> bool:
    """Return whether a group is this workflow.

    Raises WrongGroup if it is an incomplete one that we cannot complete.
    """
    if found.gate is not None and found.state != MAKING:
        raise was_cancelled(graph.group)
    if found.state == MAKING and found.made_by != graph.mark:
        why = "another workflow with this name is not complete; commit that one again, or cancel it"
        raise WrongGroup(graph.group, f"{why} (blueque group cancel) and take another name")
    return found.made_by == graph.mark


def was_cancelled(group: str) -> WrongGroup:
    """Return the error for a workflow that was cancelled while incomplete."""
    then = "when it has ended, remove it and commit it again"
    why = f"it was cancelled before all of its tasks were there; {then}: blueque group forget {shlex.quote(group)}"
    return WrongGroup(group, why, "cancelled")


def require_sound(graph: Graph) -> None:
    """Refuse a workflow that no transactions can create. Raises InvalidInput, WrongGroup."""
    if not 0 < len(graph.tasks) <= LARGEST:
        raise InvalidInput(f"a workflow has 1 to {LARGEST:,} tasks, not {len(graph.tasks):,}")
    if any(condition_on(graph.group) in new.conditions for new in graph.tasks):
        raise WrongGroup(graph.group, "a task that joins it cannot wait for it")
