"""The inquiry: everything that bears on why one task does not run, in six round trips. `why` makes sentences of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from blueque import keys, survey
from blueque.connection import Command, Redis
from blueque.line_up import Room
from blueque.lines import DEFAULT, Needs, line_of, needs_of, priority_of
from blueque.nodes import Members, Node, ask_members, read_groups, read_nodes
from blueque.task import Task, load
from blueque.waiting import Pause, pause_of

FARTHEST = 10_000                                      # from the front of its line a task is looked for
MAX_LINES = 1000                                       # of the highest priority that are counted
MAX_HOLDERS = 100                                      # of a lock, or of the places of a queue, that are looked at


class Inquiry(NamedTuple):
    """A task and its circumstances at one instant.

    line: in which it waits, or would. needs: what it needs; None: nobody understands it.
    before: how many are ahead of it in its line; None: it is not there, or further back than FARTHEST.
    length: of its line. higher, beside: how many wait in lines of higher priority, and in others of the same.
    nodes: the listeners of its queue. holders: who holds its lock, counted: who counts as running in its queue, by id.
    tasks: those that are held and these, by id, with the fields in `survey.SHOWN`.
    """

    task: Task
    now: float
    line: str
    needs: Needs | None
    before: int | None
    length: int
    higher: int
    beside: int
    pause: Pause | None
    room: Room
    nodes: Sequence[Node]
    holders: Sequence[str]
    counted: Sequence[str]
    tasks: Mapping[str, Task]


def inquire(redis: Redis, task_id: str) -> Inquiry:
    """See Inspector.inquire."""
    task = load(redis, task_id)
    queue, line = task.queue or "", line_of(task.fields.get("priority"), task.fields.get("needs"))
    needs = needs_of(line)
    lock = needs.lock if needs is not None else None
    (time,), members, place, lines, settings, held = read_groups(redis, [
        [("TIME",)], ask_members(queue), _ask_place(queue, line, task.id), _ask_lines(queue), _ask_settings(queue),
        [("SRANDMEMBER", keys.counted(queue), MAX_HOLDERS)]
        + ([("SRANDMEMBER", keys.lock(lock), MAX_HOLDERS)] if lock is not None else []),
    ])
    now = survey.to_seconds(time)
    nodes = read_nodes(redis, {queue: Members(*members)}, now)
    pause, room = _settings(settings)
    counted, holders = held[0], held[1] if lock is not None else []
    index, length = place
    higher, beside = _count_others(redis, queue, line, lines)
    ids = [*(one for node in nodes for one in node.held), *holders, *counted]
    return Inquiry(
        task, now, line, needs, None if index is None else length - 1 - index, length, higher, beside, pause, room, nodes,
        holders, counted, survey.shown(redis, ids) if ids else {},
    )


def _ask_place(queue: str, line: str, task: str) -> list[Command]:
    # From the front, which is the tail; the answer counts from the head all the same.
    key = keys.line(queue, line)
    return [("LPOS", key, task, "RANK", -1, "MAXLEN", FARTHEST), ("LLEN", key)]


def _ask_lines(queue: str) -> list[Command]:
    return [("ZRANGE", keys.lines(queue), 0, MAX_LINES - 1, "REV"), ("LLEN", keys.pending(queue))]


def _ask_settings(queue: str) -> list[Command]:
    return [
        ("HMGET", keys.settings(queue), "paused", "paused_by", "paused_reason", "max_concurrency"),
        ("SCARD", keys.counted(queue)),
        ("SCARD", keys.started(queue)),
    ]


def _settings(replies: Sequence[Any]) -> tuple[Pause | None, Room]:
    (paused, by, reason, limit), counted, started = replies
    most = int(limit) if limit is not None and limit.isdecimal() else None
    return pause_of(paused, by, reason), Room(most, counted, started)


def _count_others(redis: Redis, queue: str, line: str, lines: Sequence[Any]) -> tuple[int, int]:
    """Return how many wait in lines of higher priority, and in others of the same."""
    names, pending = lines
    others = [name for name in names if name != line and priority_of(name) >= priority_of(line)]
    lengths = redis.read(*[("LLEN", keys.line(queue, name)) for name in others]) if others else []
    counts = [*zip(others, lengths, strict=True), *([(DEFAULT, pending)] if line != DEFAULT else [])]
    higher = sum(length for name, length in counts if priority_of(name) > priority_of(line))
    return higher, sum(length for name, length in counts if priority_of(name) == priority_of(line))
