"""Lists of tasks from many queues in few round trips, each bounded.

A list entry is only a hint: the hash of the task is the truth. The tasks have the fields in SHOWN
and no others, because parameters, results and tracebacks may be large.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from blueque.model import keys
from blueque.model.ids import begins_uuid, is_uuid
from blueque.model.states import FINISHED
from blueque.model.task import Task
from blueque.queries.listeners import (
    Members,
    Node,
    ask_members,
    read_groups,
    read_nodes,
    read_nodes_and,
    started_ids,
)
from blueque.queries.waiting_lines import (
    MAX_HEADS,
    Names,
    ask_ids,
    ask_names,
    in_turn,
    take_ids,
    waiting_since,
    with_default,
)

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

SETS = {"scheduled": keys.scheduled, "blocked": keys.blocked}
LISTS = {"failed": keys.failed, "cancelled": keys.cancelled, "complete": keys.complete}
MIN_PREFIX = 4
MAX_FOUND = 20
MAX_IDS = 10_000  # ids of a queue's index that are read
MAX_ENDS = 1000  # ids at one end of a list that are read
QUEUES_AT_ONCE = 20  # searched in one round trip: their ids are all in memory
LATE = 10.0  # seconds within which a scheduler puts a scheduled task in line
OVERDUE = 60.0  # seconds within which a listener of the queue does so
DAY = 86400.0


class Listing(NamedTuple):
    """Some tasks at one instant.

    more: how many more there are. None: unknown, because only `looked_at` of each list, or as many
        as match, were searched.
    """

    now: float
    tasks: list[Task]
    has_more: bool
    more: int | None = None
    looked_at: int | None = None


def listing(redis: Redis, queues: Sequence[str], statuses: Collection[str], limit: int) -> Listing:
    """See Inspector.listing."""
    depth = limit + 1
    groups = [
        [
            *ask_members(queue),
            ask_names(queue, MAX_HEADS),
            ("SCARD", keys.started(queue)),
            *_ask_lists(queue, statuses, depth),
        ]
        for queue in queues
    ]
    (time,), *replies = read_groups(redis, [[("TIME",)], *groups])
    now, of_queues = to_seconds(time), dict(zip(queues, replies, strict=True))
    ids = [page for reply in replies for page in reply[5::2]]
    sizes = [size for reply in replies for size in reply[6::2]]
    sizes += [reply[4] for reply in replies if "started" in statuses]
    waiting: dict[tuple[str, str], list[str]] = {}
    if not {"started", "reserved", "pending"}.isdisjoint(statuses):
        held, waiting, lengths = _unfinished(redis, of_queues, now, statuses, depth)
        ids, sizes = ids + held, sizes + lengths
    tasks = shown(redis, chain.from_iterable([*ids, *waiting.values()]))
    turns = in_turn({line: [tasks[task] for task in page] for line, page in waiting.items()})
    wanted = (task for task in tasks.values() if task.status in statuses)
    listed = in_order([task for task in wanted if task.queue in of_queues], turns)
    reserved = sum(task.status == "reserved" for task in listed)
    more = max(sum(sizes) + reserved - min(len(listed), limit), 0)
    return Listing(now, listed[:limit], len(listed) > limit, more)


def _unfinished(
    redis: Redis,
    replies: Mapping[str, Sequence[Any]],
    now: float,
    statuses: Collection[str],
    depth: int,
) -> tuple[list[Sequence[str]], dict[tuple[str, str], list[str]], list[int]]:
    """Return the ids of held and started tasks, the ids of pending tasks by line, and the lengths of
    the lines.
    """
    members = {queue: Members(*reply[:3]) for queue, reply in replies.items()}
    names = with_default({queue: reply[3] for queue, reply in replies.items()})
    is_pending = "pending" in statuses
    # A pending task may be in a listener's own list: the listener died between pop and reserve.
    more = [*ask_ids(names, depth), *_ask_lengths(names)] if is_pending else []
    nodes, found = read_nodes_and(redis, members, now, more)
    lines, lengths = found[: len(found) // 2], found[len(found) // 2 :]
    held: list[Sequence[str]] = [node.held for node in nodes]
    held += [started_ids(seen.started) for seen in members.values()]
    return held, take_ids(names, lines) if is_pending else {}, lengths


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
    # "order-1" is a whole id: never "order-10", though it may be gone
    if exists or len(prefix) < MIN_PREFIX or not begins_uuid(prefix):
        return [prefix] if exists else []
    ids: set[str] = set()
    for first in range(0, len(names), QUEUES_AT_ONCE):
        ids |= _ids_starting(redis, prefix, names[first : first + QUEUES_AT_ONCE])
    # The index and the lists may still name what 1.0.0 has deleted.
    candidates = sorted(ids)[: 10 * MAX_FOUND]
    replies = redis.read(*[("EXISTS", keys.task(task_id)) for task_id in candidates])
    existing = [task_id for task_id, exists in zip(candidates, replies, strict=True) if exists]
    return existing[:MAX_FOUND]


def _ids_starting(redis: Redis, prefix: str, queues: Sequence[str]) -> set[str]:
    groups = [
        [*ask_members(queue), ask_names(queue, MAX_HEADS), *_ask_ids(queue)] for queue in queues
    ]
    replies = dict(zip(queues, read_groups(redis, groups), strict=True))
    members = {queue: Members(*reply[:3]) for queue, reply in replies.items()}
    names = {queue: reply[3] for queue, reply in replies.items()}
    nodes, next_ids = read_nodes_and(redis, members, 0.0, ask_ids(names, MAX_HEADS))
    pages = chain(
        (node.held for node in nodes),
        (started_ids(seen.started) for seen in members.values()),
        next_ids,
        chain.from_iterable(reply[4:] for reply in replies.values()),
    )
    found = (task_id for page in pages for task_id in page if task_id.startswith(prefix))
    return set(filter(is_uuid, found))


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


def to_seconds(time: Sequence[str]) -> float:
    """Return Unix seconds, given the reply to TIME."""
    return int(time[0]) + int(time[1]) / 1e6


def _ask_lengths(names: Names) -> list[Command]:
    return [("LLEN", keys.line(queue, name)) for queue, lines in names.items() for name in lines]


def _ask_lists(queue: str, statuses: Collection[str], count: int) -> list[Command]:
    """Return the commands that read the start of these lists, each with a command for its length."""
    commands: list[Command] = []
    for status, set_of in SETS.items():
        if status in statuses:
            commands += [("ZRANGE", set_of(queue), 0, count - 1), ("ZCARD", set_of(queue))]
    for status, list_of in LISTS.items():
        if status in statuses:
            commands += [("LRANGE", list_of(queue), 0, count - 1), ("LLEN", list_of(queue))]
    return commands


def _ask_ids(queue: str) -> list[Command]:
    # The index first; then the lists: a task that 1.0.0 made is not in the index until we touch it.
    return [
        ("ZREVRANGE", keys.tasks(queue), 0, MAX_IDS - 1),
        ("LRANGE", keys.pending(queue), -MAX_ENDS, -1),
        ("LRANGE", keys.pending(queue), 0, MAX_ENDS - 1),
        ("ZRANGE", keys.scheduled(queue), 0, MAX_ENDS - 1),
        ("ZRANGE", keys.blocked(queue), 0, MAX_ENDS - 1),
        ("LRANGE", keys.failed(queue), 0, MAX_ENDS - 1),
        ("LRANGE", keys.cancelled(queue), 0, MAX_ENDS - 1),
        ("LRANGE", keys.complete(queue), 0, MAX_ENDS - 1),
    ]


def shown(redis: Redis, ids: Iterable[str]) -> dict[str, Task]:
    """Return snapshots of these tasks with the fields in SHOWN, by their ids, in one round trip."""
    unique = list(dict.fromkeys(ids))
    return take_shown(unique, redis.read(*ask_shown(unique)))


def ask_shown(ids: Iterable[str]) -> list[Command]:
    """Return the commands that read the fields in SHOWN; `take_shown` takes the replies."""
    return [("HMGET", keys.task(task_id), *SHOWN) for task_id in ids]


def take_shown(ids: Iterable[str], replies: Iterable[Sequence[str | None]]) -> dict[str, Task]:
    """Return snapshots of tasks, each once, by their ids."""
    return {
        task_id: Task(
            task_id,
            {name: text for name, text in zip(SHOWN, reply, strict=True) if text is not None},
        )
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
