"""Axes: the place of a value, as a share of the whole, and the labels."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, tzinfo
from typing import NamedTuple

from blueque.model import histogram
from blueque.report.phrases import day, month, short, span, tick

MINUTE, HOUR, DAY = 60, 3600, 86400
# Usual durations, with about the same distance on a logarithmic axis.
_DURATIONS = {
    0.001: "1 ms",
    0.01: "10 ms",
    0.1: "0.1 s",
    1: "1 s",
    10: "10 s",
    MINUTE: "1 m",
    10 * MINUTE: "10 m",
    HOUR: "1 h",
    6 * HOUR: "6 h",
    DAY: "1 d",
    7 * DAY: "7 d",
    30 * DAY: "30 d",
    365 * DAY: "365 d",
    3650 * DAY: "3,650 d",
}
# Qless's buckets, put together to some that are about as wide as each other on a logarithmic axis:
# each twice the one before, as the first minutes and hours are. With others a bucket would stand
# out only because it is wide.
_EDGES = [
    *(0, 1, 2, 4, 8, 15, 30),
    *(count * MINUTE for count in (1, 2, 4, 8, 15, 30)),
    *(count * HOUR for count in (1, 2, 3, 6, 12)),
    *(count * DAY for count in (1, 2, 4, 7, 14, 30, 60, 120, 240)),
    histogram.LAST_DAY * DAY,
]
_SAID = {
    1,
    4,
    15,
    MINUTE,
    4 * MINUTE,
    15 * MINUTE,
    HOUR,
    6 * HOUR,
    DAY,
    7 * DAY,
    30 * DAY,
    120 * DAY,
}
_STEPS = [
    *(1, 2, 5, 10, 15, 30),
    *(count * MINUTE for count in (1, 2, 5, 10, 15, 30)),
    *(count * HOUR for count in (1, 2, 3, 6, 12)),
    *(count * DAY for count in (1, 2, 7, 14, 30, 90, 365)),
]
_DAYS = [1, 2, 7, 14, 30, 60, 90, 180, 365, 730, 1825, 3650]
_MANY_DAYS = 300  # from so many days on, months are labelled instead


class Tick(NamedTuple):
    """A place on an axis, as a share of it. is_minor: may be left out where there is little room."""

    at: float
    label: str
    is_minor: bool = False


class Durations:
    """A logarithmic axis for seconds."""

    def __init__(self, seconds: Sequence[float], ticks: int = 5) -> None:
        rungs = [*_DURATIONS]
        low = max((n for n, rung in enumerate(rungs[:-1]) if rung <= min(seconds)), default=0)
        high = min(
            (n for n, rung in enumerate(rungs) if rung >= max(seconds)), default=len(rungs) - 1
        )
        self._rungs = rungs[low : max(high, low + 1) + 1]
        self._every = math.ceil(len(self._rungs) / ticks)

    def at(self, seconds: float) -> float:
        low, high = self._rungs[0], self._rungs[-1]
        return math.log(min(max(seconds, low), high) / low) / math.log(high / low)

    def ticks(self) -> list[Tick]:
        return [Tick(self.at(rung), _DURATIONS[rung]) for rung in self._rungs[:: self._every]]


class Counts:
    """A linear axis from 0, with whole numbers."""

    def __init__(self, most: float, ticks: int = 4) -> None:
        power = 10 ** math.floor(math.log10(max(most / ticks, 1)))
        self._step = next(
            factor * power for factor in (1, 2, 5, 10) if factor * power >= most / ticks
        )
        self._steps = max(math.ceil(most / self._step), 1)

    def at(self, count: float) -> float:
        return count / (self._step * self._steps)

    def ticks(self) -> list[Tick]:
        return [Tick(n / self._steps, short(n * self._step)) for n in range(self._steps + 1)]


class Days:
    """An axis with a place for each day."""

    def __init__(self, first: int, last: int) -> None:
        self.first, self.last, self.count = first, last, last - first + 1

    def at(self, number: int) -> float:
        """Return the middle of a day."""
        return (number - self.first + 0.5) / self.count

    def ticks(self, most: int) -> list[Tick]:
        """Return the newest day, and others before it at the same distance."""
        step = next((step for step in _DAYS if self.count / step <= most), _DAYS[-1])
        say = month if self.count > _MANY_DAYS else day
        return [
            Tick(self.at(number), say(number)) for number in range(self.last, self.first - 1, -step)
        ]


class Times:
    """An axis between two instants, with labels in a time zone."""

    def __init__(self, since: float, until: float, zone: tzinfo = UTC) -> None:
        self.since, self.until, self._zone = since, until, zone

    def at(self, instant: float) -> float:
        return min(max((instant - self.since) / (self.until - self.since), 0.0), 1.0)

    def ticks(self, most: int) -> list[Tick]:
        step, shift = step_of(self.until - self.since, most), self._shift(self.since)
        first, last = (
            math.ceil((self.since + shift) / step),
            math.floor((self.until + shift) / step),
        )
        instants = [place * step - shift for place in range(first, last + 1)]
        return [
            Tick(self.at(instant), tick(instant + self._shift(instant), step), n % 2 == 1)
            for n, instant in enumerate(instants)
        ]

    def _shift(self, instant: float) -> float:
        """Return how many seconds the clocks of the zone are ahead of UTC."""
        try:
            ahead = datetime.fromtimestamp(instant, self._zone).utcoffset()
        except (ValueError, OverflowError, OSError):  # outside the calendar of Python
            return 0.0
        return ahead.total_seconds() if ahead else 0.0


class Bins:
    """An axis of places for durations: each combines a few of Qless's buckets, with their counts."""

    def __init__(self, counts: Mapping[int, int]) -> None:
        filled = [0] * len(_EDGES)
        for number, count in counts.items():
            filled[_bin(histogram.start(number))] += count
        used = [place for place, count in enumerate(filled) if count]
        self._low = max(min(used) - 1, 0)
        self.counts = filled[self._low : max(used) + 2]

    def at(self, seconds: float) -> float:
        """Return the place of a duration."""
        place = _bin(seconds) - self._low
        since, until = self.edges(place)
        within = (seconds - since) / (until - since) if math.isfinite(until) else 0.5
        return min(max((place + within) / len(self.counts), 0.0), 1.0)

    def edges(self, place: int) -> tuple[float, float]:
        """Return the shortest duration of a place, and the shortest of the next."""
        ends = [*_EDGES, math.inf]
        return ends[place + self._low], ends[place + self._low + 1]

    def ticks(self, most: int = 5) -> list[Tick]:
        """Return the left edges of some places."""
        starts = [(place, self.edges(place)[0]) for place in range(len(self.counts))]
        said = [(place, start) for place, start in starts if start in _SAID or len(starts) <= most]
        every = math.ceil(len(said) / most) or 1
        return [Tick(place / len(self.counts), _label(start)) for place, start in said[::every]]


def step_of(length: float, most: int) -> float:
    """Return a usual step so long that at most `most` of them cover a length of time."""
    return float(
        next(
            (step for step in _STEPS if length / step <= most), math.ceil(length / DAY / most) * DAY
        )
    )


def _label(seconds: float) -> str:
    return span(seconds).replace(".0", "")


def _bin(seconds: float) -> int:
    return max(place for place, edge in enumerate(_EDGES) if edge <= max(seconds, 0))
