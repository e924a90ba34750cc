"""Read the progress of a task from its words, and estimate the time that is left.

Pure functions. `format.span` writes the durations.
"""

from __future__ import annotations

import math
import re
from typing import NamedTuple

from blueque.text.format import one_line, span

LATE = "later than estimated"
LEAST_SHARE = 0.02  # with less done, nothing is estimated
LEAST_TIME = 30.0  # seconds that it must have run

_UNITS = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
_NUMBER = r"(\d+(?:\.\d*)?(?:e[+-]?\d+)?|\.\d+)"
_PART = re.compile(rf"{_NUMBER}([kMGTPE]?) ?/ ?{_NUMBER}([kMGTPE]?)(?: +|$)(.*)", re.DOTALL)
_LONG = re.compile(r"\d*\.\d{3,}(?![\de])")  # numbers with more digits than a person reads
_PERCENT = re.compile(rf"{_NUMBER} ?%(?: +|$)(.*)", re.DOTALL)
_FRACTION = re.compile(r"(0?\.\d+|1\.0*|\d(?:\.\d*)?e-\d+)(?: +|$)(.*)", re.DOTALL)
# (from so many seconds on, the step to which an estimate is rounded); the first match counts.
_STEPS = ((172_800, 86400), (36000, 3600), (3600, 600), (600, 60), (60, 10), (0, 5))


class Progress(NamedTuple):
    """A progress. share: how much is done, 0 to 1; None: unknown. text: the other words."""

    share: float | None
    text: str


def read_progress(text: str) -> Progress:
    """Read a progress: 450/1500 frames, 1.2k/10k, 41 % encoding, 0.41, or only words. Numbers of a
    part of a total are rounded.
    """
    text = one_line(text)
    if match := _PART.fullmatch(text):
        done, total = float(match[1]) * _UNITS[match[2]], float(match[3]) * _UNITS[match[4]]
        if total > 0 and math.isfinite(done) and math.isfinite(total):
            return Progress(min(done / total, 1.0), readable(text))
    elif match := _PERCENT.fullmatch(text):
        return Progress(min(float(match[1]) / 100, 1.0), match[2])
    elif match := _FRACTION.fullmatch(text):
        return Progress(min(float(match[1]), 1.0), match[2])
    elif text in ("0", "1"):  # with words, it would be a count
        return Progress(float(text), "")
    return Progress(None, text)


def readable(text: str) -> str:
    """Return a progress on one line, with the numbers of a part of a total rounded: 0.96/8 s."""
    text = one_line(text)
    match = _PART.fullmatch(text)
    end = len(text) - len(match[5]) if match else 0
    return _LONG.sub(_rounded, text[:end]) + text[end:]


def _rounded(number: re.Match[str]) -> str:
    value = float(number[0])
    return f"{round(value, 2) if value >= 0.01 else value:.12g}"


def seconds_left(share: float, elapsed: float, age: float, before: float = 0.0) -> float | None:
    """Return how many seconds a task will still take; 0: it should have ended; None: it is too
    early to say.

    elapsed: since it began, or since it reported the share `before`. age: of its last report.
    """
    gained = share - before
    if elapsed < LEAST_TIME or gained < LEAST_SHARE:
        return None
    age = min(max(age, 0.0), elapsed)
    rate = gained / (elapsed - age) if elapsed > age else 0.0
    left = (1.0 - share) / rate - age if rate > 0 else math.inf
    return max(left, 0.0) if math.isfinite(left) else None


def left_words(left: float | None) -> str | None:
    """Return the remaining seconds in words: ~1 h 50 m, or LATE; None: unknown."""
    if left is None:
        return None
    return f"~{roughly(left)}" if left > 0 else LATE


def roughly(seconds: float) -> str:
    """Return a rounded duration: 3 d, 4 h, 1 h 50 m, 12 m, 40 s."""
    step = next(size for least, size in _STEPS if seconds >= least)
    return (
        f"{max(round(seconds / step) * step, 5)} s"
        if seconds < 57.5
        else span(round(seconds / step) * step)
    )


def percent(share: float) -> str:
    """Return a share as 41 %, rounded down; <1 % if something is done."""
    whole = math.floor(share * 100 + 1e-9)
    return "<1 %" if 0 < share < 0.01 else f"{whole} %"


def bar(share: float, columns: int) -> str:
    """Return a bar of this many columns: ########............"""
    full = min(int(share * columns + 1e-9), columns)
    return "#" * full + "." * (columns - full)
