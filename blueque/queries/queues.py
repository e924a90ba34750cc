"""The facts about a queue: how many tasks it has in each state, its settings, its lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from blueque.model import keys
from blueque.model.encoding import known_count, seconds_of
from blueque.model.queue_settings import OLDEST
from blueque.queries.listeners import held, members
from blueque.queries.steps import in_step, of_each, read
from blueque.queries.waiting_lines import waits

if TYPE_CHECKING:
    from blueque.connection.redis import Command, Redis
    from blueque.queries.steps import Reader

MAX_LINES = 10_000  # lines of a queue that are counted, those of the highest priority
_SETTINGS = ("paused", "paused_by", "paused_reason", "max_running", "max_pending", "discard")


class Pause(NamedTuple):
    """Since when a queue is paused (None: unknown), by whom and why."""

    since: float | None
    by: str | None = None
    reason: str | None = None


class Settings(NamedTuple):
    """The settings of a queue that decide whether its tasks run and new ones are accepted.

    pause: None: it is not paused. max_running: how many of its tasks may run; None: any number.
    max_pending: how many may be in line; None: any number.
    discards: whether its oldest tasks make room for new ones.
    """

    pause: Pause | None = None
    max_running: int | None = None
    max_pending: int | None = None
    discards: bool = False


class Bound(NamedTuple):
    """How many tasks may be in the lines of a queue, and how many are.

    most: its `max_pending`; None: any number, and they were not counted. discards: as in Settings.
    """

    most: int | None
    pending: int = 0
    discards: bool = False


class RunningLimit(NamedTuple):
    """How many tasks of a queue may run, and how many run."""

    limit: int | None
    counted: int  # tasks in the set of counted tasks
    started: int  # tasks in the set of started tasks

    @property
    def taken(self) -> int:
        return max(self.counted, self.started)

    def left(self, tasks: int) -> int:
        """Return how many of these tasks could run now."""
        return tasks if self.limit is None else max(min(tasks, self.limit - self.taken), 0)

    @property
    def is_full(self) -> bool:
        return self.limit is not None and self.taken >= self.limit


class QueueSeen(NamedTuple):
    """A queue at one instant: how many tasks its lists have in each state.

    in_default: pending tasks in the default line. lines: the names of its other lines, highest
        priority first; `waiting_lines.waits` reads their lengths.
    counted: how many tasks count as running.
    """

    queue: str
    in_default: int
    scheduled: int
    blocked: int
    started: int
    complete: int
    failed: int
    cancelled: int
    counted: int
    settings: Settings
    lines: Sequence[str]

    @property
    def room(self) -> RunningLimit:
        return RunningLimit(self.settings.max_running, self.counted, self.started)


def queue_seen(queue: str, most_lines: int = MAX_LINES) -> Reader[QueueSeen]:
    """Read a queue: one round trip, ten commands."""
    replies = yield [
        ("LLEN", keys.pending(queue)),
        ("ZCARD", keys.scheduled(queue)),
        ("ZCARD", keys.blocked(queue)),
        ("SCARD", keys.started(queue)),
        ("LLEN", keys.complete(queue)),
        ("LLEN", keys.failed(queue)),
        ("LLEN", keys.cancelled(queue)),
        ("SCARD", keys.counted(queue)),
        _settings_command(queue),
        ("ZRANGE", keys.lines(queue), 0, most_lines - 1, "REV"),
    ]
    *counts, hash_of_settings, names = replies
    found = [*counts, _settings_of(hash_of_settings), names]
    return QueueSeen(queue, *found)


def counts(redis: Redis, queues: Sequence[str]) -> Counter[str]:
    """Return how many tasks of these queues have each status: two round trips, or three.

    A list counts with all its entries, whatever the hashes of their tasks say.
    """
    found = Counter[str]()
    for counted in read(redis, of_each({queue: _counts(queue) for queue in queues})).values():
        found += counted
    return found


def _counts(queue: str) -> Reader[Counter[str]]:
    seen, found = yield from in_step(queue_seen(queue), members(queue))
    popped, lines = yield from in_step(held(queue, found), waits(queue, seen.lines))
    # What has started is not reserved: it need not be read to know that.
    tasks = {*popped}.difference(found.started_tasks)
    states = yield [("HGET", keys.task(task), "status") for task in tasks]
    return Counter(
        scheduled=seen.scheduled,
        blocked=seen.blocked,
        pending=seen.in_default + sum(line.length for line in lines),
        reserved=states.count("reserved"),
        started=seen.started,
        complete=seen.complete,
        failed=seen.failed,
        cancelled=seen.cancelled,
    )


def running_limit_of(queue: str) -> Reader[RunningLimit]:
    """Read how many tasks of a queue may run, and how many do: one round trip."""
    found, counted, started = yield [
        _settings_command(queue),
        ("SCARD", keys.counted(queue)),
        ("SCARD", keys.started(queue)),
    ]
    return RunningLimit(_settings_of(found).max_running, counted, started)


def legacy(queue: str) -> Reader[list[str]]:
    """Read the node ids of the listeners of 1.0.0 that a queue has."""
    (nodes,) = yield [("SMEMBERS", keys.listeners(queue))]
    registered = yield [("EXISTS", keys.listener(queue, node)) for node in nodes]
    return sorted(node for node, exists in zip(nodes, registered, strict=True) if not exists)


def bound_of(queue: str) -> Reader[Bound]:
    """Read how many tasks a queue may have in line: one round trip.

    If it is bounded, count them: one or two more.
    """
    ((text, discard),) = yield [("HMGET", keys.settings(queue), "max_pending", "discard")]
    most = known_count(text)
    if most is None:
        return Bound(None)
    pending, names = yield [("LLEN", keys.pending(queue)), ("ZRANGE", keys.lines(queue), 0, -1)]
    others = yield [("LLEN", keys.line(queue, name)) for name in names]
    return Bound(most, pending + sum(others), discard == OLDEST)


def lines(queue: str, most: int = MAX_LINES) -> Reader[Sequence[str]]:
    """Read the names of a queue's lines besides the default line, highest priority first."""
    (names,) = yield [("ZRANGE", keys.lines(queue), 0, most - 1, "REV")]
    found: Sequence[str] = names
    return found


def _settings_command(queue: str) -> Command:
    return ("HMGET", keys.settings(queue), *_SETTINGS)


def _settings_of(reply: Sequence[Any]) -> Settings:
    paused, by, reason, limit, most, discard = reply
    pause = None if paused is None else Pause(seconds_of(paused), by, reason)
    return Settings(pause, known_count(limit), known_count(most), discard == OLDEST)
