"""What the overview reads of each queue: its numbers, listeners, lines and newest failures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from blueque.connection.redis import as_hash
from blueque.model import keys
from blueque.model.conditions import GONE
from blueque.model.encoding import count_of, day_of, seconds_of
from blueque.model.group import workflow_of
from blueque.model.start_time import EXPIRED
from blueque.queries import feeds
from blueque.queries.holders import Holder
from blueque.queries.listeners import Members, Node, listeners, members
from blueque.queries.listing import DAY, LATE, MAX_BLOCKED, OVERDUE, in_order, tasks_shown
from blueque.queries.queues import QueueSeen, queue_seen
from blueque.queries.statistics import ran
from blueque.queries.steps import in_step, of_each
from blueque.queries.task_log import printed
from blueque.queries.waiting_lines import MAX_HEADS, NEXT, Waits, lock_of, waits

if TYPE_CHECKING:
    from blueque.connection.redis import Command
    from blueque.model.task import Task
    from blueque.queries.schedules import Watched
    from blueque.queries.statistics import Durations
    from blueque.queries.steps import Reader

MAX_FEEDS = 100  # open feeds of a queue that are read
MAX_FAILED = 100  # newest failed tasks of a queue that are read
MAX_FAILED_IN_ALL = 2000  # in all queues together, but LEAST_FAILED of each
LEAST_FAILED = 10
MAX_BLOCKED_IN_ALL = 400  # but one of each queue
HOUR = 3600.0
# The keys of a queue besides that of its complete tasks. Each vanishes with its last entry.
_OTHERS = (
    *(keys.pending, keys.lines, keys.scheduled, keys.blocked, keys.started, keys.failed),
    *(keys.cancelled, keys.listeners, keys.nodes, keys.settings, keys.counted, keys.feeds),
)
MAX_TALKING = 20  # tasks that run longest, whose last line is read
MAX_RUNNING_QUEUES = 20  # queues whose tasks run longest, whose usual run time is read
MANY = 5  # fewer failures within an hour are not too many
SHARE = 5  # more than one failure of so many ended tasks is too many
_OF_FAILED = ("status", "queue", "error_type", "finished", "updated", "dependents", "broken_by")


class Ends(NamedTuple):
    """The ends of the lists of a queue.

    head: the last ids of the default line, the next task last. next_due: the next scheduled task
        and its eta. late, overdue: how many scheduled tasks should be in line by now, without and
        with a listener.
    """

    head: Sequence[str]
    next_due: Sequence[str]
    late: int
    overdue: int
    failed: Sequence[str]
    cancelled: Sequence[str]
    blocked: Sequence[str]
    feeds: Sequence[str]


class Failed(NamedTuple):
    """The newest failed tasks of a queue, at most a day old.

    awaited: those that others wait for, or waited for; also cancelled tasks, and of any age.
    today: how many failed today (UTC).
    """

    lost: Sequence[str] = ()
    poison: Sequence[str] = ()
    within_hour: int = 0
    awaited: Sequence[Holder] = ()
    today: int = 0


class QueueRead(NamedTuple):
    """A queue as one read shows it; `Details` needs another one."""

    seen: QueueSeen
    members: Members
    ends: Ends


class Details(NamedTuple):
    """The details of a queue. orphans: ids of blocked tasks that wait for something that is gone.

    expired: how many tasks did not start in time today (UTC); 0 if no task is cancelled.
    """

    nodes: Sequence[Node]
    waits: Sequence[Waits]
    feeds: Sequence[dict[str, str]]
    failed: Failed
    orphans: Sequence[str] = ()
    expired: int = 0


def complete_only(queue: str) -> Reader[int | None]:
    """Read how many complete tasks a queue has, if it has nothing else: one round trip.

    Most of thousands of queues are like that, and need no other read.
    """
    has_more, complete = yield [
        ("EXISTS", *(key(queue) for key in _OTHERS)),
        ("LLEN", keys.complete(queue)),
    ]
    return None if has_more else complete


def look(queue: str, now: float, queues: int) -> Reader[QueueRead]:
    """Read a queue, one of so many: one round trip."""
    return QueueRead(
        *(yield from in_step(queue_seen(queue), members(queue), _ends(queue, now, queues)))
    )


def details(looked: QueueRead, is_any_blocked: bool, now: float) -> Reader[Details]:
    """Read the details of a queue: one round trip. is_any_blocked: tasks of some queue wait for others."""
    queue, ends = looked.seen.queue, looked.ends
    nodes, lines, records, failed, (orphans, expired) = yield from in_step(
        listeners(queue, looked.members, now),
        waits(queue, looked.seen.lines),
        feeds.records(queue, ends.feeds),
        _failed(queue, [*ends.failed, *(ends.cancelled if is_any_blocked else ())], now),
        _rest(looked, now),
    )
    return Details(nodes, lines, records, failed, orphans, expired)


def _ends(queue: str, now: float, queues: int) -> Reader[Ends]:
    newest = max(min(MAX_FAILED, MAX_FAILED_IN_ALL // queues), LEAST_FAILED)
    blocked = max(min(MAX_BLOCKED, MAX_BLOCKED_IN_ALL // queues), 1)
    replies = yield [
        ("LRANGE", keys.pending(queue), -NEXT, -1),
        ("ZRANGE", keys.scheduled(queue), 0, 0, "WITHSCORES"),
        ("ZCOUNT", keys.scheduled(queue), "-inf", now - LATE),
        ("ZCOUNT", keys.scheduled(queue), "-inf", now - OVERDUE),
        ("LRANGE", keys.failed(queue), 0, newest - 1),
        ("LRANGE", keys.cancelled(queue), 0, newest - 1),
        ("ZRANGE", keys.blocked(queue), 0, blocked - 1),
        ("ZRANGEBYSCORE", keys.feeds(queue), "+inf", "+inf", "LIMIT", 0, MAX_FEEDS),
    ]
    return Ends(*replies)


def _failed(queue: str, ids: Sequence[str], now: float) -> Reader[Failed]:
    """Read these failed or cancelled tasks of a queue: one round trip."""
    replies = yield [("HMGET", keys.task(task_id), *_OF_FAILED) for task_id in ids]
    ages, awaited = dict[str, tuple[float, str | None]](), []
    for task_id, reply in zip(ids, replies, strict=True):
        status, home, error_type, finished, updated, dependents, cause = reply
        if home != queue or status not in ("failed", "cancelled"):
            continue
        if dependents is not None:
            awaited.append(Holder(task_id, status, 0, cause))
        if status == "failed":
            ages[task_id] = now - (seconds_of(finished or updated) or 0.0), error_type
    return Failed(
        _with_error(ages, "lost"),
        _with_error(ages, "poison"),
        sum(age <= HOUR for age, _ in ages.values()),
        awaited,
        sum(age <= now % DAY for age, _ in ages.values()),
    )


def _with_error(ages: Mapping[str, tuple[float, str | None]], wanted: str) -> tuple[str, ...]:
    """Return the ids of the tasks with this error type that are at most a day old."""
    return tuple(task for task, (age, kind) in ages.items() if kind == wanted and age <= DAY)


def _rest(looked: QueueRead, now: float) -> Reader[tuple[tuple[str, ...], int]]:
    queue, blocked = looked.seen.queue, looked.ends.blocked
    asked: list[Command] = [("HGETALL", keys.conditions(task_id)) for task_id in blocked]
    if looked.seen.cancelled:
        asked.append(("HGET", keys.stats(queue, day_of(now)), EXPIRED))
    replies = yield asked
    orphans = [
        task for task, reply in zip(blocked, replies, strict=False) if _waits_for_gone(reply)
    ]
    return tuple(orphans), count_of(replies[-1]) if looked.seen.cancelled else 0


def _waits_for_gone(reply: Any) -> bool:
    """Return whether a condition of a task cannot be met, because what it names is gone."""
    pairs = as_hash(reply).items()
    return any(kind == f"-{GONE}" and workflow_of(name) is None for name, kind in pairs)


class Tasks(NamedTuple):
    """Tasks by id; the longest-running ones; when some last printed; usual run times by queue."""

    tasks: Mapping[str, Task]
    running: list[Task]
    printed: Mapping[str, float]
    ran: Mapping[str, Durations]


def tasks_of(
    looks: Mapping[str, QueueRead],
    found: Mapping[str, Details],
    schedules: Iterable[Watched],
    now: float,
) -> Reader[Tasks]:
    """Read the tasks that run, are held, come next, or came last of a schedule: two round trips."""
    started = sorted({task for each in looks.values() for task in each.members.started_tasks})
    held = [task for each in found.values() for node in each.nodes for task in node.held]
    first = chain(*(firsts(looks[queue], each) for queue, each in found.items()))
    came = [each.current for each in schedules if each.current is not None]
    tasks = yield from tasks_shown([*held, *first, *started, *came])
    running = in_order([tasks[task] for task in started if tasks[task].status == "started"])
    queues = [*dict.fromkeys(task.queue for task in running if task.queue is not None)]
    last, runs = yield from in_step(
        of_each({task.id: printed(task.id, task.attempt) for task in running[:MAX_TALKING]}),
        of_each({queue: ran(queue, now) for queue in queues[:MAX_RUNNING_QUEUES]}),
    )
    printed_at = {task: at for task, at in last.items() if at is not None}
    return Tasks(tasks, running, printed_at, runs)


def firsts(looked: QueueRead, found: Details) -> list[str]:
    """Return the next tasks of the lines of a queue."""
    heads = [looked.ends.head, *(line.head for line in found.waits[:MAX_HEADS])]
    return [*chain(*heads)]


def locks(found: Iterable[Details]) -> Reader[dict[str, int]]:
    """Read how many tasks hold each lock that a line with tasks names: one round trip."""
    lines = (line.line for each in found for line in each.waits)
    locks = sorted({lock for line in lines if (lock := lock_of(line))})
    counts = yield [("SCARD", keys.lock(lock)) for lock in locks]
    return dict(zip(locks, counts, strict=True))


def too_many_failed(found: Mapping[str, Details], now: float) -> Reader[set[str]]:
    """Find the queues with too many failed tasks within the hour: two round trips."""
    failures = {queue: each.failed.within_hour for queue, each in found.items()}
    failing = yield from of_each(
        {
            queue: _is_failing(queue, count, now)
            for queue, count in failures.items()
            if count >= MANY
        }
    )
    return {queue for queue, is_failing in failing.items() if is_failing}


def _is_failing(queue: str, failures: int, now: float) -> Reader[bool]:
    """Read whether so many failures within an hour are too many for a queue: two round trips.

    They are not if the complete task that limits their share also ended within the hour.
    """
    (good,) = yield [("LINDEX", keys.complete(queue), (SHARE - 1) * failures - 1)]
    if good is None:
        return True
    ((finished, updated),) = yield [("HMGET", keys.task(good), "finished", "updated")]
    return now - (seconds_of(finished or updated) or 0.0) > HOUR
