"""Everything that bears on why one task does not run, in six round trips. `why_text` makes
sentences of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from blueque.model import keys
from blueque.model.lines import DEFAULT, Needs, line_of, needs_of, priority_of
from blueque.model.task import Task
from blueque.queries import history, listing
from blueque.queries.line_order import Room
from blueque.queries.listeners import Members, Node, ask_members, read_groups, read_nodes_and
from blueque.queries.statistics import Usual, ask_usual, is_quiet, take_usual
from blueque.queries.tasks import load
from blueque.queries.waiting_lines import Pause, pause_of

if TYPE_CHECKING:
    from blueque.connection.redis import Command, Redis

FARTHEST = 10_000  # places from the front of its line that are searched for the task
MAX_LINES = 1000  # lines that are counted, those of the highest priority
MAX_HOLDERS = 100  # tasks that hold a lock, or count as running in the queue
MAX_QUEUES = 1000  # queues whose listeners are read, those with the most listeners


class Inquiry(NamedTuple):
    """A task and its circumstances at one instant.

    line: the line in which it waits, or would wait. needs: what it needs; None: its needs make no
        sense.
    before: how many tasks are ahead of it in its line; None: it is not there, or not among the
        first FARTHEST.
    length: of its line. higher, beside: how many tasks wait in lines of higher priority, and in
        other lines of the same priority; without lines that wait for a lock.
    nodes: the listeners of its queue. others: listeners of other queues that share a node with
        these.
    holders: the tasks that hold its lock; counted: those that count as running in its queue.
    tasks: the tasks that these listeners hold, the holders and the counted, by id, with the fields
        in `listing.SHOWN`.
    staged: the state of its run, if the task is staged and not visible yet; else None.
    usual: how long tasks of its queue usually run, if it runs without progress.
    wish: why its last attempt asked to run again later, if it is scheduled for that.
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
    others: Sequence[Node]
    holders: Sequence[str]
    counted: Sequence[str]
    tasks: Mapping[str, Task]
    staged: str | None = None
    usual: Usual | None = None
    wish: str | None = None


def inquire(redis: Redis, task_id: str) -> Inquiry:
    """See Inspector.inquire."""
    task = load(redis, task_id)
    queue, line = task.queue or "", line_of(task.fields.get("priority"), task.fields.get("needs"))
    needs = needs_of(line)
    lock = needs.lock if needs is not None else None
    (time, queues), members, place, lines, settings, held, (indexed, state), latest = read_groups(
        redis,
        [
            [("TIME",), ("ZRANGE", keys.QUEUES, 0, MAX_QUEUES - 1, "REV")],
            ask_members(queue),
            _ask_place(queue, line, task.id),
            _ask_lines(queue),
            _ask_settings(queue),
            [("SRANDMEMBER", keys.counted(queue), MAX_HOLDERS)]
            + ([("SRANDMEMBER", keys.lock(lock), MAX_HOLDERS)] if lock is not None else []),
            [
                ("ZSCORE", keys.tasks(queue), task.id),
                ("HGET", keys.run(queue, task.run or ""), "state"),
            ],
            history.ask_latest(task.id) if task.status == "scheduled" else [],
        ],
    )
    now = listing.to_seconds(time)
    known = {
        queue: Members(*members),
        **_members(redis, [name for name in queues if name != queue]),
    }
    compared = _compared(line, lines[0])
    asked, days = _ask_lengths(queue, compared), ask_usual(queue, now) if is_quiet(task) else []
    every, replies = read_nodes_and(redis, known, now, [*asked, *days])
    lengths = replies[: len(asked)]
    nodes, others = _sharing(every, queue)
    pause, room = _settings(settings)
    counted, holders = held[0], held[1] if lock is not None else []
    index, length = place
    higher, beside = _count_others(line, compared, lengths, lines[1])
    ids = [*(one for node in (*nodes, *others) for one in node.held), *holders, *counted]
    return Inquiry(
        task,
        now,
        line,
        needs,
        None if index is None else length - 1 - index,
        length,
        higher,
        beside,
        pause,
        room,
        nodes,
        others,
        holders,
        counted,
        listing.shown(redis, ids) if ids else {},
        (state or "unknown")
        if task.run is not None and indexed is None and task.attempt is None
        else None,
        take_usual(replies[len(asked) :]) if days else None,
        history.take_wish(task.id, latest),
    )


def _members(redis: Redis, queues: Sequence[str]) -> dict[str, Members]:
    replies = read_groups(redis, [ask_members(queue) for queue in queues]) if queues else []
    return {queue: Members(*reply) for queue, reply in zip(queues, replies, strict=True)}


def _sharing(every: Sequence[Node], queue: str) -> tuple[list[Node], list[Node]]:
    """Return the listeners of the queue, and those of other queues that share resources or a
    process with them.
    """
    own = [node for node in every if node.queue == queue]
    ids, pools = {node.id for node in own}, {node.pool for node in own}
    return own, [
        node for node in every if node.queue != queue and (node.id in ids or node.pool in pools)
    ]


def _ask_place(queue: str, line: str, task: str) -> list[Command]:
    # From the front, which is the tail; but the reply counts from the head.
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


def _compared(line: str, names: Sequence[str]) -> list[str]:
    """Return the other lines that come before this line, or have the same priority."""
    return [name for name in names if name != line and priority_of(name) >= priority_of(line)]


def _ask_lengths(queue: str, names: Sequence[str]) -> list[Command]:
    """Return the commands that read how many tasks wait in each line, and how many hold the lock
    that they need.
    """
    locks = [(needs_of(name) or Needs()).lock or "" for name in names]
    return [
        command
        for name, lock in zip(names, locks, strict=True)
        for command in (("LLEN", keys.line(queue, name)), ("SCARD", keys.lock(lock)))
    ]


def _count_others(
    line: str, names: Sequence[str], lengths: Sequence[int], pending: int
) -> tuple[int, int]:
    """Return how many tasks wait in lines of higher priority, and in other lines of the same
    priority.
    """
    counts = [(DEFAULT, pending)] if line != DEFAULT else []
    for name, length, holders in zip(names, lengths[::2], lengths[1::2], strict=True):
        needs = needs_of(name) or Needs()
        if needs.lock is None or holders < needs.limit:
            counts.append((name, length))
    higher = sum(length for name, length in counts if priority_of(name) > priority_of(line))
    return higher, sum(length for name, length in counts if priority_of(name) == priority_of(line))
