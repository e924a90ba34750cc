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
from blueque.queries.listeners import Node, all_listeners
from blueque.queries.steps import clock, in_step, of_each, read
from blueque.queries.task_lists import TaskList, Unfinished, lists_of, unfinished
from blueque.queries.waiting_lines import in_turn, waiting_since

if TYPE_CHECKING:
    from blueque.connection.redis import Redis
    from blueque.queries.steps import Reader

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
    "progress_first",
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
    "group",
)
MAX_IDS = 50_000  # ids that are read, of all lists together; but one of each
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

    more: how many more there are; None: unknown. looked_at: if not None, only so many of each list
        were searched.
    """

    now: float
    tasks: list[Task]
    has_more: bool
    more: int | None = None
    looked_at: int | None = None


def listing(redis: Redis, queues: Sequence[str], statuses: Collection[str], limit: int) -> Listing:
    """See Inspector.listing."""
    lists = [one for queue in queues for one in lists_of(queue, statuses)]
    share = MAX_IDS // max(len(lists) + len(queues) * ("pending" in statuses), 1)

    def beginning(one: TaskList, among: int = 1) -> Reader[tuple[list[str], int]]:
        return one.beginning(min(limit + 1, max(share // among, 1)))

    now, found, of_queues, started = read(
        redis,
        in_step(
            clock(),
            of_each({one: beginning(one) for one in lists}),
            of_each({queue: unfinished(queue, statuses, beginning) for queue in queues}),
            _count_started(queues if "started" in statuses else ()),
        ),
    )
    for queue in of_queues.values():
        found |= queue.lines
    tasks = _ordered(redis, _held(of_queues.values(), statuses), found, queues, statuses, limit)
    best = {task.id for task in tasks[:limit]}
    cut = [len(ids) for ids, length in found.values() if _may_have_more(ids, length, best, limit)]
    size = started + sum(length for _, length in found.values())
    size += sum(task.status == "reserved" for task in tasks)
    more = max(size - min(len(tasks), limit), 0)
    has_more = len(tasks) > limit or bool(cut)
    return Listing(now, tasks[:limit], has_more, more, min(cut, default=None))


def _count_started(queues: Sequence[str]) -> Reader[int]:
    return sum((yield [("SCARD", keys.started(queue)) for queue in queues]))


def _may_have_more(ids: Sequence[str], length: int, best: Collection[str], limit: int) -> bool:
    """Return whether a list may have one of the best tasks after those that were read."""
    return len(ids) <= min(limit, length - 1) and (not ids or ids[-1] in best)


def _held(found: Iterable[Unfinished[Any]], statuses: Collection[str]) -> list[str]:
    ids: list[str] = []
    for queue in found:
        # What has started is neither pending nor reserved: it need not be read to know that.
        is_wanted = "started" in statuses
        ids += queue.started if is_wanted else ()
        ids += queue.held if is_wanted else {*queue.held}.difference(queue.started)
    return ids


def _ordered(
    redis: Redis,
    held: Sequence[str],
    lists: Mapping[TaskList, tuple[Sequence[str], int]],
    queues: Collection[str],
    statuses: Collection[str],
    limit: int,
) -> list[Task]:
    """Return the tasks of these queues that have one of the statuses, in order.

    Beyond the first `limit`, only the fields that decide the order are read.
    """
    ids = dict.fromkeys(chain(held, *(ids for ids, _ in lists.values())))
    fields = _ORDER if len(ids) > max(2 * limit, MANY) else SHOWN
    tasks = shown(redis, ids, fields)
    lines = {
        (one.queue, one.line): [tasks[task] for task in ids]
        for one, (ids, _) in lists.items()
        if one.line is not None
    }
    of_queues = {*queues}
    wanted = (task for task in tasks.values() if task.status in statuses)
    found = in_order([task for task in wanted if task.queue in of_queues], in_turn(lines))
    if fields is _ORDER:
        first = shown(redis, (task.id for task in found[:limit])).values()
        # without those that have gone on meanwhile
        found[:limit] = [task for task in first if task.status in statuses]
    return found


def all_nodes(redis: Redis) -> list[Node]:
    """See Inspector.nodes."""
    now, (names,) = read(redis, in_step(clock(), _queues()))
    found = read(redis, of_each({queue: all_listeners(queue, now) for queue in sorted(names)}))
    return [node for nodes in found.values() for node in nodes]


def _queues() -> Reader[list[Any]]:
    return (yield [("ZRANGE", keys.QUEUES, 0, -1)])


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


def shown(redis: Redis, ids: Iterable[str], fields: Sequence[str] = SHOWN) -> dict[str, Task]:
    """Return snapshots of these tasks with these fields, by their ids, in one round trip."""
    return read(redis, tasks_shown(ids, fields))


def tasks_shown(ids: Iterable[str], fields: Sequence[str] = SHOWN) -> Reader[dict[str, Task]]:
    """Read these fields of tasks, each task once; return snapshots by their ids. One round trip."""
    unique = list(dict.fromkeys(ids))
    replies = yield [("HMGET", keys.task(task_id), *fields) for task_id in unique]
    return {
        task_id: Task(task_id, as_fields(fields, reply))
        for task_id, reply in zip(unique, replies, strict=True)
    }


def in_order(tasks: Iterable[Task], turns: Iterable[Task] = ()) -> list[Task]:
    """Sort tasks by status, and within a status as `Inspector.listing` does.

    turns: the pending tasks, next first.
    """
    ranks = {task.id: rank for rank, task in enumerate(turns)}

    def key(task: Task) -> tuple[int, float]:
        if task.status == "pending":  # a task in no line has been popped
            return STATUSES.index("pending"), ranks.get(task.id, -1)
        # equal for a whole bulk: the sort keeps the order of the list
        time = entered(task) or 0.0
        return STATUSES.index(task.status or ""), -time if task.status in FINISHED else time

    return sorted(tasks, key=key)
