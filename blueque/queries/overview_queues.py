"""What the overview reads of each queue: its numbers, its listeners, its lines and its newest failures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from blueque.connection.redis import Command, Redis, as_hash
from blueque.model import keys
from blueque.model.conditions import GONE
from blueque.model.encoding import count_of, day_of, seconds_of
from blueque.model.group import workflow_of
from blueque.model.start_time import EXPIRED
from blueque.queries import feeds
from blueque.queries.holders import Holder
from blueque.queries.listeners import Members, Node, read_nodes_and
from blueque.queries.listing import DAY, LATE, MAX_BLOCKED, OVERDUE
from blueque.queries.waiting_lines import NEXT, Waits, ask_lengths, ask_names, take_lengths

MAX_FEEDS = 100  # open feeds of a queue that are read
MAX_FAILED = 100  # newest failed tasks of a queue that are read
MAX_FAILED_IN_ALL = 2000  # in all queues together, but LEAST_FAILED of each
LEAST_FAILED = 10
MAX_BLOCKED_IN_ALL = 400  # but one of each queue
HOUR = 3600.0
_OF_FAILED = ("status", "queue", "error_type", "finished", "updated", "dependents", "broken_by")


class Counts(NamedTuple):
    """The numbers of a queue, in the order in which `ask_counts` asks for them."""

    members: Members
    started_count: int = 0
    scheduled: int = 0
    pending: int = 0
    complete: int = 0
    failed: int = 0
    cancelled: int = 0
    head: Sequence[str] = ()  # the last ids of the default line, the next task at the end
    next_due: Sequence[str] = ()  # task, eta
    late: int = 0
    overdue: int = 0
    newest_failed: Sequence[str] = ()
    names: Sequence[str] = ()  # of its lines besides the default line
    settings: Sequence[str | None] = ()
    counted: int = 0
    open_feeds: Sequence[str] = ()
    blocked: int = 0
    newest_cancelled: Sequence[str] = ()
    some_blocked: Sequence[str] = ()

    def newest(self, is_any_blocked: bool) -> Sequence[str]:
        """Return the ids of the newest failed tasks; if tasks wait for others, of the newest
        cancelled ones, too.
        """
        return [*self.newest_failed, *(self.newest_cancelled if is_any_blocked else ())]


class Failed(NamedTuple):
    """The newest failed tasks of a queue, at most a day old.

    awaited: those for which others wait, or did; also cancelled tasks, and of any age.
    today: how many have failed today, UTC.
    expired: how many tasks have not started in time today, UTC; 0 if no task is cancelled.
    """

    lost: tuple[str, ...]
    poison: tuple[str, ...]
    within_hour: int
    awaited: Sequence[Holder]
    orphans: tuple[str, ...] = ()
    expired: int = 0
    today: int = 0


def ask_counts(queue: str, now: float, queues: int) -> list[Command]:
    newest = max(min(MAX_FAILED, MAX_FAILED_IN_ALL // queues), LEAST_FAILED)
    blocked = max(min(MAX_BLOCKED, MAX_BLOCKED_IN_ALL // queues), 1)
    return [
        ("SCARD", keys.started(queue)),
        ("ZCARD", keys.scheduled(queue)),
        ("LLEN", keys.pending(queue)),
        ("LLEN", keys.complete(queue)),
        ("LLEN", keys.failed(queue)),
        ("LLEN", keys.cancelled(queue)),
        ("LRANGE", keys.pending(queue), -NEXT, -1),
        ("ZRANGE", keys.scheduled(queue), 0, 0, "WITHSCORES"),
        ("ZCOUNT", keys.scheduled(queue), "-inf", now - LATE),
        ("ZCOUNT", keys.scheduled(queue), "-inf", now - OVERDUE),
        ("LRANGE", keys.failed(queue), 0, newest - 1),
        ask_names(queue),
        (
            "HMGET",
            keys.settings(queue),
            *("paused", "paused_by", "paused_reason", "max_concurrency", "max_pending", "discard"),
        ),
        ("SCARD", keys.counted(queue)),
        ("ZRANGEBYSCORE", keys.feeds(queue), "+inf", "+inf", "LIMIT", 0, MAX_FEEDS),
        ("ZCARD", keys.blocked(queue)),
        ("LRANGE", keys.cancelled(queue), 0, newest - 1),
        ("ZRANGE", keys.blocked(queue), 0, blocked - 1),
    ]


def read_queues(
    redis: Redis, counts: Mapping[str, Counts], now: float
) -> tuple[list[Node], dict[str, list[Waits]], list[dict[str, str]], dict[str, Failed]]:
    """Return the listeners, the lines, the feeds and the newest failures of all queues: one round
    trip.
    """
    names = {queue: seen.names for queue, seen in counts.items()}
    lengths = ask_lengths(names)
    open_feeds = feeds.ask({queue: seen.open_feeds for queue, seen in counts.items()})
    is_any = any(seen.blocked for seen in counts.values())
    ended = {queue: seen.newest(is_any) for queue, seen in counts.items()}
    newest: list[Command] = [
        ("HMGET", keys.task(task_id), *_OF_FAILED) for ids in ended.values() for task_id in ids
    ]
    newest += [
        ("HGETALL", keys.conditions(task_id))
        for seen in counts.values()
        for task_id in seen.some_blocked
    ]
    ending = [queue for queue, seen in counts.items() if seen.cancelled]
    newest += [("HGET", keys.stats(queue, day_of(now)), EXPIRED) for queue in ending]
    members = {queue: seen.members for queue, seen in counts.items()}
    nodes, others = read_nodes_and(redis, members, now, [*lengths, *open_feeds, *newest])
    waits = take_lengths(names, others[: len(lengths)])
    snapshots = iter(others[len(lengths) + len(open_feeds) :])
    failed = {
        queue: _failed(queue, {task_id: next(snapshots) for task_id in ids}, now)
        for queue, ids in ended.items()
    }
    for queue, seen in counts.items():
        orphans = [task for task in seen.some_blocked if _waits_for_gone(next(snapshots))]
        failed[queue] = failed[queue]._replace(orphans=tuple(orphans))
    for queue in ending:
        failed[queue] = failed[queue]._replace(expired=count_of(next(snapshots)))
    return nodes, waits, feeds.take(others[len(lengths) : len(lengths) + len(open_feeds)]), failed


def _waits_for_gone(reply: Any) -> bool:
    """Tell whether a condition of a task cannot be met, because what it names is gone."""
    pairs = as_hash(reply).items()
    return any(kind == f"-{GONE}" and workflow_of(name) is None for name, kind in pairs)


def _failed(queue: str, snapshots: Mapping[str, Sequence[str | None]], now: float) -> Failed:
    ages, awaited = {}, []
    for task_id, (status, home, error_type, finished, updated, waits, cause) in snapshots.items():
        if home != queue or status not in ("failed", "cancelled"):
            continue
        if waits is not None:
            awaited.append(Holder(task_id, status, 0, cause))
        if status == "failed":
            ages[task_id] = now - (seconds_of(finished or updated) or 0.0), error_type
    lost, poison = (
        tuple(
            task_id
            for task_id, (age, error_type) in ages.items()
            if error_type == wanted and age <= DAY
        )
        for wanted in ("lost", "poison")
    )
    within_hour, today = (
        sum(age <= most for age, _ in ages.values()) for most in (HOUR, now % DAY)
    )
    return Failed(lost, poison, within_hour, awaited, today=today)
