"""Things that go wrong in the processes of Spark, at a given step of the writer and not by luck.

The data source `mishap` is `blueque`, and strikes as the key `mishap` in Redis tells it: `write` says so. Beside it, the
naive way to do the same, with the same mishaps.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import psutil
import redis as redis_py
from pyspark import TaskContext
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, DataSourceStreamArrowWriter

from blueque import batches, protocol
from blueque.settings import redis_url
from blueque.spark import datasource

CHUNK = 500                                            # rows that the naive way writes at a time
KEY = "mishap"


def plan(cli: redis_py.Redis, act: str, step: str, call: int = 1, *, again: bool = False) -> None:
    """Have something happen before or after the call-th `step`, as `before publish`, in whichever process makes it.

    act: raise; kill: this process; pause: until the key is gone. In tasks of Spark it strikes partition 1 only, and only its
    first attempt unless `again`. `struck(cli)` counts.
    """
    cli.hset(KEY, mapping={"act": act, "step": step, "call": call, "again": int(again), "struck": 0})


def struck(cli: redis_py.Redis) -> int:
    return int(cli.hget(KEY, "struck") or 0)


class MishapSource(DataSource):
    """What writes as `blueque` does, until it is struck."""

    @classmethod
    def name(cls) -> str:
        return "mishap"

    def schema(self) -> Any:
        return datasource.schema(self.options)

    def writer(self, schema: Any, overwrite: bool) -> Any:
        return Struck(datasource.writer(schema, self.options, overwrite), _url(self.options))

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:
        return StreamStruck(datasource.stream_writer(schema, self.options, overwrite), _url(self.options))


class Struck(DataSourceArrowWriter):
    """Has the writer do everything, with mishaps."""

    def __init__(self, inner: Any, url: str) -> None:
        self._inner, self._url = inner, url

    def write(self, iterator: Any) -> Any:
        with mishaps(self._url):
            return self._inner.write(iterator)

    def commit(self, messages: Any, *batch: int) -> None:
        with mishaps(self._url):
            self._inner.commit(messages, *batch)

    def abort(self, messages: Any, *batch: int) -> None:
        self._inner.abort(messages, *batch)


class StreamStruck(DataSourceStreamArrowWriter):
    __init__, write, commit, abort = Struck.__init__, Struck.write, Struck.commit, Struck.abort  # type: ignore[assignment]


@contextlib.contextmanager
def mishaps(url: str) -> Iterator[None]:
    """Let happen in this process what is planned."""
    with redis_py.Redis.from_url(url, decode_responses=True) as cli:
        planned = cli.hgetall(KEY)
    if not planned or not _is_here(planned):
        yield
        return
    when, _, step = planned["step"].partition(" ")
    place = batches if step == "enqueue_many" else protocol
    real = getattr(place, step)
    calls = 0

    def struck_at(*given: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        is_now = calls == int(planned["call"])
        if is_now and when == "before":
            strike(url, planned["act"])
        result = real(*given, **named)
        if is_now and when == "after":
            strike(url, planned["act"])
        return result

    setattr(place, step, struck_at)
    try:
        yield
    finally:
        setattr(place, step, real)


def strike(url: str, act: str) -> None:
    with redis_py.Redis.from_url(url) as cli:
        cli.hincrby(KEY, "struck", 1)
        if act == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        while act == "pause" and cli.exists(KEY):
            time.sleep(0.01)
    if act == "raise":
        raise RuntimeError("struck")


def naive(url: str, queue: str) -> Callable[[Any], None]:
    """Return what every blog does in foreachPartition: a pipeline, random ids; struck at its third chunk."""

    def write(rows: Any) -> None:
        with redis_py.Redis.from_url(url, decode_responses=True) as cli:
            planned = cli.hgetall(KEY)
            chunk: list[str] = []
            for number, row in enumerate(rows, 1):
                chunk.append(json.dumps(row.asDict(), default=str))
                if len(chunk) == CHUNK:
                    if planned and number == 3 * CHUNK and _is_here(planned):
                        strike(url, planned["act"])
                    naive_chunk(cli, queue, chunk)
                    chunk = []
            naive_chunk(cli, queue, chunk)

    return write


def naive_chunk(cli: redis_py.Redis, queue: str, texts: list[str]) -> None:
    with cli.pipeline() as pipeline:
        for text in texts:
            task = str(uuid.uuid4())
            pipeline.hset(f"blueque_task_{task}", mapping={"status": "pending", "queue": queue, "parameters": text})
            pipeline.lpush(f"blueque_pending_tasks_{queue}", task)
        pipeline.execute()


def processes_of(pid: int) -> list[psutil.Process]:
    """Return a process and all that it has started, directly or not."""
    root = psutil.Process(pid)
    return [root, *root.children(recursive=True)]


def _is_here(planned: dict[str, str]) -> bool:
    """Tell whether it strikes in this task of Spark; it always does where there is none."""
    task = TaskContext.get()
    return task is None or (task.partitionId() == 1 and (task.attemptNumber() == 0 or planned["again"] == "1"))


def _url(options: Any) -> str:
    return str(options.get("url", redis_url()[0]))
