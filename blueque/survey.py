"""Surveys: looks at many queues, listeners and tasks at once, in few round trips, each of them bounded.

A list entry is only a hint: what is told of a task is what its hash says. The tasks have the fields in SHOWN and no
others, for parameters, results and tracebacks may be large.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from blueque import feeds, keys
from blueque.connection import Command, Redis
from blueque.nodes import (
    Members,
    Node,
    ask_members,
    puts_in_line,
    read_groups,
    read_nodes,
    read_nodes_and,
    started_ids,
)
from blueque.places import FINISHED
from blueque.task import Task
from blueque.waiting import (
    MAX_HEADS,
    Misfit,
    Pause,
    Waits,
    ask_ids,
    ask_lengths,
    ask_names,
    in_turn,
    misfits,
    pause_of,
    take_ids,
    take_lengths,
    with_default,
)

STATUSES = ("started", "reserved", "pending", "scheduled", "failed", "cancelled", "complete")
SHOWN = (
    "status", "queue", "node", "pid", "attempt", "eta", "created", "started", "finished", "updated", "error_type",
    "exit_code", "signal", "failures", "last_error_type", "progress", "grace", "cancel", "cancelled_by", "files",
    "priority", "needs", "devices",
)

MIN_PREFIX = 4
MAX_FOUND = 20
MAX_IDS = 10_000                                       # read of a queue's index
MAX_ENDS = 1000                                        # read of a set, or of one end of a list
MAX_FEEDS = 100                                        # of those of a queue that are open
MAX_FAILED = 100                                       # looked at for those that were lost
QUEUES_AT_ONCE = 20                                    # searched in one round trip: their ids are all in memory
LATE = 10.0                                            # seconds within which a scheduler puts a scheduled task in line
OVERDUE = 60.0                                         # the same, of the listeners of its queue
DAY = 86400.0


class Line(NamedTuple):
    """A queue at one instant: its number of tasks in each status.

    overdue: how many scheduled tasks should have been put in line by now, the first of them `overdue_for` seconds ago;
    is_minded: whether a listener of the queue could have done so, and not only a scheduler.
    lost, poison: ids of failed tasks with that error type, a day old at most, among the newest MAX_FAILED.
    pause: if it is paused. max_concurrency: how many of its tasks may run, None: any number; running: how many count.
    misfits: the lines of which no listener of the queue could ever run a task, though it has some.
    """

    queue: str
    scheduled: int
    pending: int
    reserved: int
    started: int
    complete: int
    failed: int
    cancelled: int
    oldest: float | None                               # how long one that is next in its line has been pending, at most
    listeners: int
    overdue: int = 0
    overdue_for: float | None = None
    lost: tuple[str, ...] = ()
    poison: tuple[str, ...] = ()
    pause: Pause | None = None
    max_concurrency: int | None = None
    running: int = 0
    misfits: tuple[Misfit, ...] = ()
    is_minded: bool = False


class Overview(NamedTuple):
    """Everything at one instant: queues and nodes by name, running tasks longest first, the records of open feeds."""

    now: float
    lines: list[Line]
    running: list[Task]
    nodes: list[Node]
    feeds: list[dict[str, str]]


class Listing(NamedTuple):
    """Some tasks at one instant."""

    now: float
    tasks: list[Task]
    has_more: bool


class _Known(NamedTuple):
    """What Redis knows of a queue, in the order in which `_ask_counts` asks for it."""

    members: Members
    started_count: int = 0
    scheduled: int = 0
    pending: int = 0
    complete: int = 0
    failed: int = 0
    cancelled: int = 0
    head: Sequence[str] = ()                           # of the line: its last ids, the next one at the end
    next_due: Sequence[str] = ()                       # task, eta
    late: int = 0
    overdue: int = 0
    newest_failed: Sequence[str] = ()
    names: Sequence[str] = ()                          # of its lines besides the default one
    settings: Sequence[str | None] = ()
    counted: int = 0
    open_feeds: Sequence[str] = ()


def overview(redis: Redis) -> Overview:
    """See Inspector.overview."""
    time, names = redis.read(("TIME",), ("ZRANGE", keys.QUEUES, 0, -1))
    now, queues = to_seconds(time), sorted(names)
    replies = read_groups(redis, [ask_members(queue) + _ask_counts(queue, now) for queue in queues])
    known = {queue: _Known(Members(*reply[:3]), *reply[3:]) for queue, reply in zip(queues, replies, strict=True)}
    names = {queue: one.names for queue, one in known.items()}
    lengths, records = ask_lengths(names), feeds.ask({queue: one.open_feeds for queue, one in known.items()})
    members = {queue: one.members for queue, one in known.items()}
    nodes, others = read_nodes_and(redis, members, now, [*lengths, *records])
    waits = take_lengths(names, others[: len(lengths)])
    held: dict[str, set[str]] = {queue: set() for queue in queues}
    for node in nodes:
        held[node.queue].update(node.held)
    started = {task_id for one in known.values() for task_id in started_ids(one.members.started)}
    named = chain.from_iterable([*one.head, *one.newest_failed] for one in known.values())
    heads = (line.first for some in waits.values() for line in some[:MAX_HEADS])
    tasks = shown(redis, chain(*held.values(), named, sorted(started), heads))
    own = {queue: [node for node in nodes if node.queue == queue] for queue in queues}
    lines = [_line(queue, known[queue], waits[queue], own[queue], held[queue], tasks, now) for queue in queues]
    running = [tasks[task_id] for task_id in sorted(started) if tasks[task_id].status == "started"]
    return Overview(now, lines, _in_order(running), nodes, feeds.take(others[len(lengths) :]))


def listing(redis: Redis, queues: Sequence[str], statuses: Collection[str], limit: int) -> Listing:
    """See Inspector.listing."""
    asked = [[*ask_members(queue), ask_names(queue, MAX_HEADS), *_ask_lists(queue, statuses, limit + 1)] for queue in queues]
    (time,), *replies = read_groups(redis, [[("TIME",)], *asked])
    now = to_seconds(time)
    known = {queue: Members(*reply[:3]) for queue, reply in zip(queues, replies, strict=True)}
    names = with_default({queue: reply[3] for queue, reply in zip(queues, replies, strict=True)})
    ids = [reply[n] for reply in replies for n in range(4, len(reply))]
    waiting: dict[tuple[str, str], list[str]] = {}
    if not {"started", "reserved", "pending"}.isdisjoint(statuses):
        # A pending task may be in a listener's own list: the listener died between pop and reserve.
        nodes, lines = read_nodes_and(redis, known, now, ask_ids(names, limit + 1) if "pending" in statuses else [])
        waiting = take_ids(names, lines) if "pending" in statuses else {}
        ids += [node.held for node in nodes]
        ids += [started_ids(one.started) for one in known.values()]
    tasks = shown(redis, chain.from_iterable([*ids, *waiting.values()]))
    turns = in_turn({line: [tasks[task_id] for task_id in some] for line, some in waiting.items()})
    found = _in_order([task for task in tasks.values() if task.status in statuses and task.queue in known], turns)
    return Listing(now, found[:limit], len(found) > limit)


def all_nodes(redis: Redis) -> list[Node]:
    """See Inspector.nodes."""
    time, names = redis.read(("TIME",), ("ZRANGE", keys.QUEUES, 0, -1))
    queues = sorted(names)
    replies = read_groups(redis, [ask_members(queue) for queue in queues])
    members = {queue: Members(*reply) for queue, reply in zip(queues, replies, strict=True)}
    return read_nodes(redis, members, to_seconds(time))


def find(redis: Redis, prefix: str) -> list[str]:
    """See Inspector.find."""
    exists, names = redis.read(("EXISTS", keys.task(prefix)), ("ZRANGE", keys.QUEUES, 0, -1))
    if exists or len(prefix) < MIN_PREFIX:
        return [prefix] if exists else []
    found: set[str] = set()
    for first in range(0, len(names), QUEUES_AT_ONCE):
        some = names[first : first + QUEUES_AT_ONCE]
        asked = [[*ask_members(queue), ask_names(queue, MAX_HEADS), *_ask_ids(queue)] for queue in some]
        replies = read_groups(redis, asked)
        known = {queue: Members(*reply[:3]) for queue, reply in zip(some, replies, strict=True)}
        lines = {queue: reply[3] for queue, reply in zip(some, replies, strict=True)}
        nodes, next_ids = read_nodes_and(redis, known, 0.0, ask_ids(lines, MAX_HEADS))
        held = (node.held for node in nodes)
        started = (started_ids(one.started) for one in known.values())
        ids = chain(*held, *started, *next_ids, *chain.from_iterable(reply[4:] for reply in replies))
        found.update(task_id for task_id in ids if task_id.startswith(prefix))
    # The index and the lists may still name what 1.0.0 has deleted.
    some_found = sorted(found)[: 10 * MAX_FOUND]
    exist = redis.read(*[("EXISTS", keys.task(task_id)) for task_id in some_found])
    return [task_id for task_id, is_there in zip(some_found, exist, strict=True) if is_there][:MAX_FOUND]


def entered(task: Task) -> float | None:
    """Return when the task got the status that it has, or, of a scheduled one, when it is due."""
    if task.status == "scheduled":
        return task.eta
    if task.status == "started":
        return task.started or task.updated
    if task.status in FINISHED:
        return task.finished or task.updated
    return task.updated or task.created


def to_seconds(time: Sequence[str]) -> float:
    """Return Unix seconds from the reply of TIME."""
    return int(time[0]) + int(time[1]) / 1e6


def _ask_counts(queue: str, now: float) -> list[Command]:
    return [
        ("SCARD", keys.started(queue)),
        ("ZCARD", keys.scheduled(queue)),
        ("LLEN", keys.pending(queue)),
        ("LLEN", keys.complete(queue)),
        ("LLEN", keys.failed(queue)),
        ("LLEN", keys.cancelled(queue)),
        ("LRANGE", keys.pending(queue), -3, -1),
        ("ZRANGE", keys.scheduled(queue), 0, 0, "WITHSCORES"),
        ("ZCOUNT", keys.scheduled(queue), "-inf", now - LATE),
        ("ZCOUNT", keys.scheduled(queue), "-inf", now - OVERDUE),
        ("LRANGE", keys.failed(queue), 0, MAX_FAILED - 1),
        ask_names(queue),
        ("HMGET", keys.settings(queue), "paused", "paused_by", "paused_reason", "max_concurrency"),
        ("SCARD", keys.counted(queue)),
        ("ZRANGEBYSCORE", keys.feeds(queue), "+inf", "+inf", "LIMIT", 0, MAX_FEEDS),
    ]


def _ask_lists(queue: str, statuses: Collection[str], count: int) -> list[Command]:
    commands: dict[str, Command] = {
        "scheduled": ("ZRANGE", keys.scheduled(queue), 0, count - 1),
        "failed": ("LRANGE", keys.failed(queue), 0, count - 1),
        "cancelled": ("LRANGE", keys.cancelled(queue), 0, count - 1),
        "complete": ("LRANGE", keys.complete(queue), 0, count - 1),
    }
    return [command for status, command in commands.items() if status in statuses]


def _ask_ids(queue: str) -> list[Command]:
    # The index first; then the lists, for what 1.0.0 has made is not in the index before we touch it.
    return [
        ("ZREVRANGE", keys.tasks(queue), 0, MAX_IDS - 1),
        ("LRANGE", keys.pending(queue), -MAX_ENDS, -1),
        ("LRANGE", keys.pending(queue), 0, MAX_ENDS - 1),
        ("ZRANGE", keys.scheduled(queue), 0, MAX_ENDS - 1),
        ("LRANGE", keys.failed(queue), 0, MAX_ENDS - 1),
        ("LRANGE", keys.cancelled(queue), 0, MAX_ENDS - 1),
        ("LRANGE", keys.complete(queue), 0, MAX_ENDS - 1),
    ]


def shown(redis: Redis, ids: Iterable[str]) -> dict[str, Task]:
    """Return snapshots of these tasks with the fields in SHOWN, by their ids, in one round trip."""
    unique = list(dict.fromkeys(ids))
    replies = redis.read(*[("HMGET", keys.task(task_id), *SHOWN) for task_id in unique])
    return {
        task_id: Task(task_id, {name: text for name, text in zip(SHOWN, reply, strict=True) if text is not None})
        for task_id, reply in zip(unique, replies, strict=True)
    }


def _line(
    queue: str,
    known: _Known,
    waits: Sequence[Waits],
    nodes: Sequence[Node],
    held: Iterable[str],
    tasks: Mapping[str, Task],
    now: float,
) -> Line:
    running = sum(tasks[task_id].status == "started" for task_id in started_ids(known.members.started))
    waiting = [tasks[task_id] for task_id in reversed(known.head) if tasks[task_id].status == "pending"]
    firsts = [*waiting[:1], *(tasks[line.first] for line in waits[:MAX_HEADS] if tasks[line.first].status == "pending")]
    since = min((moment for moment in map(entered, firsts) if moment is not None), default=None)
    *pause, limit = known.settings
    is_minded = puts_in_line(nodes)
    overdue = known.overdue if is_minded else known.late
    return Line(
        queue,
        scheduled=known.scheduled,
        pending=known.pending + sum(line.length for line in waits),
        reserved=sum(tasks[task_id].status == "reserved" for task_id in held),
        started=running + max(known.started_count - len(known.members.started), 0),
        complete=known.complete,
        failed=known.failed,
        cancelled=known.cancelled,
        oldest=None if since is None else max(now - since, 0.0),
        listeners=len(known.members.listeners),
        overdue=overdue,
        overdue_for=now - float(known.next_due[1]) if overdue and known.next_due else None,
        is_minded=is_minded,
        lost=_failed_with("lost", known, tasks, now),
        poison=_failed_with("poison", known, tasks, now),
        pause=pause_of(*pause),
        max_concurrency=int(limit) if limit is not None and limit.isdecimal() else None,
        running=max(known.counted, known.started_count),
        misfits=misfits(waits, nodes),
    )


def _failed_with(error_type: str, known: _Known, tasks: Mapping[str, Task], now: float) -> tuple[str, ...]:
    """Return the ids of the tasks that failed with this error type within the last day, those of the newest at first."""
    failed = (tasks[task_id] for task_id in known.newest_failed)
    of_type = [task for task in failed if (task.status, task.error_type) == ("failed", error_type)]
    return tuple(task.id for task in of_type if now - (entered(task) or 0.0) <= DAY)


def _in_order(tasks: Iterable[Task], turns: Iterable[Task] = ()) -> list[Task]:
    """Sort tasks by status, and within one as `Inspector.listing` says; turns: the pending ones, the next at first."""
    ranks = {task.id: rank for rank, task in enumerate(turns)}

    def key(task: Task) -> tuple[int, float]:
        if task.status == "pending":                   # one that is in no line has been taken from it
            return STATUSES.index("pending"), ranks.get(task.id, -1)
        time = entered(task) or 0.0                    # the same for a whole bulk: the sort keeps the order of the list
        return STATUSES.index(task.status or ""), -time if task.status in FINISHED else time

    return sorted(tasks, key=key)
