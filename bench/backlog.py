"""The backlog case: how much memory a waiting task takes in Redis, and whether calls slow down as
the line grows.
"""

from __future__ import annotations

import contextlib
import os
import time

from bench import raw
from bench.rounds import median, rotated
from bench.setting import Bench, Outcome, Values, open_stage
from bench.stage import Stage

SIZES = [1000, 10_000, 100_000, 1_000_000]
TEXT = "x" * 100
BLOCK, BLOCKS = 100, 15  # calls of each kind in a row; blocks for each size in a round
QUEUE = "backlog"


def backlog(bench: Bench) -> Outcome:
    """A Redis for each size, so that the small line is measured in a small server."""
    outcome = Outcome()
    with contextlib.ExitStack() as stack:
        lines: dict[str, _Line] = {}
        for size in SIZES:
            count = bench.scaled(size, 100)
            outcome.add(str(size), {"tasks": float(count), "bytes_1_0_0": _fill_1_0_0(count)})
            line = lines[str(size)] = _Line(stack.enter_context(open_stage()))
            outcome.add(str(size), {"bytes": line.fill(count) / count})
            line.block(20)  # what happens once on a connection
            line.times()
        for _ in range(bench.rounds):
            bench.quiet.wait()
            for number in range(bench.scaled(BLOCKS, 4)):
                for row in rotated(list(lines), number):
                    lines[row].block(BLOCK)
            for row, line in lines.items():
                outcome.add(row, line.times())
    return outcome


class _Line:
    """A line of tasks on a Redis of its own."""

    def __init__(self, stage: Stage) -> None:
        self._stage, self._queue = stage, stage.client.get_queue(QUEUE)
        self._listener = stage.client.get_listener(QUEUE)
        self._enqueued: list[float] = []
        self._reserved: list[float] = []

    def fill(self, count: int) -> int:
        """Put so many in line, and return the bytes that they take."""
        before = self._stage.memory()
        raw.send(self._stage.url, raw.ours(QUEUE, count, raw.BATCH, TEXT), 2)
        taken = self._stage.memory() - before
        self._listener.register(None)
        return taken

    def block(self, count: int) -> None:
        """Put so many in line, and take as many out."""
        for _ in range(count):
            began = time.perf_counter()
            self._queue.enqueue(TEXT)
            self._enqueued.append(time.perf_counter() - began)
        for _ in range(count):
            began = time.perf_counter()
            task = self._listener.take()
            self._reserved.append(time.perf_counter() - began)
            assert task is not None
            processor = self._stage.client.get_processor(task)
            processor.start(os.getpid())
            processor.complete("")

    def times(self) -> Values:
        """Return the median microseconds of each call since the last time."""
        values = {
            "enqueue_us": 1e6 * median(self._enqueued),
            "reserve_us": 1e6 * median(self._reserved),
        }
        self._enqueued, self._reserved = [], []
        return values


def _fill_1_0_0(count: int) -> float:
    """Return the bytes of a task that 1.0.0 has put in a line of so many."""
    with open_stage() as stage:
        before = stage.memory()
        raw.send(stage.url, raw.of_1_0_0(QUEUE, count, raw.BATCH, TEXT), 2)
        return (stage.memory() - before) / count
