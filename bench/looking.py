"""Case of looking: what `blueque status` reads, with few tasks in Redis and with many."""

from __future__ import annotations

import contextlib
import functools
import time
import uuid
from collections.abc import Iterator

from bench.rounds import percentile
from bench.setting import Bench, Outcome, Values, open_stage
from bench.stage import Stage
from blueque import keys, protocol
from blueque.connection import Command

QUEUES, LISTENERS, RUNNING = 200, 2, 6                 # listeners and running tasks are of each queue
LOOKS = 20
AT_ONCE = 4000                                         # commands in one write


def overview(bench: Bench) -> Outcome:
    """The same look at two servers, in turn."""
    outcome = Outcome()
    with contextlib.ExitStack() as stack:
        runs = {}
        for row, count in {"few": bench.scaled(10_000, QUEUES), "many": bench.scaled(1_000_000, QUEUES)}.items():
            stage = stack.enter_context(open_stage())
            _fill(stage, max(count // QUEUES, 1))
            runs[row] = functools.partial(_look, stage)
        bench.in_turn(outcome, runs)
    return outcome


def _look(stage: Stage) -> Values:
    inspector = stage.client.get_inspector()
    inspector.overview()                               # the first one connects
    took = []
    for _ in range(LOOKS):
        began = time.perf_counter()
        inspector.overview()
        took.append(1000 * (time.perf_counter() - began))
    return {"p50": percentile(took, 50), "p95": percentile(took, 95)}


def _fill(stage: Stage, each: int) -> None:
    """Put so many tasks into each queue: three fifths complete, one failed, one pending; and some that run."""
    now = time.time()
    for number in range(QUEUES):
        queue, nodes = f"queue.{number}", [f"host-{number % 20}_{number * LISTENERS + one}" for one in range(LISTENERS)]
        for node in nodes:
            protocol.register(stage.redis, queue, node, "i", {"beat_every": 10, "lease": 86400, "version": "2"}, now)
        commands: list[Command] = []
        for command in _tasks(queue, nodes[0], each, now):
            commands.append(command)
            if len(commands) == AT_ONCE:
                stage.redis.read(*commands)
                commands.clear()
        stage.redis.read(*commands)


def _tasks(queue: str, node: str, each: int, now: float) -> Iterator[Command]:
    usual = ("queue", queue, "parameters", '{"input": "a.mov"}', "created", now - 90000, "updated", now - 80000)
    ended = ("node", node, "pid", 77, "attempt", 1, "started", now - 7200, "finished", now - 7200)
    lists = {"complete": keys.complete(queue), "failed": keys.failed(queue), "pending": keys.pending(queue)}
    for number in range(each):
        status = ("complete", "complete", "complete", "failed", "pending")[number % 5]
        task = str(uuid.uuid4())
        yield ("HSET", keys.task(task), "status", status, *usual, *(() if status == "pending" else ended))
        yield ("LPUSH", lists[status], task)
    for _ in range(RUNNING):
        task = str(uuid.uuid4())
        told = ("progress", "41/100 epochs", "progress_at", now)
        yield ("HSET", keys.task(task), "status", "started", *usual, *ended[:8], *told)
        yield ("SADD", keys.started(queue), keys.started_member(node, 77, task))
