"""Cases of producers: enqueue one by one, in bulk, with keys, and from a hundred producers at once."""

from __future__ import annotations

import contextlib
import functools
import json
import select
import time
from collections.abc import Iterator, Sequence
from typing import Any

from bench import raw
from bench.rounds import percentile
from bench.setting import Bench, Outcome, Values
from bench.stage import DRIVER_TIMEOUT, Program, RunFailed, last_line
from bench.systems import QUEUE, System
from blueque.system import process

TEXT = "x" * 100
JSON = '{"text": "%s"}' % ("x" * 88)
ROW = {"scene": "scene-00000000", "camera": "left", "frames": 240, "quality": "draft"}
# What tasks with a key have besides the fields of 1.0.0, but for the key itself.
IN_GROUP: list[str | float] = ["parameters_encoding", "json", "group", "bench"]
WITHOUT_GROUP: list[str | float] = ["parameters_encoding", "json", "keep", 86400]
WITHOUT_GROUP += ["enqueued_by", "0123456789abcdef"]
DRIVERS, THREADS = 4, 25  # processes, and producers in each


def enqueue(bench: Bench) -> Outcome:
    outcome, count = bench.outcome(), bench.scaled(4000)
    stage = bench.stage

    def run(system: System) -> Values:
        stage.clear()
        before = stage.memory()
        answer = stage.drive(system, "one", count)
        return {
            "rate": count / answer["seconds"],
            "bytes": (stage.memory() - before) / answer["tasks"],
        }

    def run_raw() -> Values:
        stage.clear()
        return {"rate": count / raw.send(stage.url, raw.ours(QUEUE, count, 1, TEXT), 1)}

    bench.in_turn(
        outcome, {**{one.key: functools.partial(run, one) for one in bench.systems}, "raw": run_raw}
    )
    return outcome


def bulk(bench: Bench) -> Outcome:
    outcome = bench.outcome()
    counts = {"blueque": 150_000, "rq": 12_000, "huey": 8000, "blueque_1_0_0": 8000}
    stage = bench.stage

    def run(system: System) -> Values:
        stage.clear()
        count = bench.scaled(counts.get(system.key, 4000))
        return {"rate": count / stage.drive(system, "bulk", count)["seconds"]}

    def run_raw() -> Values:
        stage.clear()
        count = bench.scaled(counts["blueque"])
        return {
            "rate": count / raw.send(stage.url, raw.ours(QUEUE, count, raw.BATCH, JSON, "json"), 2)
        }

    bench.in_turn(
        outcome, {**{one.key: functools.partial(run, one) for one in bench.systems}, "raw": run_raw}
    )
    return outcome


def keyed(bench: Bench) -> Outcome:
    """In a group and without, beside writers of the same records and of those of 1.0.0."""
    outcome, stage, count = bench.outcome_of_ours(), bench.stage, bench.scaled(100_000)

    def run(name: str | None) -> Values:
        stage.clear()
        rows = ({**ROW, "scene": f"scene-{number:08}"} for number in range(count))
        queue = stage.client.get_queue(QUEUE)
        began = time.perf_counter()
        queue.enqueue_many(rows, keys="scene", group=name)
        return {"rate": count / (time.perf_counter() - began)}

    def run_raw(fields: Sequence[str | float]) -> Values:
        stage.clear()
        return {"rate": count / raw.send(stage.url, records(count, fields), 2)}

    bench.in_turn(
        outcome,
        {
            "group": functools.partial(run, "bench"),
            "keys": functools.partial(run, None),
            "raw_group": functools.partial(run_raw, IN_GROUP),
            "raw_keys": functools.partial(run_raw, WITHOUT_GROUP),
            "raw": functools.partial(run_raw, ()),
        },
    )
    return outcome


def records(count: int, fields: Sequence[str | float]) -> Iterator[raw.Block]:
    """Yield transactions that write so many tasks; if there are further fields, then with keys."""
    return raw.of_1_0_0(
        QUEUE,
        count,
        raw.BATCH,
        json.dumps(ROW, separators=(",", ":")),
        lambda number: (
            (*fields, "key", f"scene-{number:08}", "producer", process.producer()) if fields else ()
        ),
    )


def put_many(bench: Bench) -> Outcome:
    outcome, each = bench.outcome(), bench.scaled(50, 2)
    stage = bench.stage

    def run(system: System) -> Values:
        stage.clear()
        answers = _together(bench, system, each)
        seconds = max(answer["ended"] for answer in answers) - min(
            answer["began"] for answer in answers
        )
        latencies = [1000 * latency for answer in answers for latency in answer["latencies"]]
        return {
            "rate": len(latencies) / seconds,
            "p50": percentile(latencies, 50),
            "p99": percentile(latencies, 99),
        }

    bench.in_turn(outcome, {one.key: functools.partial(run, one) for one in bench.systems})
    return outcome


def _together(bench: Bench, system: System, each: int) -> list[dict[str, Any]]:
    """Start the drivers, let them go when all are ready, and return their answers."""
    stage = bench.stage
    with contextlib.ExitStack() as stack:
        drivers = [
            stack.enter_context(stage.driver(system, "many", THREADS, each)) for _ in range(DRIVERS)
        ]
        for program in drivers:
            _wait_ready(program)
        for program in drivers:
            assert program.stdin is not None
            program.stdin.write(b"go\n")
            program.stdin.flush()
        return [stage.answer(program) for program in drivers]


def _wait_ready(program: Program) -> None:
    assert program.stdout is not None
    if not select.select([program.stdout], [], [], DRIVER_TIMEOUT)[0]:
        raise RunFailed(f"not ready within {DRIVER_TIMEOUT:.0f} s")
    if program.stdout.readline() != b"ready\n":
        _, complaint = program.communicate(timeout=10)
        raise RunFailed(last_line(complaint))
