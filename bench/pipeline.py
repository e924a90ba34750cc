"""Cases of pipelines: from Spark into a queue, from a queue into Spark and into files, and feeds of
large backlogs.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import itertools
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil

import blueque
from bench import raw
from bench.setting import Bench, Outcome, Values
from bench.stage import PEERS, Program, RunFailed, Stage, last_line
from bench.systems import OURS, QUEUE
from blueque.model import keys
from blueque.model.ids import random_ids
from blueque.system import process

JSON = '{"scene":"scene-00000000","camera":"left","frames":240,"quality":"draft"}'
ROWS = 500_000
TASKS = 400_000  # that are read, or archived
PARTITIONS = [1, 2, 4, 8]
FIELDS = [
    "status",
    "queue",
    "parameters",
    "result",
    "error",
    "node",
    "pid",
    "attempt",
    "created",
    "updated",
    "started",
    "finished",
    "eta",
]
AT_ONCE = 1000  # tasks that the raw reading asks for in one write
WINDOW = 20_000
ANSWER_TIMEOUT = 300.0


class Spark:
    """One warm session in a process of its own, which does one thing after the other."""

    def __init__(self, stage: Stage, program: Program) -> None:
        self._stage, self._program = stage, program
        self._lines = self._read()

    def ask(self, verb: str, *arguments: object) -> Any:
        assert self._program.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._program.stdin.write(json.dumps([verb, *arguments]).encode() + b"\n")
            self._program.stdin.flush()
        return self.hear()

    def hear(self) -> Any:
        timer = threading.Timer(ANSWER_TIMEOUT, self._program.kill)
        timer.start()
        try:
            line = next(self._lines, b"")
        finally:
            timer.cancel()
        if not line:
            raise RunFailed(
                last_line((self._stage.directory / "spark.log").read_bytes())
                or "Spark gave no answer"
            )
        return json.loads(line)

    def rate(self, count: int, verb: str, *arguments: object) -> Values:
        return {"rate": count / self.ask(verb, *arguments)["seconds"]}

    def _read(self) -> Iterator[bytes]:
        assert self._program.stdout is not None
        yield from self._program.stdout


@contextlib.contextmanager
def warm_spark(stage: Stage) -> Iterator[Spark]:
    command = [sys.executable, str(PEERS / "drive_spark.py"), str(stage.directory)]
    with (stage.directory / "spark.log").open("wb") as log:
        program = subprocess.Popen(
            command,
            cwd=stage.directory,
            env=stage.environment(OURS),
            start_new_session=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
        )
        stage.watch(program)
        try:
            spark = Spark(stage, program)
            spark.hear()
            yield spark
        finally:
            stage.end([program], patience=0.0)


def into(bench: Bench) -> Outcome:
    """From Spark, and from plain Python, into a queue."""
    outcome, stage, count = bench.outcome_of_ours(), bench.stage, bench.scaled(ROWS)
    with warm_spark(stage) as spark:

        def ask(verb: str) -> Values:
            stage.clear()
            with _redis_time(stage, count) as found:
                found |= spark.rate(count, verb, count, 2)
            return found

        runs: dict[str, Callable[[], Values]] = {
            "raw": functools.partial(_raw_in, stage, count),
            "raw_record": functools.partial(_raw_in, stage, count, is_ours=True),
            "core": functools.partial(_core, stage, count, False),
            "core_keyed": functools.partial(_core, stage, count, True),
            "keyed": functools.partial(ask, "keyed"),
            "naive": functools.partial(ask, "naive"),
        }
        _warm(runs)
        bench.in_turn(outcome, runs)
    return outcome


def partitions(bench: Bench) -> Outcome:
    """The same by the number of partitions."""
    outcome, stage, count = bench.outcome_of_ours(), bench.stage, bench.scaled(ROWS)
    with warm_spark(stage) as spark:

        def run(number: int) -> Values:
            found: Values = {"size": float(number)}
            for verb in ("keyed", "naive"):
                stage.clear()
                found[verb] = spark.rate(count, verb, count, number)["rate"]
            stage.clear()
            found["raw"] = _raw_in(stage, count)["rate"]
            return found

        runs = {str(number): functools.partial(run, number) for number in PARTITIONS}
        _warm(runs)
        bench.in_turn(outcome, runs)
    return outcome


def out_of(bench: Bench) -> Outcome:
    """From a queue into Spark, and into files."""
    outcome, stage, count = bench.outcome_of_ours(), bench.stage, bench.scaled(TASKS)
    numbers = itertools.count()

    def fill() -> None:
        stage.clear()
        raw.send(stage.url, finished(QUEUE, count), 2)

    def raw_read() -> Values:
        fill()
        return {"rate": count / read_raw(stage, QUEUE)}

    def arrow() -> Values:
        fill()
        directory = stage.directory / f"arrow-{next(numbers)}"
        began = time.perf_counter()
        blueque.archive(QUEUE, directory, older_than=0, client=stage.client)
        return {"rate": count / (time.perf_counter() - began)}

    with warm_spark(stage) as spark:

        def ask(verb: str, *arguments: object) -> Values:
            fill()
            return spark.rate(count, verb, *arguments)

        runs: dict[str, Callable[[], Values]] = {
            "raw": raw_read,
            "fourteen": functools.partial(ask, "read", 14),
            "four": functools.partial(ask, "read", 4),
            "archive": functools.partial(ask, "archive"),
            "arrow": arrow,
        }
        _warm(runs)
        bench.in_turn(outcome, runs)
    return outcome


def stats(bench: Bench) -> Outcome:
    """A million finished tasks in Parquet, asked again and again."""
    outcome, count = bench.outcome_of_ours(), bench.scaled(1_000_000)
    with warm_spark(bench.stage) as spark:
        spark.ask("stats", count)
        bench.in_turn(outcome, {"blueque": lambda: spark.ask("stats", count)})
    return outcome


def feeding(bench: Bench) -> Outcome:
    """A backlog in Parquet, fed through a window while a consumer empties it; and ten times as
    much, once.
    """
    outcome, stage = bench.outcome_of_ours(), bench.stage
    sizes = {"fed": bench.scaled(1_000_000), "fed_10": bench.scaled(10_000_000)}
    for row, count in sizes.items():
        _backlog(stage.directory / row, count)
    bench.in_turn(
        outcome,
        {
            "raw": functools.partial(_raw_in, stage, sizes["fed"]),
            "fed": functools.partial(_feed, stage, stage.directory / "fed", sizes["fed"]),
        },
    )
    bench.one(
        outcome,
        "fed_10",
        functools.partial(_feed, stage, stage.directory / "fed_10", sizes["fed_10"]),
    )
    return outcome


def finished(queue: str, count: int) -> Iterator[raw.Block]:
    """Yield what puts so many complete tasks into Redis, as this version leaves them."""
    now = time.time()
    made: list[str | float] = [
        "status",
        "complete",
        "queue",
        queue,
        "parameters",
        JSON,
        "parameters_encoding",
        "json",
    ]
    made += [
        "created",
        now - 3600,
        "updated",
        now - 60,
        "attempt",
        1,
        "node",
        "node.example_4711",
        "pid",
        4712,
    ]
    made += [
        "started",
        now - 3000,
        "finished",
        now - 60,
        "result",
        '{"frames":240}',
        "result_encoding",
        "json",
    ]
    for first in range(0, count, raw.BATCH):
        chosen = [task.decode() for task in random_ids(min(raw.BATCH, count - first))]
        commands = [raw.command("HSET", keys.task(task), *made) for task in chosen]
        commands += [
            raw.command("ZINCRBY", keys.QUEUES, 0, queue),
            raw.command("LPUSH", keys.complete(queue), *chosen),
            raw.command(
                "ZADD", keys.tasks(queue), *[word for task in chosen for word in (now - 3600, task)]
            ),
        ]
        yield raw.transaction(commands)


def read_raw(stage: Stage, queue: str) -> float:
    """Return the seconds that it takes to have 13 fields of each complete task sent, and to parse
    the replies.
    """
    (ids,) = stage.redis.read(("LRANGE", keys.complete(queue), 0, -1))
    template = raw.command("HMGET", keys.task("?" * 36), *FIELDS).replace(b"?" * 36, b"%b")
    blocks = [
        (
            b"".join(template % task.encode() for task in ids[first : first + AT_ONCE]),
            len(ids[first : first + AT_ONCE]),
        )
        for first in range(0, len(ids), AT_ONCE)
    ]
    return raw.send(stage.url, iter(blocks), 2)


@contextlib.contextmanager
def _redis_time(stage: Stage, count: int) -> Iterator[Values]:
    """Yield values, and add the processor time that Redis takes for each row meanwhile."""
    found: Values = {}
    before = stage.cpu_seconds()
    yield found
    found["redis"] = (stage.cpu_seconds() - before) / count * 1e6


def _raw_in(stage: Stage, count: int, is_ours: bool = False) -> Values:
    """is_ours: write the fields that a keyed task has today; nothing else, and no guard."""
    stage.clear()
    fields = ["parameters_encoding", "json", "producer", process.producer(), "run", "bench"]

    def more(number: int) -> list[str]:
        return [*fields, "key", f"scene-{number:08}"] if is_ours else []

    with _redis_time(stage, count) as found:
        blocks = raw.of_1_0_0(QUEUE, count, raw.BATCH, JSON, more)
        found["rate"] = count / raw.send(stage.url, blocks, 2)
    return found


def _core(stage: Stage, count: int, is_keyed: bool) -> Values:
    stage.clear()
    before = stage.cpu_seconds()
    rows = [json.loads(JSON.replace("00000000", f"{number:08}")) for number in range(count)]
    queue = stage.client.get_queue(QUEUE)
    gc.freeze()  # a pipeline reads its rows as it goes, and does not hold them all
    began = time.perf_counter()
    if is_keyed:
        queue.enqueue_many(rows, keys="scene", group="bench")
    else:
        queue.enqueue_many(rows)
    seconds = time.perf_counter() - began
    gc.unfreeze()
    redis = (stage.cpu_seconds() - before) / count * 1e6
    return {"rate": count / seconds, "redis": redis}


def _warm(runs: Mapping[str, Callable[[], Values]]) -> None:
    """Have each done once: what Spark does for the first time takes it seconds."""
    for run in runs.values():
        with contextlib.suppress(RunFailed):  # it will say so again when it counts
            run()


def _backlog(directory: Path, count: int) -> None:
    import pyarrow as pa  # here: the other cases do without
    import pyarrow.parquet as parquet

    directory.mkdir(exist_ok=True)
    each = max(count // 10, 1)
    for first in range(0, count, each):
        names = [f"scene-{number:08}" for number in range(first, min(first + each, count))]
        bodies = [JSON.replace("scene-00000000", name) for name in names]
        parquet.write_table(
            pa.table({"body": bodies}), directory / f"{first:09}.parquet", row_group_size=50_000
        )


def _feed(stage: Stage, source: Path, count: int) -> Values:
    stage.clear()
    drain = _Drain(stage, count)
    command = [
        sys.executable,
        "-m",
        "blueque.cli.main",
        "feed",
        str(source),
        QUEUE,
        "--name",
        "bench",
        "--window",
        str(WINDOW),
        "--params",
        "body",
        "--quiet",
        "--redis-url",
        stage.url,
    ]
    program = subprocess.Popen(
        command,
        cwd=stage.directory,
        env=stage.environment(OURS),
        start_new_session=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    stage.watch(program)
    try:
        drain.run(program)
    finally:
        stage.end([program], patience=0.0)
    return {
        "rate": count / drain.seconds,
        "waiting": float(drain.most),
        "memory": drain.feeder / 2**20,
        "redis": drain.redis / 2**20,
    }


class _Drain:
    """Takes what waits, oldest first, and throws it away, until so many were there; notes what
    there was of everything.
    """

    def __init__(self, stage: Stage, count: int) -> None:
        self._stage, self._count = stage, count
        self._before = stage.memory()
        self.seconds, self.most, self.feeder, self.redis = 0.0, 0, 0, 0

    def run(self, program: Program) -> None:
        its, began, last = psutil.Process(program.pid), 0.0, time.monotonic()
        taken = looks = 0
        while taken < self._count:
            length, ids = self._stage.redis.read(
                ("LLEN", keys.pending(QUEUE)), ("LRANGE", keys.pending(QUEUE), -5 * AT_ONCE, -1)
            )
            if not ids:
                if time.monotonic() - last > 60 or program.poll() not in (None, 0):
                    raise RunFailed(
                        f"only {taken} of {self._count} came: {last_line(_said(program))}"
                    )
                time.sleep(0.001)
                continue
            last = time.monotonic()
            began = began or last
            self._stage.redis.read(
                ("LTRIM", keys.pending(QUEUE), 0, -len(ids) - 1),
                ("UNLINK", *map(keys.task, ids)),
                ("ZREM", keys.tasks(QUEUE), *ids),
            )
            taken += len(ids)
            self.most = max(self.most, length)
            looks += 1
            if looks % 20 == 0 and program.poll() is None:
                with contextlib.suppress(psutil.NoSuchProcess):
                    self.feeder = max(self.feeder, its.memory_full_info().pss)
                self.redis = max(self.redis, self._stage.memory() - self._before)
        self.seconds = time.monotonic() - began


def _said(program: Program) -> bytes:
    assert program.stderr is not None
    return program.stderr.read() if program.poll() is not None else b""
