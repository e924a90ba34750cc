"""Runs side by side: in lanes without overlaps, or how many ran at the same time."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Mapping

from blueque.report.summary import Bar

STEPS = 240  # of a profile


def lanes(bars: Iterable[Bar]) -> list[list[Bar]]:
    """Return the bars in as few lanes as possible, without overlaps in a lane."""
    found: list[list[Bar]] = []
    ends: list[tuple[float, int]] = []  # when each lane is free again
    for bar in sorted(bars, key=lambda bar: (bar.start, bar.end)):
        if ends and ends[0][0] <= bar.start:
            _, number = heapq.heappop(ends)
        else:
            number = len(found)
            found.append([])
        found[number].append(bar)
        heapq.heappush(ends, (bar.end, number))
    return found


def add_up(changes: Mapping[int, tuple[float, int]], steps: int) -> list[float]:
    """Return how many ran at the same time in each step, on average.

    changes: by step, what the runs that start or end in it add to the step itself (part), and to
        all later steps (whole).
    """
    found, level = [], 0.0
    for place in range(steps):
        part, whole = changes.get(place, (0.0, 0))
        found.append(max(level + part, 0.0))
        level += whole
    return found


def profile(bars: Iterable[Bar], since: float, step: float, steps: int) -> dict[str, list[float]]:
    """Return the same for bars, by status."""
    changes: dict[str, dict[int, tuple[float, int]]] = {}
    for bar in bars:
        for instant, sign in ((bar.start, 1), (bar.end, -1)):
            at = max(instant - since, 0.0) / step
            place = math.floor(at)
            part, whole = changes.setdefault(bar.status, {}).get(place, (0.0, 0))
            changes[bar.status][place] = (part + sign * (place + 1 - at), whole + sign)
    return {status: add_up(places, steps) for status, places in changes.items()}
