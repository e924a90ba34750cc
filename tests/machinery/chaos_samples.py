"""Samples of what is used while chaos goes on, and whether that grows: descriptors, memory, keys."""

from __future__ import annotations

import contextlib
import os
import statistics
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from chaos_ledger import Run
from running import memory_of

from blueque.system.process import start_ticks

# What one task may leave behind in a process on average. A leak of one descriptor for each task is
# five times as much.
DESCRIPTORS_PER_TASK = 0.2
BYTES_PER_TASK = 32 * 1024
# What a process may take more than at first, whatever it does; and keys.
SLACK = {"descriptors": 8, "memory": 2 << 20, "keys": 25}
BORN = 6  # samples after which a process has grown up
ENOUGH = 10  # tasks after which a process tells something


class Sample(NamedTuple):
    """What one process used at one time, and how many tasks it had begun by then."""

    descriptors: int
    memory: int
    tasks: int


class Samples:
    """By process: a pid and when it was first seen with it."""

    def __init__(self) -> None:
        self._of: dict[tuple[str, int, str], list[Sample]] = {}
        self.keys: list[int] = []  # in Redis, those of the tasks not counted

    def take(self, kind: str, pid: int, tasks: int) -> None:
        """Note what a process uses. tasks: how many it has had to do with so far."""
        with contextlib.suppress(OSError):
            started = str(start_ticks(pid))
            sample = Sample(len(os.listdir(f"/proc/{pid}/fd")), memory_of(pid), tasks)
            self._of.setdefault((kind, pid, started), []).append(sample)

    def kinds(self) -> list[str]:
        return sorted({kind for kind, *_ in self._of})

    def growth(self, kind: str) -> tuple[int, int, int, int]:
        """Return (processes, tasks, descriptors more, bytes more) of all processes of a kind that
        have seen enough.
        """
        grown: list[tuple[int, int, int]] = []
        for (its, *_), samples in self._of.items():
            # From when tasks begin: until then it may still be importing. Not the last: it may be
            # ending.
            first = next(
                (sample for sample in samples[BORN:] if sample.tasks > samples[0].tasks + 1),
                samples[-1],
            )
            last = samples[-2] if len(samples) > 1 else samples[-1]
            if its == kind and last.tasks - first.tasks >= ENOUGH:
                grown.append(
                    (
                        last.tasks - first.tasks,
                        last.descriptors - first.descriptors,
                        last.memory - first.memory,
                    )
                )
        tasks, descriptors, memory = (
            (sum(numbers) for numbers in zip(*grown, strict=True)) if grown else (0, 0, 0)
        )
        return len(grown), tasks, descriptors, memory

    def wrong(self) -> list[str]:
        """Return what has grown too much."""
        found: list[str] = []
        for kind in self.kinds():
            count, tasks, descriptors, memory = self.growth(kind)
            if descriptors > max(SLACK["descriptors"] * count, DESCRIPTORS_PER_TASK * tasks):
                found.append(
                    f"{kind}: {descriptors} descriptors more after {tasks} tasks, in {count} processes"
                )
            if memory > max(SLACK["memory"] * count, BYTES_PER_TASK * tasks):
                found.append(
                    f"{kind}: {memory >> 10} KiB more after {tasks} tasks, in {count} processes"
                )
        first, second = halves(self.keys)
        if second > first * 1.5 + SLACK["keys"]:
            found.append(
                f"Redis: {second:.0f} keys that are no task's in the second half, {first:.0f} in the first"
            )
        return found


def halves(numbers: list[int]) -> tuple[float, float]:
    """Return the median of each half."""
    middle = len(numbers) // 2
    return (
        (statistics.median(numbers[:middle]), statistics.median(numbers[middle:]))
        if middle
        else (0.0, 0.0)
    )


def by_listener(runs: Iterable[Run]) -> Counter[tuple[str, int]]:
    """Count the tasks that each listener has begun; its pid is what it is called on its node."""
    return Counter((run.node, run.listener) for run in runs)


# What it may grow by in the second half of a run, however long that is. Two hours have 20,000 tasks
# in it: memory then grows by no more than 200 bytes for each, descriptors by none. A minute has 150
# of them, and one descriptor or 30 KiB left behind by each is too much.
GROWTH = {"descriptors": 8, "memory": 4 << 20, "keys": 100, "files": 200, "bytes": 1 << 20}
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
            f"{1000 * series.slope():.1f} for each 1,000 tasks; {GROWTH[what]} is the limit"
            for (whose, what), series in self.of.items()
            if series.growth() > GROWTH[what]
        ]

    def rows(self) -> list[tuple[str, str, float, float, float, float]]:
        """Return whose, what, first, middle, last, and growth for each 1,000 tasks."""
        return [
            (whose, what, *series.first_middle_last(), 1000 * series.slope())
            for (whose, what), series in self.of.items()
        ]


def own_memory_of(pid: int) -> int:
    """Return how many bytes of memory a process has that are of no file and not shared."""
    resident, shared = Path(f"/proc/{pid}/statm").read_text().split()[1:3]
    return (int(resident) - int(shared)) * os.sysconf("SC_PAGESIZE")
