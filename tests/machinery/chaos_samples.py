"""Samples of what is used while chaos goes on, and whether that grows: descriptors, memory, keys,
files.
"""

from __future__ import annotations

import contextlib
import os
import statistics
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

# What it may grow by in the second half of a run, however long that is. Two hours have 20,000 tasks
# in it: memory then grows by no more than 200 bytes for each, descriptors by none. A minute has 150
# of them, and one descriptor or 30 KiB left behind by each is too much.
GROWTH = {"descriptors": 8, "memory": 4 << 20, "keys": 300, "files": 300, "bytes": 1 << 20}
# In its first thousand looks, a page fills what it keeps, up to this.
PAGE = 16 << 20
ENDS = 10  # of all samples, the first and the last tenth are what `first` and `last` are made of


class Series(NamedTuple):
    """What was measured, and after how many tasks, in order."""

    tasks: list[int]
    values: list[float]

    def first_middle_last(self) -> tuple[float, float, float]:
        """Return the medians of the first tenth, of a tenth in the middle and of the last tenth."""
        count = len(self.values)
        some = max(count // ENDS, 1)
        begin = (count - some) // 2
        parts = (self.values[:some], self.values[begin : begin + some], self.values[-some:])
        first, middle, last = map(statistics.median, parts)
        return first, middle, last

    def slope(self) -> float:
        """Return by how much it grows with each task in the second half: the line of the least
        squares.
        """
        half = len(self.values) // 2
        tasks, values = self.tasks[half:], self.values[half:]
        if len(set(tasks)) < 2:
            return 0.0
        return statistics.linear_regression(tasks, values).slope

    def growth(self) -> float:
        """Return by how much it has grown in the second half, on that line."""
        half = len(self.values) // 2
        return self.slope() * (self.tasks[-1] - self.tasks[half])


class Usage:
    """What long-lived processes use: by whose and what it is."""

    def __init__(self) -> None:
        self.of: dict[tuple[str, str], Series] = {}

    def processes(self, whose: str, pids: Iterable[int], tasks: int) -> None:
        """Note descriptors and own memory of processes; of several, what the largest has."""
        found = []
        for pid in pids:
            with contextlib.suppress(OSError):
                found.append((len(os.listdir(f"/proc/{pid}/fd")), own_memory_of(pid)))
        for what, values in zip(("descriptors", "memory"), zip(*found, strict=True), strict=False):
            self.take(whose, what, tasks, max(values))

    def take(self, whose: str, what: str, tasks: int, value: float) -> None:
        series = self.of.setdefault((whose, what), Series([], []))
        series.tasks.append(tasks)
        series.values.append(value)

    def wrong(self) -> list[str]:
        """Return in sentences what has grown too much."""
        return [
            f"{what} of {whose} grew by {series.growth():.0f} in the second half, "
            f"{1000 * series.slope():.1f} for each 1,000 tasks; {limit} is the limit"
            for (whose, what), series in self.of.items()
            if series.growth() > (limit := _limit(whose, what))
        ]

    def rows(self) -> list[tuple[str, str, float, float, float, float]]:
        """Return whose, what, first, middle, last, and growth for each 1,000 tasks."""
        return [
            (whose, what, *series.first_middle_last(), 1000 * series.slope())
            for (whose, what), series in self.of.items()
        ]


def _limit(whose: str, what: str) -> int:
    return PAGE if (whose, what) == ("page", "memory") else GROWTH[what]


def own_memory_of(pid: int) -> int:
    """Return how many bytes of memory a process has that are of no file and not shared."""
    resident, shared = Path(f"/proc/{pid}/statm").read_text().split()[1:3]
    return (int(resident) - int(shared)) * os.sysconf("SC_PAGESIZE")
