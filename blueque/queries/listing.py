"""Lists of tasks from many queues in few round trips, each bounded.

A list entry is only a hint: the hash of the task is the truth. The tasks have the fields in SHOWN
and no others, because parameters, results and tracebacks may be large.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from blueque.connection.redis import as_fields
from blueque.model import keys
from blueque.model.states import FINISHED
from blueque.model.task import Task
from blueque.queries import beginnings
from blueque.queries.beginnings import Beginning
from blueque.queries.listeners import (
    Members,
    Node,
    ask_members,
    read_groups,
    read_held_and,
    read_nodes,
)
from blueque.queries.waiting_lines import MAX_HEADS, ask_names, in_turn, waiting_since, with_default

if TYPE_CHECKING:
    from blueque.connection.redis import Command, Redis

MAX_BLOCKED = 20  # blocked tasks of a queue whose conditions `overview` reads
STATUSES = (
    "started",
    "reserved",
    "pending",
    "scheduled",
    "blocked",
    "failed",
    "cancelled",
    "complete",
)
SHOWN = (
    "status",
    "queue",
    "node",
    "pid",
    "attempt",
    "eta",
    "created",
    "started",
    "finished",
    "updated",
    "error_type",
    "exit_code",
    "signal",
    "failures",
    "last_error_type",
    "progress",
    "grace",
    "cancel",
    "cancelled_by",
    "cancel_reason",
    "files",
    "priority",
    "needs",
    "devices",
    "progress_at",
    "queued",
    "after",
    "broken",
    "schedule",
    "broken_by",
    "dependents",
    "title",
    "tags",
    "producer",
    "key",
    "run",
)
MANY = 500  # tasks: of more, all fields in SHOWN are read only of the first ones

# What decides about the order.
_ORDER = ("status", "queue", "created", "queued", "eta", "updated", "started", "finished")

MIN_PREFIX = 4  # characters of an id by which it is found
MAX_FOUND = 20
LATE = 10.0  # seconds within which a scheduler puts a scheduled task in line
OVERDUE = 60.0  # seconds within which a listener of the queue does so
DAY = 86400.0


class Listing(NamedTuple):
    """Some tasks at one instant.

    more: how many more there are; None: that is not known. looked_at: if not None, only so many of
        each list were searched.
    """

    now: float
    tasks: list[Task]
    has_more: bool
    more: int | None = None
    looked_at: int | None = None


def listing(redis: Redis, queues: Sequence[str], statuses: Collection[str], limit: int) -> Listing:
    """See Inspector.listing."""
    lists = beginnings.of_queues(queues, statuses)
    ask_lists = beginnings.ask(lists, beginnings.depth_of(len(lists), limit))
    unfinished = queues if not {"started", "reserved", "pending"}.isdisjoint(statuses) else ()
    groups = [_ask_unfinished(queue) for queue in unfinished]
    (time,), read, *replies = read_groups(redis, [[("TIME",)], ask_lists, *groups])
    now, lists = to_seconds(time), beginnings.take(lists, read)
    of_queues = dict(zip(unfinished, replies, strict=True))
    held, lines = _unfinished(redis, of_queues, statuses, limit) if of_queues else ([], [])
    listed, has_more, looked_at = _listed(redis, held, [*lists, *lines], queues, statuses, limit)
    size = sum(one.length for one in (*lists, *lines))
    size += sum(task.status == "reserved" for task in listed)
    size += sum(reply[4] for reply in replies) if "started" in statuses else 0
    more = max(size - min(len(listed), limit), 0)
    return Listing(now, listed[:limit], has_more, more, looked_at)


def _ask_unfinished(queue: str) -> list[Command]:
    return [*ask_members(queue), ask_names(queue, MAX_HEADS), ("SCARD", keys.started(queue))]


def _unfinished(
    redis: Redis, replies: Mapping[str, Sequence[Any]], statuses: Collection[str], limit: int
) -> tuple[list[str], list[Beginning]]:
    """Return the ids of held and started tasks, and the lines of pending tasks."""
    members = {queue: Members(*reply[:3]) for queue, reply in replies.items()}
    names = with_default({queue: reply[3] for queue, reply in replies.items()})
    is_pending = "pending" in statuses
    lines = [Beginning("pending", queue, name) for queue in names for name in names[queue]]
    lines = lines if is_pending else []
    # A pending task may be in a listener's own list: the listener died between pop and reserve.
    more = beginnings.ask(lines, beginnings.depth_of(len(lines), limit))
    held, started, found = read_held_and(redis, members, more)
    # What has started is neither pending nor reserved: it need not be read to know that.
    held = [*held, *started] if "started" in statuses else [*{*held}.difference(started)]
    return held, beginnings.take(lines, found)


def _listed(
    redis: Redis,
    held: Sequence[str],
    lists: Sequence[Beginning],
    queues: Sequence[str],
    statuses: Collection[str],
    limit: int,
) -> tuple[list[Task], bool, int | None]:
    """Return tasks in order, and whether there are more than `limit`; the first `limit` are the first
    of all tasks. If that is not sure, return also how many of each list were looked at.

    Of many tasks only what decides about the order is read.
    """
    ids, has_more, looked_at = _ids(held, lists), False, None
    fields = _ORDER if len(ids) > max(2 * limit, MANY) else SHOWN
    tasks = shown(redis, ids, fields)
    while True:
        listed = _in_turn(tasks, lists, {*queues}, statuses)
        has_more = has_more or len(listed) > limit
        best = {task.id for task in listed[:limit]}
        places = {n for n, one in enumerate(lists) if one.may_have_more(tasks, best, limit)}
        if places and sum(len(one.ids) for one in lists) > beginnings.MOST:
            looked_at = min(len(lists[place].ids) for place in places)
        if not places or looked_at is not None:
            break
        lists = beginnings.deepened(redis, lists, sorted(places), limit)
        # The others may have none of the best: what is behind their first tasks comes later still.
        lists = [one for n, one in enumerate(lists) if n in places or not best.isdisjoint(one.ids)]
        ids = _ids(held, lists)
        tasks |= shown(redis, (task for task in ids if task not in tasks), fields)
        tasks = {task: tasks[task] for task in ids}
    if fields is _ORDER:
        read = shown(redis, (task.id for task in listed[:limit])).values()
        # without those that have gone on meanwhile
        listed[:limit] = [task for task in read if task.status in statuses]
    return listed, has_more, looked_at


def _ids(held: Iterable[str], lists: Iterable[Beginning]) -> dict[str, None]:
    return dict.fromkeys(chain(held, *(one.ids for one in lists)))


def _in_turn(
    tasks: Mapping[str, Task],
    lists: Iterable[Beginning],
    queues: Collection[str],
    statuses: Collection[str],
) -> list[Task]:
    """Return those of these tasks that belong to the queues and have one of the statuses, in order."""
    lines = {(one.queue, one.line): one.ids for one in lists if one.line is not None}
    turns = in_turn({line: [tasks[task] for task in ids] for line, ids in lines.items()})
    wanted = (task for task in tasks.values() if task.status in statuses)
    return in_order([task for task in wanted if task.queue in queues], turns)


def all_nodes(redis: Redis) -> list[Node]:
    """See Inspector.nodes."""
    time, names = redis.read(("TIME",), ("ZRANGE", keys.QUEUES, 0, -1))
    queues = sorted(names)
    replies = read_groups(redis, [ask_members(queue) for queue in queues])
    members = {queue: Members(*reply) for queue, reply in zip(queues, replies, strict=True)}
    return read_nodes(redis, members, to_seconds(time))


def entered(task: Task) -> float | None:
    """Return when the task got its status; for a scheduled task, when it is due."""
    if task.status == "scheduled":
        return task.eta
    if task.status == "blocked":
        return max((at for at in (task.created, task.queued) if at is not None), default=None)
    if task.status == "started":
        return task.started or task.updated
    if task.status in FINISHED:
        return task.finished or task.updated
    return waiting_since(task)


def run_time(task: Task, now: float) -> float | None:
    """Return how long its last attempt has run."""
    if task.started is None:
        return None
    if task.status == "started":
        return now - task.started
    return (
        task.finished - task.started
        if task.status in FINISHED and task.finished is not None
        else None
    )


def to_seconds(time: Sequence[str]) -> float:
    """Return Unix seconds, given the reply to TIME."""
    return int(time[0]) + int(time[1]) / 1e6


def shown(redis: Redis, ids: Iterable[str], fields: Sequence[str] = SHOWN) -> dict[str, Task]:
    """Return snapshots of these tasks with these fields, by their ids, in one round trip."""
    unique = list(dict.fromkeys(ids))
    return take_shown(unique, redis.read(*ask_shown(unique, fields)), fields)


def ask_shown(ids: Iterable[str], fields: Sequence[str] = SHOWN) -> list[Command]:
    """Return the commands that read these fields; `take_shown` takes the replies."""
    return [("HMGET", keys.task(task_id), *fields) for task_id in ids]


def take_shown(
    ids: Iterable[str], replies: Iterable[Sequence[str | None]], fields: Sequence[str] = SHOWN
) -> dict[str, Task]:
    """Return snapshots of tasks, each once, by their ids."""
    return {
        task_id: Task(task_id, as_fields(fields, reply))
        for task_id, reply in zip(ids, replies, strict=True)
    }


def in_order(tasks: Iterable[Task], turns: Iterable[Task] = ()) -> list[Task]:
    """Sort tasks by status, and within a status as `Inspector.listing` does.

    turns: the pending tasks, the next first.
    """
    ranks = {task.id: rank for rank, task in enumerate(turns)}

    def key(task: Task) -> tuple[int, float]:
        if task.status == "pending":  # a task in no line has been popped
            return STATUSES.index("pending"), ranks.get(task.id, -1)
        # equal for a whole bulk: the sort keeps the order of the list
        time = entered(task) or 0.0
        return STATUSES.index(task.status or ""), -time if task.status in FINISHED else time

    return sorted(tasks, key=key)
