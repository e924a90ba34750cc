"""Samples of what is used while chaos goes on, and whether that grows: descriptors, memory, keys."""

from __future__ import annotations

import contextlib
import os
import statistics
from collections import Counter
from collections.abc import Iterable
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
