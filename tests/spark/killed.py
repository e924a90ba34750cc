"""A driver that comes to every step of a write at once, and waits there to be killed; and what is
left of it then.

`python -m spark.killed URL DIRECTORY` in tests/ starts it: a frame for each queue in STEPS, and
streams over the files in DIRECTORY/source for those in STREAMS.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import redis as redis_py
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from running import ROOT, TEST_PATHS

import blueque.spark as bs
from blueque.model import keys
from blueque.spark import enqueueing
from blueque.system.embedded_redis import running_server
from spark import mishaps
from spark.clusters import CONNECT, session
from spark.conftest import FAST, activate
from spark.exact import is_exact, judge, leftovers, pending, tally
from spark.oldest import HAS_SOURCES
from spark.seeds import DAY, seed

ROWS = 4000  # of a frame, in two partitions
FILE = 1500  # rows of a file, which is a batch of a stream
PATIENCE = 300.0  # seconds until a driver has come to where it is to be killed

# Where the writer of each queue is when its driver is killed: the step, and which time it comes
# there.
STEPS = {
    "keyed": ("after enqueue_members", 2),
    "uncommitted": ("before close_group", 1),
    "committed": ("after close_group", 1),
    "naive": ("after chunk", 2),
}
FORMAT = {"format": ("after enqueue_members", 2)}  # Spark 3.5 does not have it
STREAMS = {
    "stream": ("after enqueue_members", 10),  # in the second batch
    "stream-uncommitted": ("before close_group", 2),
    "stream-committed": ("after close_group", 2),
    "stream-naive": ("after batch", 2),
}
# How many tasks each has in line then; of the others that is not certain.
VISIBLE = {
    "uncommitted": ROWS,
    "committed": ROWS,
    "stream-uncommitted": 2 * FILE,
    "stream-committed": 2 * FILE,
    "stream-naive": 2 * FILE,
}
ARCHIVED = "archived"  # a queue that is archived: it is killed when a part is deleted from Redis
ARCHIVES = {ARCHIVED: ("after erase", 2)}
# Where a stream is killed one time after the other: in its first batch, its second, ...
OFTEN = [("after enqueue_members", 1), ("before close_group", 2), ("after close_group", 2)]


def frame(spark: SparkSession) -> DataFrame:
    return spark.range(0, ROWS, 1, 2).select(
        "id", F.format_string("scene-%05d", "id").alias("scene")
    )


def write(spark: SparkSession, url: str, queue: str, source: str = "blueque") -> None:
    """Write the frame to a queue, in the way of that queue."""
    if queue == "naive":
        frame(spark).foreachPartition(mishaps.naive(url, queue))
    elif queue in FORMAT:
        activate(spark)
        options = {"url": url, "queue": queue, "group": queue, "key": "scene"}
        frame(spark).write.format(source).options(**options).mode("append").save()
    else:
        bs.enqueue(frame(spark), queue, url=url, group=queue, key="scene")


def add_files(spark: SparkSession, directory: Path, *numbers: int) -> None:
    for number in numbers:
        some = spark.range(number * FILE, (number + 1) * FILE, 1, 1)
        some.write.mode("append").parquet(str(directory / "source" / f"file={number}"))


def stream(spark: SparkSession, url: str, directory: Path, queue: str) -> Any:
    """Start the stream of a queue, and return the query: it ends when it has taken all files."""
    files = (
        spark.readStream.schema("id long, file int")
        .option("maxFilesPerTrigger", 1)
        .parquet(str(directory / "source"))
    )
    query = files.drop("file").writeStream.trigger(availableNow=True)
    query = query.option("checkpointLocation", str(directory / "checkpoints" / queue))
    each = naively(url, queue) if queue == "stream-naive" else by_batch(url, queue)
    return query.foreachBatch(each).start()


def by_batch(url: str, queue: str) -> Callable[[DataFrame, int], None]:
    def each(batch: DataFrame, number: int) -> None:
        bs.enqueue(batch, queue, url=url, key="id", group=f"{queue}-{number}")

    return each


def naively(url: str, queue: str) -> Callable[[DataFrame, int], None]:
    def each(batch: DataFrame, number: int) -> None:
        batch.foreachPartition(mishaps.naive(url, queue))
        mishaps.Mishaps(url, queue).meet("after batch")

    return each


def archive(spark: SparkSession, url: str, directory: Path) -> None:
    with mishaps.Mishaps(url, ARCHIVED).happening():
        bs.archive(spark, ARCHIVED, directory / "archive", url=url)


def plan(cli: redis_py.Redis, steps: Mapping[str, tuple[str, int]]) -> None:
    for queue, (step, call) in steps.items():
        mishaps.plan(cli, "pause", step, call, queue=queue, partition=0)


@contextmanager
def driver(
    cli: redis_py.Redis,
    url: str,
    directory: Path,
    steps: Mapping[str, tuple[str, int]],
    master: str = "local[12]",
) -> Iterator[None]:
    """Have a driver come to all these steps; at the end it is killed, with its Java and their
    workers, without a word.
    """
    plan(cli, steps)
    command = [sys.executable, "-m", "spark.killed", master, url, str(directory), *steps]
    path = [*TEST_PATHS, str(ROOT), os.environ.get("PYTHONPATH", "")]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
    with (directory / "driver.log").open("ab") as log:
        started = subprocess.Popen(command, env=environ, stdout=log, stderr=log, process_group=0)
    try:
        deadline = time.monotonic() + PATIENCE
        while not all(mishaps.struck(cli, queue) for queue in steps):
            missing = [queue for queue in steps if not mishaps.struck(cli, queue)]
            assert started.poll() is None, (
                f"the driver has ended: {(directory / 'driver.log').read_text()[-3000:]}"
            )
            assert time.monotonic() < deadline, f"{missing} have not come to their steps"
            time.sleep(0.05)
        yield
    finally:
        if started.poll() is None:  # else it has ended by itself, and the error above says why
            kill(started.pid)
        started.wait()
        cli.delete(*map(mishaps.key, steps))


def kill(pid: int) -> None:
    """Kill a process and all that it has started, the workers last: what they would do meanwhile is
    part of the mishap.
    """
    victims = mishaps.processes_of(pid)
    for victim in victims:
        victim.kill()
    psutil.wait_procs(victims[1:])


def check(
    spark: SparkSession,
    url: str,
    cli: redis_py.Redis,
    directory: Path,
    queues: Iterable[str],
    master: str = "local[12]",
) -> None:
    """Kill a driver at the steps of these queues, run the same again here, and see that it comes
    out exact.
    """
    steps = {queue: (STEPS | FORMAT | STREAMS | ARCHIVES)[queue] for queue in queues}
    ids = seed(url, ARCHIVED, ROWS, spread=DAY) if ARCHIVED in steps else []
    add_files(spark, directory, 0, 1, 2)
    with driver(cli, url, directory, steps, master):
        visible = {queue: cli.llen(keys.pending(queue)) for queue in steps}
    assert {queue: VISIBLE.get(queue, count) for queue, count in visible.items()} == visible, (
        "it was not where it should be"
    )
    if ids:
        assert 0 < cli.llen(keys.complete(ARCHIVED)) < ROWS, "it was not killed while it deletes"
        del steps[ARCHIVED]
        archive(spark, url, directory)
        verdict = judge(cli, directory / "archive", ids, ARCHIVED)
        print(f"{master}, killed while it deletes what it has archived: {verdict}", flush=True)
        assert verdict == (0, 0, 0)
    for queue in steps:
        if queue in STREAMS:
            stream(spark, url, directory, queue).awaitTermination()
        else:
            write(spark, url, queue)
    for queue in steps:
        rows = 3 * FILE if queue in STREAMS else ROWS
        found = pending(cli, queue)
        print(f"{master}, killed {' '.join(map(str, steps[queue]))}, {queue}: ", end="")
        print(f"{visible[queue]} in line then; {tally(found, rows)}", flush=True)
        if "naive" in queue:
            assert found.total() > rows, (
                f"{queue}: the naive way must fail this, or it proves nothing"
            )
        else:
            assert is_exact(cli, rows, queue), (
                f"{queue}: {found.total()} tasks for {rows} rows, and {leftovers(cli)[:9]}"
            )
        if queue not in STREAMS and queue != "naive":
            members = cli.zrange(keys.members(queue), 0, -1)
            assert {*members} == cli.smembers(keys.open_members(queue)) and len(members) == rows
            assert cli.hget(keys.group(queue), "state") == "closed", f"{queue}: {steps[queue]}"


def check_stream(spark: SparkSession, url: str, cli: redis_py.Redis, directory: Path) -> None:
    """Kill a driver with one stream at each of these steps, one after the other, each time a batch
    later.
    """
    queue = "stream-killed-often"
    add_files(spark, directory, *range(len(OFTEN) + 1))
    for number, step in enumerate(OFTEN):
        with driver(cli, url, directory, {queue: step}):
            print(
                f"killed {step[0]} in batch {number}, with {cli.llen(keys.pending(queue))} tasks",
                flush=True,
            )
    stream(spark, url, directory, queue).awaitTermination()
    rows = (len(OFTEN) + 1) * FILE
    found = pending(cli, queue)
    print(f"{len(OFTEN)} kills, {queue}: {tally(found, rows)}", flush=True)
    assert is_exact(cli, rows, queue), (
        f"{found.total()} tasks for {rows} rows, and {leftovers(cli)[:9]}"
    )


def matrix() -> None:
    """Do both with a Redis and a session of our own: what `bin/soak` runs."""
    with running_server() as server, tempfile.TemporaryDirectory() as directory:
        mishaps.have_patience()
        cli = mishaps.patient(server.url)
        spark = bs.session("matrix", "local[2]", **FAST)
        frames = STEPS | FORMAT if HAS_SOURCES else STEPS
        parts = {"steps": functools.partial(check, queues=frames | STREAMS), "stream": check_stream}
        ours = [queue for queue in frames if queue != "naive"]  # its way is not one of Connect
        for master in ("local-cluster[2,6,1024]", CONNECT):
            parts[master] = functools.partial(check, queues=[*ours, ARCHIVED], master=master)
        for name, part in parts.items():
            place = Path(directory) / name
            place.mkdir()
            part(spark, server.url, cli, place)
            print(f"{name}: exact", flush=True)
            cli.flushall()
        spark.stop()


def main(master: str, url: str, directory: str, *queues: str) -> None:
    spark = session(master)
    make = enqueueing.make_writer
    enqueueing.make_writer = lambda *given: mishaps.Struck(make(*given))
    if HAS_SOURCES:
        from spark.mishap_source import MishapSource  # here: see FORMAT

        spark.dataSource.register(MishapSource)
    for queue in queues:
        if queue == ARCHIVED:
            threading.Thread(
                target=archive, args=(spark, url, Path(directory)), daemon=True
            ).start()
        elif queue.startswith("stream"):
            stream(spark, url, Path(directory), queue)
        else:
            threading.Thread(target=write, args=(spark, url, queue, "mishap"), daemon=True).start()
    threading.Event().wait()


if __name__ == "__main__":
    main(*sys.argv[1:]) if sys.argv[1:] else matrix()
