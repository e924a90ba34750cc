"""Surveys: looks at many queues, listeners and tasks at once, in few round trips, each of them bounded.

A list entry is only a hint: what is told of a task is what its hash says. The tasks have the fields in SHOWN and no
others, for parameters, results and tracebacks may be large.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

from blueque import keys, settings
from blueque.connection import Command, Redis
from blueque.task import Task

STATUSES = ("started", "reserved", "pending", "scheduled", "failed", "complete")
SHOWN = (
    "status", "queue", "node", "pid", "attempt", "eta", "created", "started", "finished", "updated", "error_type",
    "exit_code", "signal",
)

MIN_PREFIX = 4
MAX_FOUND = 20
MAX_IDS = 10_000                                       # read of a queue's index
MAX_ENDS = 1000                                        # read of a set, or of one end of a list
MAX_HELD = 100                                         # read of a listener's own list, which mostly holds one
QUEUES_AT_ONCE = 20                                    # searched in one round trip: their ids are all in memory


class Line(NamedTuple):
    """A queue at one instant: its number of tasks in each status."""

    queue: str
    scheduled: int
    pending: int
    reserved: int
    started: int
    complete: int
    failed: int
    oldest: float | None                               # how long the next in line has been pending, in seconds
    listeners: int


class Node(NamedTuple):
    """A listener of one queue, and what Redis knows of it.

    state: up; silent, its beat stands still; unattended, used as a library: nobody beats for it; 1.0.0, which tells
    nothing; dead; gone, it has left a task behind and is not registered.
    """

    id: str
    queue: str
    state: str
    seen: float | None                                 # seconds since its last beat
    held: tuple[str, ...]                              # ids of the tasks in its own list


class Overview(NamedTuple):
    """Everything at one instant: queues and nodes by name, running tasks longest first."""

    now: float
    lines: list[Line]
    running: list[Task]
    nodes: list[Node]


class Listing(NamedTuple):
    """Some tasks at one instant."""

    now: float
    tasks: list[Task]
    has_more: bool


class _Known(NamedTuple):
    """What Redis knows of a queue, in the order in which `_ask` asks for it."""

    listeners: Sequence[str]
    beats: Sequence[str]                               # node, score, node, score ...
    started: Sequence[str]
    started_count: int = 0
    scheduled: int = 0
    pending: int = 0
    complete: int = 0
    failed: int = 0
    head: Sequence[str] = ()                           # of the line: its last ids, the next one at the end


def overview(redis: Redis) -> Overview:
    """See Inspector.overview."""
    time, names = redis.read(("TIME",), ("ZRANGE", keys.QUEUES, 0, -1))
    now, queues = to_seconds(time), sorted(names)
    replies = _read_groups(redis, [_ask_members(queue) + _ask_counts(queue) for queue in queues])
    known = {queue: _Known(*reply) for queue, reply in zip(queues, replies, strict=True)}
    nodes = _nodes(redis, known, now)
    held: dict[str, set[str]] = {queue: set() for queue in queues}
    for node in nodes:
        held[node.queue].update(node.held)
    ids = chain(*held.values(), *(one.head for one in known.values()), *(_ids(one.started) for one in known.values()))
    tasks = _tasks(redis, ids)
    lines = [_line(queue, known[queue], held[queue], tasks, now) for queue in queues]
    running = {task_id for one in known.values() for task_id in _ids(one.started) if tasks[task_id].status == "started"}
    return Overview(now, lines, _in_order(tasks[task_id] for task_id in sorted(running)), nodes)


def listing(redis: Redis, queues: Sequence[str], statuses: Collection[str], limit: int) -> Listing:
    """See Inspector.listing."""
    asked = [_ask_members(queue) + _ask_lists(queue, statuses, limit + 1) for queue in queues]
    (time,), *replies = _read_groups(redis, [[("TIME",)], *asked])
    now = to_seconds(time)
    known = {queue: _Known(*reply[:3]) for queue, reply in zip(queues, replies, strict=True)}
    if "pending" in statuses:
        for reply in replies:
            reply[3].reverse()                         # the next in line stands at the end
    ids = [reply[n] for reply in replies for n in range(3, len(reply))]
    if not {"started", "reserved", "pending"}.isdisjoint(statuses):
        # A pending task may be in a listener's own list: the listener died between pop and reserve.
        ids += [node.held for node in _nodes(redis, known, now)]
        ids += [_ids(one.started) for one in known.values()]
    tasks = _tasks(redis, chain.from_iterable(ids))
    found = _in_order(task for task in tasks.values() if task.status in statuses and task.queue in known)
    return Listing(now, found[:limit], len(found) > limit)


def find(redis: Redis, prefix: str) -> list[str]:
    """See Inspector.find."""
    exists, names = redis.read(("EXISTS", keys.task(prefix)), ("ZRANGE", keys.QUEUES, 0, -1))
    if exists or len(prefix) < MIN_PREFIX:
        return [prefix] if exists else []
    found: set[str] = set()
    for first in range(0, len(names), QUEUES_AT_ONCE):
        some = names[first : first + QUEUES_AT_ONCE]
        replies = _read_groups(redis, [_ask_members(queue) + _ask_ids(queue) for queue in some])
        known = {queue: _Known(*reply[:3]) for queue, reply in zip(some, replies, strict=True)}
        held = (node.held for node in _nodes(redis, known, 0.0))
        started = (_ids(one.started) for one in known.values())
        ids = chain(*held, *started, *chain.from_iterable(reply[3:] for reply in replies))
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
    if task.status in ("complete", "failed"):
        return task.finished or task.updated
    return task.updated or task.created


def to_seconds(time: Sequence[str]) -> float:
    """Return Unix seconds from the reply of TIME."""
    return int(time[0]) + int(time[1]) / 1e6


def _ask_members(queue: str) -> list[Command]:
    # SRANDMEMBER returns the whole of a set that is no larger than asked for.
    return [
        ("SRANDMEMBER", keys.listeners(queue), MAX_ENDS),
        ("ZREVRANGE", keys.nodes(queue), 0, MAX_ENDS - 1, "WITHSCORES"),
        ("SRANDMEMBER", keys.started(queue), MAX_ENDS),
    ]


def _ask_counts(queue: str) -> list[Command]:
    return [
        ("SCARD", keys.started(queue)),
        ("ZCARD", keys.scheduled(queue)),
        ("LLEN", keys.pending(queue)),
        ("LLEN", keys.complete(queue)),
        ("LLEN", keys.failed(queue)),
        ("LRANGE", keys.pending(queue), -3, -1),
    ]


def _ask_lists(queue: str, statuses: Collection[str], count: int) -> list[Command]:
    commands: dict[str, Command] = {
        "pending": ("LRANGE", keys.pending(queue), -count, -1),
        "scheduled": ("ZRANGE", keys.scheduled(queue), 0, count - 1),
        "failed": ("LRANGE", keys.failed(queue), 0, count - 1),
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
        ("LRANGE", keys.complete(queue), 0, MAX_ENDS - 1),
    ]


def _read_groups(redis: Redis, groups: Iterable[Sequence[Command]]) -> list[list[Any]]:
    """Send the commands of all groups in one write; return their replies in the same groups."""
    asked = list(groups)
    replies = iter(redis.read(*chain.from_iterable(asked)))
    return [[next(replies) for _ in group] for group in asked]


def _tasks(redis: Redis, ids: Iterable[str]) -> dict[str, Task]:
    unique = list(dict.fromkeys(ids))
    replies = redis.read(*[("HMGET", keys.task(task_id), *SHOWN) for task_id in unique])
    return {
        task_id: Task(task_id, {name: text for name, text in zip(SHOWN, reply, strict=True) if text is not None})
        for task_id, reply in zip(unique, replies, strict=True)
    }


def _nodes(redis: Redis, known: Mapping[str, _Known], now: float) -> list[Node]:
    """Return the listeners that are registered, beat, or run something, by queue and name."""
    beats = {queue: dict(zip(one.beats[::2], one.beats[1::2], strict=True)) for queue, one in known.items()}
    pairs = sorted(
        (queue, node)
        for queue, one in known.items()
        for node in {*one.listeners, *beats[queue], *(running[0] for running in _parse(one.started))}
    )
    replies = _read_groups(redis, [
        [
            ("LRANGE", keys.reserved(queue, node), 0, MAX_HELD - 1),
            ("HMGET", keys.listener(queue, node), "state", "beat_every"),
        ]
        for queue, node in pairs
    ])
    nodes = []
    for (queue, node), (held, (state, beat_every)) in zip(pairs, replies, strict=True):
        seen = max(now - float(beats[queue][node]), 0.0) if node in beats[queue] else None
        state = state or ("1.0.0" if node in known[queue].listeners else "gone")
        nodes.append(Node(node, queue, _state(state, beat_every, seen), seen, tuple(held)))
    return nodes


def _state(registered: str, beat_every: str | None, seen: float | None) -> str:
    if registered != "alive":
        return registered
    if beat_every in ("0", "0.0"):
        return "unattended"
    return "silent" if seen is None or seen > settings.LEASE else "up"


def _line(queue: str, known: _Known, held: Iterable[str], tasks: Mapping[str, Task], now: float) -> Line:
    running = sum(tasks[task_id].status == "started" for task_id in _ids(known.started))
    waiting = [tasks[task_id] for task_id in reversed(known.head) if tasks[task_id].status == "pending"]
    since = entered(waiting[0]) if waiting else None
    return Line(
        queue,
        scheduled=known.scheduled,
        pending=known.pending,
        reserved=sum(tasks[task_id].status == "reserved" for task_id in held),
        started=running + max(known.started_count - len(known.started), 0),
        complete=known.complete,
        failed=known.failed,
        oldest=None if since is None else max(now - since, 0.0),
        listeners=len(known.listeners),
    )


def _in_order(tasks: Iterable[Task]) -> list[Task]:
    def key(task: Task) -> tuple[int, float]:
        time = entered(task) or 0.0                    # the same for a whole bulk: the sort keeps the order of the list
        return STATUSES.index(task.status or ""), -time if task.status in ("complete", "failed") else time

    return sorted(tasks, key=key)


def _parse(members: Iterable[str]) -> list[tuple[str, int, str]]:
    """Parse the members of a started set, leaving out what another program has put there."""
    parsed = []
    for member in members:
        try:
            parsed.append(keys.parse_started_member(member))
        except ValueError:
            continue
    return parsed


def _ids(members: Iterable[str]) -> list[str]:
    return [task_id for _, _, task_id in _parse(members)]
