"""The case of schedules that are all due in one second, with one scheduler, beside as many tasks that
a producer enqueues one by one.
"""

from __future__ import annotations

import subprocess
import sys
import time

from bench.setting import Bench, Outcome, Values, open_stage
from bench.stage import RunFailed, Stage
from bench.venvs import clean_environment
from blueque.connection.redis import Command
from blueque.model import keys
from blueque.producer.schedules import define
from blueque.protocol import schedules

COUNT, QUEUE = 10_000, "reports"
AHEAD = 3  # seconds until all are due
PATIENCE = 120.0  # seconds
AT_ONCE = 1000  # commands in one write


def recurring(bench: Bench) -> Outcome:
    """Each round has a Redis of its own."""
    outcome, count = bench.outcome_of_ours(), bench.scaled(COUNT, 100)
    runs = {"scheduler": lambda: _fire(count), "enqueue": lambda: _enqueue(count)}
    bench.in_turn(outcome, runs)
    return outcome


def _fire(count: int) -> Values:
    with open_stage() as stage:
        names = _make(stage, count)
        scheduler = subprocess.Popen(
            [sys.executable, "-m", "blueque.cli.scheduler", "--redis-url", stage.url],
            env=clean_environment(),
            stderr=subprocess.DEVNULL,
        )
        try:
            return _rate(count, _until_all(stage, count, _plan(stage, names)))
        finally:
            scheduler.terminate()
            scheduler.wait()


def _make(stage: Stage, count: int) -> list[str]:
    """Make schedules that are due in some months."""
    redis, queue = stage.client.connections, stage.client.get_queue(QUEUE)
    definition = define(queue, "bench", {"kind": "daily"}, every="366d")
    names = [f"schedule {number}" for number in range(count)]
    for name in names:
        schedules.set_schedule(redis, name, definition, "hand", "bench")
    return names


def _plan(stage: Stage, names: list[str]) -> int:
    """Have all be due at the same second, which is soon, and return it."""
    redis = stage.client.connections
    time.sleep(2.0)  # until the scheduler waits
    at = int(time.time()) + AHEAD
    for start in range(0, len(names), AT_ONCE):
        some = names[start : start + AT_ONCE]
        commands: list[Command] = [
            ("HSET", keys.schedule(name), "last", at - 1, "planned", at, "at", at) for name in some
        ]
        scores = [part for name in some for part in (at, name)]
        redis.read(*commands, ("ZADD", keys.SCHEDULES, *scores))
    return at


def _until_all(stage: Stage, count: int, since: int) -> float:
    """Return how many seconds after that time all are in line."""
    redis = stage.client.connections
    while (made := redis.read(("LLEN", keys.pending(QUEUE)))[0]) < count:
        if time.time() > since + PATIENCE:
            raise RunFailed(f"{made} of {count} tasks are in line after {PATIENCE:g} s")
        time.sleep(0.02)
    return time.time() - since


def _enqueue(count: int) -> Values:
    with open_stage() as stage:
        queue = stage.client.get_queue(QUEUE)
        began = time.perf_counter()
        for _ in range(count):
            queue.enqueue({"kind": "daily"})
        return _rate(count, time.perf_counter() - began)


def _rate(count: int, seconds: float) -> Values:
    return {"seconds": seconds, "rate": count / seconds}
