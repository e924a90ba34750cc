"""Lists of tasks from many queues in few round trips, each bounded.

A list entry is only a hint: the hash of the task is the truth. The tasks have the fields in SHOWN
and no others, because parameters, results and tracebacks may be large.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from blueque.model import keys
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

STATUSES = ("started", "reserved", "pending", "scheduled", "failed", "cancelled", "complete")
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
    "files",
    "priority",
    "needs",
    "devices",
    "progress_at",
    "queued",
)

MIN_PREFIX = 4
MAX_FOUND = 20
MAX_IDS = 10_000  # read of a queue's index
MAX_ENDS = 1000  # read of a set, or of one end of a list
QUEUES_AT_ONCE = 20  # searched in one round trip: their ids are all in memory
LATE = 10.0  # seconds within which a scheduler puts a scheduled task in line
OVERDUE = 60.0  # the same, of the listeners of its queue
DAY = 86400.0


class Choice(NamedTuple):
    """Which tasks are wanted, and in which order. Both functions take a task and the time.

    rank: the sort key, the largest first if is_reversed; tasks of rank None come last. Without a
        rank the order is that of `Inspector.listing`.
    """

    wants: Callable[[Task, float], bool]
    rank: Callable[[Task, float], Any] | None = None
    is_reversed: bool = False


class Listing(NamedTuple):
    """Some tasks at one instant.

    more: how many more there are. None: unknown, because only `looked_at` of each list were read.
    """

    now: float
    tasks: list[Task]
    has_more: bool
    more: int | None = None
    looked_at: int | None = None


def listing(
    redis: Redis,
    queues: Sequence[str],
    statuses: Collection[str],
    limit: int,
    choice: Choice | None = None,
) -> Listing:
    """See Inspector.listing."""
    depth = limit + 1
    if choice is not None:
        depth = max(depth, MAX_IDS // max(len(queues) * len(statuses), 1))
    asked = [
        [
            *ask_members(queue),
            ask_names(queue, MAX_HEADS),
            ("SCARD", keys.started(queue)),
            *_ask_lists(queue, statuses, depth),
        ]
        for queue in queues
    ]
    (time,), *replies = read_groups(redis, [[("TIME",)], *asked])
    now = to_seconds(time)
    known = {queue: Members(*reply[:3]) for queue, reply in zip(queues, replies, strict=True)}
    names = with_default({queue: reply[3] for queue, reply in zip(queues, replies, strict=True)})
    ids = [some for reply in replies for some in reply[5::2]]
    sizes = [size for reply in replies for size in reply[6::2]]
    sizes += [reply[4] for reply in replies if "started" in statuses]
    waiting: dict[tuple[str, str], list[str]] = {}
    if not {"started", "reserved", "pending"}.isdisjoint(statuses):
        # A pending task may be in a listener's own list: the listener died between pop and reserve.
        more = [*ask_ids(names, depth), *_ask_lengths(names)] if "pending" in statuses else []
        nodes, found = read_nodes_and(redis, known, now, more)
        if "pending" in statuses:
            lines, lengths = found[: len(found) // 2], found[len(found) // 2 :]
            waiting, sizes = take_ids(names, lines), sizes + lengths
        ids += [node.held for node in nodes]
        ids += [started_ids(one.started) for one in known.values()]
    tasks = shown(redis, chain.from_iterable([*ids, *waiting.values()]))
    turns = in_turn({line: [tasks[task_id] for task_id in some] for line, some in waiting.items()})
    its = in_order(
        [task for task in tasks.values() if task.status in statuses and task.queue in known], turns
    )
    reserved = sum(task.status == "reserved" for task in its)
    if choice is None:
        return Listing(
            now, its[:limit], len(its) > limit, max(sum(sizes) + reserved - min(len(its), limit), 0)
        )
    looked_at = depth if any(size > depth for size in sizes) else None
    return _chosen(choice, its, limit, now, looked_at)


def _chosen(
    choice: Choice, tasks: Sequence[Task], limit: int, now: float, looked_at: int | None
) -> Listing:
    rank = choice.rank
    wanted = [task for task in tasks if choice.wants(task, now)]
    if rank is not None:
        ranks = {task.id: rank(task, now) for task in wanted}
        known = [task for task in wanted if ranks[task.id] is not None]
        known.sort(key=lambda task: ranks[task.id], reverse=choice.is_reversed)
        wanted = known + [task for task in wanted if ranks[task.id] is None]
    rest = max(len(wanted) - limit, 0)
    return Listing(now, wanted[:limit], rest > 0, rest if looked_at is None else None, looked_at)


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
        asked = [
            [*ask_members(queue), ask_names(queue, MAX_HEADS), *_ask_ids(queue)] for queue in some
        ]
        replies = read_groups(redis, asked)
        known = {queue: Members(*reply[:3]) for queue, reply in zip(some, replies, strict=True)}
        lines = {queue: reply[3] for queue, reply in zip(some, replies, strict=True)}
        nodes, next_ids = read_nodes_and(redis, known, 0.0, ask_ids(lines, MAX_HEADS))
        held = (node.held for node in nodes)
        started = (started_ids(one.started) for one in known.values())
        ids = chain(
            *held, *started, *next_ids, *chain.from_iterable(reply[4:] for reply in replies)
        )
        found.update(task_id for task_id in ids if task_id.startswith(prefix))
    # The index and the lists may still name what 1.0.0 has deleted.
    some_found = sorted(found)[: 10 * MAX_FOUND]
    exist = redis.read(*[("EXISTS", keys.task(task_id)) for task_id in some_found])
    return [task_id for task_id, is_there in zip(some_found, exist, strict=True) if is_there][
        :MAX_FOUND
    ]


def entered(task: Task) -> float | None:
    """Return when the task got its status; for a scheduled task, when it is due."""
    if task.status == "scheduled":
        return task.eta
    if task.status == "started":
        return task.started or task.updated
    if task.status in FINISHED:
        return task.finished or task.updated
    return waiting_since(task)


def to_seconds(time: Sequence[str]) -> float:
    """Return Unix seconds, given the reply to TIME."""
    return int(time[0]) + int(time[1]) / 1e6


def _ask_lengths(names: Names) -> list[Command]:
    return [("LLEN", keys.line(queue, name)) for queue, some in names.items() for name in some]


def _ask_lists(queue: str, statuses: Collection[str], count: int) -> list[Command]:
    """Return the commands that read the start of these lists, each with a command for its length."""
    commands: dict[str, list[Command]] = {
        "scheduled": [
            ("ZRANGE", keys.scheduled(queue), 0, count - 1),
            ("ZCARD", keys.scheduled(queue)),
        ],
        "failed": [("LRANGE", keys.failed(queue), 0, count - 1), ("LLEN", keys.failed(queue))],
        "cancelled": [
            ("LRANGE", keys.cancelled(queue), 0, count - 1),
            ("LLEN", keys.cancelled(queue)),
        ],
        "complete": [
            ("LRANGE", keys.complete(queue), 0, count - 1),
            ("LLEN", keys.complete(queue)),
        ],
    }
    return [command for status, some in commands.items() if status in statuses for command in some]


def _ask_ids(queue: str) -> list[Command]:
    # The index first; then the lists: a task that 1.0.0 made is not in the index until we touch it.
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
