"""Everything that bears on why one task does not run, in six round trips. sentences/why.py
turns them into sentences.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from blueque.model import keys
from blueque.model.lines import DEFAULT, Needs, line_of, needs_of, priority_of
from blueque.model.states import HELD
from blueque.model.task import Task
from blueque.queries import history, listing
from blueque.queries.dependencies import (
    MOST,
    NONE,
    Dependencies,
    broken,
    causes,
    load_all,
    parents_of,
    take_dependencies,
)
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
    tasks: the tasks that these listeners hold, the holders, the counted and those that it waits
        for, by id, with the fields in `listing.SHOWN`.
    staged: the state of its run, if the task is staged and not visible yet; else None.
    usual: how long tasks of its queue usually run, if it is pending, or runs without progress.
    wish: why its last attempt asked to run again later, if it is scheduled for that.
    workflow: the state of its group; None: it has none, or that is gone.
    dependencies: what it waits for, or waited for. broken: of each task that it waits for, and that
        is blocked itself, the tasks that hold that one up. causes: of the task, and of those that it
        waits for or that hold it up, the task or group that caused its cancellation, if any did.
    listeners: of those that it waits for and that run, by the ids of these.
    has_handler: the configuration here, which is not in Redis, names what runs the tasks of its
        queue.
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
    workflow: str | None = None
    dependencies: Dependencies = NONE
    broken: Mapping[str, Sequence[Task]] = {}
    causes: Mapping[str, Task] = {}
    listeners: Mapping[str, Node] = {}
    has_handler: bool = False


def inquire(redis: Redis, task_id: str) -> Inquiry:
    """See Inspector.inquire."""
    task = load(redis, task_id)
    queue, line = task.queue or "", line_of(task.fields.get("priority"), task.fields.get("needs"))
    needs = needs_of(line)
    first = _read_queue(redis, task, line, needs.lock if needs is not None else None)
    now = listing.to_seconds(first.time)
    members = {
        queue: Members(*first.members),
        **members_of(redis, [name for name in first.queues if name != queue]),
    }
    compared = lines_before(line, first.lines[0])
    asked, days = ask_lengths(queue, compared), _ask_usual(task, now)
    every, replies = read_nodes_and(redis, members, now, [*asked, *days])
    nodes, others = sharing(every, queue)
    counted, holders = first.held[0], [task for held in first.held[1:] for task in held]
    higher, beside = count_others(line, compared, replies[: len(asked)], first.lines[1])
    ids = [*(held for node in (*nodes, *others) for held in node.held), *holders, *counted]
    ids += parents_of(first.parents[0]) if first.parents else ()
    tasks = load_all(redis, ids)
    indexed, state, workflow = first.run
    parents = take_dependencies([*first.parents, 0, ()], tasks) if first.parents else NONE
    blocked = [each.task.id for each in parents.conditions if each.is_blocked]
    holding = broken(redis, blocked, MOST) if blocked else {}
    ended = [task, *(each.task for each in parents.conditions)]
    ended += [each for found in holding.values() for each in found]
    listeners = {
        each.task.id: node
        for each in parents.conditions
        for node in every
        if each.task.status in HELD and (node.id, node.queue) == (each.task.node, each.task.queue)
    }
    is_staged = task.run is not None and indexed is None and task.attempt is None
    return Inquiry(
        task,
        now,
        line,
        needs,
        first.before,
        first.place[1],
        higher,
        beside,
        *read_settings(first.settings),
        nodes,
        others,
        holders,
        counted,
        tasks,
        (state or "unknown") if is_staged else None,
        take_usual(replies[len(asked) :]) if days else None,
        history.take_wish(task.id, first.latest),
        workflow,
        parents,
        holding,
        causes(redis, ended),
        listeners,
    )


def _ask_usual(task: Task, now: float) -> list[Command]:
    return ask_usual(task.queue or "", now) if task.status == "pending" or is_quiet(task) else []


class _First(NamedTuple):
    """The replies to the first questions, in groups."""

    time: Sequence[str]
    queues: Sequence[str]
    members: Sequence[Any]
    place: Sequence[Any]
    lines: Sequence[Any]
    settings: Sequence[Any]
    held: Sequence[Sequence[str]]
    run: Sequence[str | None]
    latest: Sequence[Any]
    parents: Sequence[Any]

    @property
    def before(self) -> int | None:
        index, length = self.place
        return None if index is None else length - 1 - index


def _read_queue(redis: Redis, task: Task, line: str, lock: str | None) -> _First:
    """Read what is known of a task's queue, its line, its lock and its run: one round trip."""
    queue = task.queue or ""
    holders = [keys.counted(queue), *([keys.lock(lock)] if lock is not None else [])]
    groups: list[Sequence[Command]] = [
        [("TIME",), ("ZRANGE", keys.QUEUES, 0, MAX_QUEUES - 1, "REV")],
        ask_members(queue),
        ask_place(queue, line, task.id),
        ask_lines(queue),
        ask_settings(queue),
        [("SRANDMEMBER", key, MAX_HOLDERS) for key in holders],
        [
            ("ZSCORE", keys.tasks(queue), task.id),
            ("HGET", keys.run(queue, task.run or ""), "state"),
            ("HGET", keys.group(task.fields.get("group", "")), "state"),
        ],
        history.ask_latest(task.id) if task.status == "scheduled" else [],
        [("HGETALL", keys.conditions(task.id))] if task.after is not None else [],
    ]
    (time, queues), *rest = read_groups(redis, groups)
    return _First(time, queues, *rest)


def members_of(redis: Redis, queues: Sequence[str]) -> dict[str, Members]:
    replies = read_groups(redis, [ask_members(queue) for queue in queues]) if queues else []
    return {queue: Members(*reply) for queue, reply in zip(queues, replies, strict=True)}


def sharing(every: Sequence[Node], queue: str) -> tuple[list[Node], list[Node]]:
    """Return the listeners of the queue, and those of other queues that share resources or a
    process with them.
    """
    own = [node for node in every if node.queue == queue]
    ids, pools = {node.id for node in own}, {node.pool for node in own}
    return own, [
        node for node in every if node.queue != queue and (node.id in ids or node.pool in pools)
    ]


def ask_place(queue: str, line: str, task: str) -> list[Command]:
    # From the front, which is the tail; but the reply counts from the head.
    key = keys.line(queue, line)
    return [("LPOS", key, task, "RANK", -1, "MAXLEN", FARTHEST), ("LLEN", key)]


def ask_lines(queue: str) -> list[Command]:
    return [("ZRANGE", keys.lines(queue), 0, MAX_LINES - 1, "REV"), ("LLEN", keys.pending(queue))]


def ask_settings(queue: str) -> list[Command]:
    return [
        ("HMGET", keys.settings(queue), "paused", "paused_by", "paused_reason", "max_concurrency"),
        ("SCARD", keys.counted(queue)),
        ("SCARD", keys.started(queue)),
    ]


def read_settings(replies: Sequence[Any]) -> tuple[Pause | None, Room]:
    (paused, by, reason, limit), counted, started = replies
    most = int(limit) if limit is not None and limit.isdecimal() else None
    return pause_of(paused, by, reason), Room(most, counted, started)


def lines_before(line: str, names: Sequence[str]) -> list[str]:
    """Return the other lines that come before this line, or have the same priority."""
    return [name for name in names if name != line and priority_of(name) >= priority_of(line)]


def ask_lengths(queue: str, names: Sequence[str]) -> list[Command]:
    """Return the commands that read how many tasks wait in each line, and how many hold the lock
    that they need.
    """
    locks = [(needs_of(name) or Needs()).lock or "" for name in names]
    return [
        command
        for name, lock in zip(names, locks, strict=True)
        for command in (("LLEN", keys.line(queue, name)), ("SCARD", keys.lock(lock)))
    ]


def count_others(
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
