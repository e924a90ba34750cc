"""How many tasks of a queue waited, ran and failed on which days, and for how long.

The transactions count them, see docs/protocol.md, "Events". Counts, means and standard deviations
are exact. Quantiles are estimates, because Redis keeps only buckets. They are a second wide up to a
minute, a minute up to an hour, and an hour up to a day. Mean and deviation bound the quantiles
further: if all tasks run for 7 ms, the quantiles are 7 ms.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from blueque.connection.redis import Redis, as_hash
from blueque.model import histogram, keys
from blueque.model.encoding import day_of, require_whole, seconds_of
from blueque.model.parts import in_parts
from blueque.model.states import LOST
from blueque.text.eta import read_progress

if TYPE_CHECKING:
    from blueque.model.task import Task
    from blueque.queries.steps import Reader

Name = TypeVar("Name")
Amount = TypeVar("Amount", int, float)

DAY = 86400
MOST_DAYS = 3660  # the most days that a caller may ask for
USUAL_DAYS = 7  # days that count for what is usual
LEAST = 5  # runs that are needed for that
# the share of runs that are no longer than what is long, and as many
TAIL, LEAST_OF_TAIL = 0.95, 20
HASHES_AT_ONCE = 500  # hashes in one round trip

_BEYOND = 1e100  # larger than any sum of ours; another program may have written one

_NUMBERS = {name: number for number, name in enumerate(histogram.NAMES)}


class Durations(NamedTuple):
    """How long something took.

    counted: how often it happened.
    mean, deviation: in seconds; the deviation is the standard deviation. None: it did not happen,
        or, in `totals`, the squares are not kept.
    buckets: how often it happened, by number of bucket; see histogram.py.
    """

    counted: int
    mean: float | None
    deviation: float | None
    buckets: Mapping[int, int]

    def quantile(self, share: float) -> float | None:
        """Estimate the duration in seconds that this share did not exceed. None: it did not happen.

        It lies within what the mean and the deviation allow, and never exceeds `longest`.
        """
        return histogram.quantile(self.buckets, share, self._least(share), self._most(share))

    @property
    def longest(self) -> float | None:
        """An upper bound of the longest duration, in seconds.

        It is the end of the last bucket, or less where mean and deviation allow.
        """
        if not self.buckets:
            return None
        last = max(self.buckets)
        return max(min(histogram.end(last), self._most(1.0)), histogram.start(last))

    def _most(self, share: float) -> float:
        """Return an upper bound of the quantile, by Cantelli; by Markov without a deviation."""
        if self.mean is None:
            return math.inf
        # at least this share is not shorter than the quantile
        rest = max(1 - share, 1 / self.counted)
        if self.deviation is None:
            return self.mean / rest
        return self.mean + self.deviation * math.sqrt(1 / rest - 1)

    def _least(self, share: float) -> float:
        """Return a lower bound of the quantile."""
        if self.mean is None or self.deviation is None:
            return 0.0
        return self.mean - self.deviation * math.sqrt(1 / max(share, 1 / self.counted) - 1)


class Numbers(NamedTuple):
    """The counts of a queue.

    events: how often each happened, see docs/protocol.md, "Events".
    errors: failed attempts by error type, also those that were retried.
    seconds, squares: sums of the durations of each event.
    buckets: the durations of each event, by number of bucket.
    """

    events: Mapping[str, int] = {}
    errors: Mapping[str, int] = {}
    seconds: Mapping[str, float] = {}
    squares: Mapping[str, float] = {}
    buckets: Mapping[str, Mapping[int, int]] = {}

    @property
    def complete(self) -> int:
        return self.events.get("complete", 0)

    @property
    def failed(self) -> int:
        """How many tasks failed for good, without those that were declared lost and came back."""
        return max(self.events.get("failed", 0) - self.events.get("found", 0), 0)

    @property
    def cancelled(self) -> int:
        return self.events.get("cancelled", 0)

    @property
    def expired(self) -> int:
        """How many tasks did not start in time and were cancelled or moved."""
        return self.events.get("expired", 0)

    @property
    def retried(self) -> int:
        """How many attempts failed and were followed by another."""
        return self.events.get("retried", 0)

    @property
    def lost(self) -> int:
        """How many attempts were lost with their listener or node, with or without a retry."""
        return sum(self.errors.get(kind, 0) for kind in LOST)

    @property
    def failed_share(self) -> float | None:
        """The share of failed tasks among those that completed or failed. None: there are none."""
        ended = self.complete + self.failed
        return self.failed / ended if ended else None

    @property
    def waiting(self) -> Durations:
        """How long tasks waited in line for a listener, without the time before they were due."""
        return self.durations("reserved")

    @property
    def running(self) -> Durations:
        """How long the attempts ran that completed."""
        return self.durations("complete")

    def durations(self, event: str) -> Durations:
        """Return the durations of this event: `reserved`, `complete`, `failed` or `cancelled`."""
        buckets = self.buckets.get(event, {})
        count = sum(buckets.values())
        if not count:
            return Durations(0, None, None, {})
        mean, squares = self.seconds.get(event, 0.0) / count, self.squares.get(event)
        deviation = None if squares is None else math.sqrt(max(squares / count - mean * mean, 0.0))
        return Durations(count, mean, deviation, buckets)


class Statistics(NamedTuple):
    """The numbers of a queue.

    days: by UTC day, such as 2026-11-22, oldest first, including days without any.
    """

    queue: str
    days: Mapping[str, Numbers]
    total: Numbers


class Usual(NamedTuple):
    """The middle half of the run times of a queue: from `low` to `high` seconds, as estimates."""

    low: float
    high: float


def load(
    redis: Redis, queues: Sequence[str], days: int, now: float | None = None
) -> list[Statistics]:
    """Return the numbers of these queues for the last UTC days, with today, by the clock of Redis.

    One round trip for the time, unless it is given, and one for each 500 days of a queue.
    """
    require_whole(days, "days", 1, MOST_DAYS)
    if now is None:
        ((seconds, _),) = redis.read(("TIME",))
        now = float(seconds)
    names = [day_of(now - ago * DAY) for ago in range(days - 1, -1, -1)]
    found = _hashes(redis, [keys.stats(queue, name) for queue in queues for name in names])
    statistics = []
    for queue in queues:
        by_day = {
            name: read_numbers(fields)
            for name, fields in zip(names, islice(found, days), strict=True)
        }
        statistics.append(Statistics(queue, by_day, total(by_day.values())))
    return statistics


def is_quiet(task: Task) -> bool:
    """Return whether a task runs and reports no progress."""
    return task.status == "started" and read_progress(task.fields.get("progress", "")).share is None


def ran(queue: str, now: float) -> Reader[Durations]:
    """Read how long tasks of a queue ran in the last days: one round trip."""
    days = [day_of(now - ago * DAY) for ago in range(USUAL_DAYS)]
    replies = yield [("HGETALL", keys.stats(queue, day)) for day in days]
    return total(read_numbers(as_hash(reply)) for reply in replies).running


def usual(ran: Durations) -> Usual | None:
    """Return how long the middle half ran. None: too few have run."""
    low, high = ran.quantile(0.25), ran.quantile(0.75)
    return (
        Usual(low, high) if ran.counted >= LEAST and low is not None and high is not None else None
    )


def tail(ran: Durations) -> float | None:
    """Return the duration that 19 of 20 did not exceed. None: too few have run."""
    return ran.quantile(TAIL) if ran.counted >= LEAST_OF_TAIL else None


def read_numbers(fields: Mapping[str, str]) -> Numbers:
    """Return the numbers in a hash, without fields of other programs."""
    events: dict[str, int] = {}
    errors: dict[str, int] = {}
    seconds: dict[str, float] = {}
    squares: dict[str, float] = {}
    buckets: dict[str, dict[int, int]] = {}
    for name, text in fields.items():
        value = seconds_of(text)
        event, _, part = name.rpartition("_")
        if value is None or not 0 <= value < _BEYOND:
            continue
        if name.startswith("error:"):
            errors[name.removeprefix("error:")] = int(value)
        elif event and part == "seconds":
            seconds[event] = value
        elif event and part == "squares":
            squares[event] = value
        elif event and part in _NUMBERS:
            buckets.setdefault(event, {})[_NUMBERS[part]] = int(value)
        else:
            events[name] = int(value)
    return Numbers(events, errors, seconds, squares, buckets)


def total(numbers: Iterable[Numbers]) -> Numbers:
    """Return the sum of the numbers of several days or queues."""
    parts = [*numbers]
    events = {event for part in parts for event in part.buckets}
    return Numbers(
        _sums(part.events for part in parts),
        _sums(part.errors for part in parts),
        _sums(part.seconds for part in parts),
        _sums(part.squares for part in parts),
        {event: _sums(part.buckets.get(event, {}) for part in parts) for event in events},
    )


def _sums(parts: Iterable[Mapping[Name, Amount]]) -> dict[Name, Amount]:
    sums: dict[Name, Amount] = {}
    for part in parts:
        for name, amount in part.items():
            sums[name] = sums[name] + amount if name in sums else amount
    return sums


def _hashes(redis: Redis, names: Sequence[str]) -> Iterator[dict[str, str]]:
    for some in in_parts(names, HASHES_AT_ONCE):
        for reply in redis.read(*[("HGETALL", name) for name in some]):
            yield as_hash(reply)
