"""Estimate: what the words of a task tell of how far it is, and about how long it will take yet.

Pure functions of numbers and texts, for every face. Durations themselves are said by
`wording.span`.
"""

from __future__ import annotations

import math
import re
from typing import NamedTuple

from blueque.text.format import one_line, span

LATE = "later than estimated"
LEAST_SHARE = 0.02  # with less done, and one update, an estimate would be a guess
LEAST_TIME = 30.0  # seconds that it must have run
WINDOW = 300.0  # seconds over which its speed is taken
SETTLED = 60.0  # seconds after which the speed of late counts alone

_UNITS = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
_NUMBER = r"(\d+(?:\.\d*)?(?:e[+-]?\d+)?|\.\d+)"
_PART = re.compile(rf"{_NUMBER}([kMGTPE]?) ?/ ?{_NUMBER}([kMGTPE]?)(?: +|$)(.*)", re.DOTALL)
_PERCENT = re.compile(rf"{_NUMBER} ?%(?: +|$)(.*)", re.DOTALL)
_FRACTION = re.compile(r"(0?\.\d+|1\.0*|\d(?:\.\d*)?e-\d+)(?: +|$)(.*)", re.DOTALL)
# The largest that fits counts: seconds from which on an estimate is said in such steps, for it is
# none of seconds.
_STEPS = ((172_800, 86400), (36000, 3600), (3600, 600), (600, 60), (60, 10), (0, 5))


class Progress(NamedTuple):
    """What a task has told. share: how much is done, 0 to 1; None: it has not said. text: the other
    words.
    """

    share: float | None
    text: str


def read_progress(text: str) -> Progress:
    """Read what a task has told: 450/1500 frames, 1.2k/10k, 41 % encoding, 0.41, or just words."""
    text = one_line(text)
    if match := _PART.fullmatch(text):
        done, total = float(match[1]) * _UNITS[match[2]], float(match[3]) * _UNITS[match[4]]
        if total > 0 and math.isfinite(done) and math.isfinite(total):
            return Progress(min(done / total, 1.0), text)
    elif match := _PERCENT.fullmatch(text):
        return Progress(min(float(match[1]) / 100, 1.0), match[2])
    elif match := _FRACTION.fullmatch(text):
        return Progress(min(float(match[1]), 1.0), match[2])
    elif text in ("0", "1"):  # with words behind it, it is a count
        return Progress(float(text), "")
    return Progress(None, text)


class Pace:
    """How fast a task has been of late, for one who looks at it again and again."""

    def __init__(self) -> None:
        self._seen: list[tuple[float, float]] = []  # when it told, and which share

    @property
    def updates(self) -> int:
        return len(self._seen)

    def rate(self, mean: float) -> float:
        """Return the share that it does in a second: at first the mean since it began, more and
        more the speed of late.
        """
        if len(self._seen) < 2:
            return mean
        (first, start), (last, end) = self._seen[0], self._seen[-1]
        weight = min((last - first) / SETTLED, 1.0)
        return mean * (1.0 - weight) + (end - start) / (last - first) * weight

    def see(self, share: float, at: float) -> None:
        """Take note of what it has told at this time, in Unix seconds; the same again is no news."""
        if self._seen and (share < self._seen[-1][1] or at < self._seen[-1][0]):
            self._seen.clear()  # it has begun anew
        if not self._seen or (share > self._seen[-1][1] and at > self._seen[-1][0]):
            self._seen.append((at, share))
        while len(self._seen) > 2 and self._seen[1][0] < at - WINDOW:
            del self._seen[0]


def seconds_left(
    share: float, elapsed: float, age: float, pace: Pace | None = None
) -> float | None:
    """Return how long a task will take yet, in seconds; 0: it should have ended; None: it is too
    early to tell.

    elapsed: since it began. age: since it told the share. pace: how fast it was seen to be; None:
        as since it began.
    """
    if elapsed < LEAST_TIME or (share < LEAST_SHARE and (pace is None or pace.updates < 2)):
        return None
    age = min(max(age, 0.0), elapsed)
    rate = share / (elapsed - age) if elapsed > age else 0.0
    if pace is not None:
        rate = pace.rate(rate)
    left = (1.0 - share) / rate - age if rate > 0 else math.inf
    return max(left, 0.0) if math.isfinite(left) else None


def time_left(share: float, elapsed: float, age: float, pace: Pace | None = None) -> str | None:
    """Return the same in words: ~1 h 50 m, or that it is late; None: it is too early to tell."""
    left = seconds_left(share, elapsed, age, pace)
    if left is None:
        return None
    return f"~{roughly(left)}" if left > 0 else LATE


def roughly(seconds: float) -> str:
    """Return a duration that is not known exactly: 3 d, 4 h, 1 h 50 m, 12 m, 40 s."""
    step = next(size for least, size in _STEPS if seconds >= least)
    return (
        f"{max(round(seconds / step) * step, 5)} s"
        if seconds < 57.5
        else span(round(seconds / step) * step)
    )


def percent(share: float) -> str:
    """Return a share as 41 %; never 100 % before all is done, nor 0 % once something is."""
    whole = math.floor(share * 100 + 1e-9)
    return "<1 %" if 0 < share < 0.01 else f"{whole} %"


def bar(share: float, columns: int) -> str:
    """Return so many columns that show a share: ########............"""
    full = min(int(share * columns + 1e-9), columns)
    return "#" * full + "." * (columns - full)
