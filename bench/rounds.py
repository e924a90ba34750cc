"""Rounds: the order in which systems run, and the statistics of the numbers. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def rotated(things: Sequence[T], number: int) -> list[T]:
    """Return them in the order of that round: each is first in turn, so that none is always behind
    the same other.
    """
    if not things:
        return []
    start = number % len(things)
    return [*things[start:], *things[:start]]


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the smallest value that so many percent of them do not exceed."""
    ordered = sorted(values)
    place = -(-len(ordered) * percent // 100)  # rounded up
    return ordered[max(int(place), 1) - 1]


def median(values: Sequence[float]) -> float:
    return statistics.median(values)


def ratios(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """Return ours to theirs, round by round, of the rounds that both have."""
    return [one / other for one, other in zip(ours, theirs, strict=False) if other]


def shown(value: float) -> str:
    """Return a number with three digits that count, as a person writes it: 0.94, 12.3, 184, 12,340."""
    if value == 0:
        return "0"
    size = abs(value)
    if size < 100:
        digits = 0 if size >= 99.95 else 1 if size >= 9.995 else 2 if size >= 0.0995 else 3
        return f"{value:.{digits}f}"
    if size < 1000:
        return f"{value:.0f}"
    step = 10 ** (len(f"{size:.0f}") - 3) if size < 100_000 else 100 if size < 1_000_000 else 1000
    return f"{round(value / step) * step:,}"


def spread(values: Sequence[float]) -> str:
    """Return the median, and from where to where they go if there is more than one."""
    middle = shown(median(values))
    if len(values) < 2:
        return middle
    return f"{middle} ({shown(min(values))}–{shown(max(values))})"


def interval(values: Sequence[float], confidence: float = 0.95) -> tuple[float, float] | None:
    """Return the confidence interval of the median: two of the values, whatever their distribution;
    None: too few values.

    Made of order statistics: without the k smallest and the k largest of n values it misses the
    median with the probability 2 P(B < k + 1), where B is binomial (n, 1/2). So 95 % need six
    values, and then leave out none.
    """
    ordered, left_out, tail = sorted(values), 0, 0.0
    while True:
        tail += math.comb(len(ordered), left_out) / 2 ** len(ordered)
        if 2 * tail > 1 - confidence:
            break
        left_out += 1
    return (ordered[left_out - 1], ordered[-left_out]) if left_out else None
