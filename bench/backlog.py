"""The case of the backlog: what a waiting task takes in Redis, and whether calls slow down as it grows."""

from __future__ import annotations

import contextlib
import functools
import os
import time
from collections.abc import Callable

from bench import raw
from bench.rounds import median
from bench.setting import Bench, Outcome, Values, open_stage
from bench.stage import Stage
from blueque.listener import Listener

SIZES = [1000, 10_000, 100_000, 1_000_000]
TEXT = "x" * 100
CALLS = 300                                            # of each kind in a round
QUEUE = "backlog"


def backlog(bench: Bench) -> Outcome:
    """A Redis for each size, so that the small line is measured in a small server."""
    outcome = Outcome()
    with contextlib.ExitStack() as stack:
        runs: dict[str, Callable[[], Values]] = {}
        for size in SIZES:
            count = bench.scaled(size, 100)
            outcome.add(str(size), {"bytes_1_0_0": _fill_1_0_0(count)})
            stage = stack.enter_context(open_stage())
            before = stage.memory()
            raw.send(stage.url, raw.ours(QUEUE, count, raw.BATCH, TEXT), 2)
            outcome.add(str(size), {"bytes": (stage.memory() - before) / count, "tasks": float(count)})
            listener = stage.client.get_listener(QUEUE)
            listener.register(None)
            _calls(stage, listener, 20)                # what happens once on a connection
            runs[str(size)] = functools.partial(_calls, stage, listener, bench.scaled(CALLS))
        bench.in_turn(outcome, runs)
    return outcome


def _fill_1_0_0(count: int) -> float:
    """Return the bytes of a task that 1.0.0 has put in a line of so many."""
    with open_stage() as stage:
        before = stage.memory()
        raw.send(stage.url, raw.of_1_0_0(QUEUE, count, raw.BATCH, TEXT), 2)
        return (stage.memory() - before) / count


def _calls(stage: Stage, listener: Listener, count: int) -> Values:
    """Put so many in line and take as many out, and return the median microseconds of each call."""
    queue = stage.client.get_queue(QUEUE)
    enqueued, reserved = [], []
    for _ in range(count):
        began = time.perf_counter()
        queue.enqueue(TEXT)
        enqueued.append(time.perf_counter() - began)
    for _ in range(count):
        began = time.perf_counter()
        task = listener.take()
        reserved.append(time.perf_counter() - began)
        assert task is not None
        processor = stage.client.get_processor(task)
        processor.start(os.getpid())
        processor.complete("")
    return {"enqueue_us": 1e6 * median(enqueued), "reserve_us": 1e6 * median(reserved)}
