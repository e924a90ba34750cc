"""Things that go wrong in the processes of Spark, at a given step of the writer and not by luck.

The data source `mishap` is `blueque`, and is struck as a key in Redis says, which `plan` sets.
Beside it, the naive way to do the same, with the same mishaps.
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

from blueque import protocol
from blueque.model.units import redis_url
from blueque.producer import batches
from blueque.spark import datasource

CHUNK = 500  # rows that the naive way writes at a time


def plan(
    cli: redis_py.Redis,
    act: str,
    step: str,
    call: int = 1,
    *,
    queue: str = "render",
    partition: int = 1,
    again: bool = False,
) -> None:
    """Have something happen before or after the call-th `step` for a queue, as `before publish`, in
    whatever process it is.

    act: raise; kill: this process; pause: until the plan is gone. In tasks of Spark it strikes one
    partition only, and only its first attempt unless `again`.
    """
    values = {
        "act": act,
        "step": step,
        "call": call,
        "partition": partition,
        "again": int(again),
        "struck": 0,
    }
    cli.hset(key(queue), mapping=values)


def forget(cli: redis_py.Redis, queue: str = "render") -> None:
    cli.delete(key(queue))


def struck(cli: redis_py.Redis, queue: str = "render") -> int:
    """Return how often it has happened."""
    return int(cli.hget(key(queue), "struck") or 0)


def key(queue: str) -> str:
    return f"mishap_{queue}"


class MishapSource(DataSource):
    """What writes as `blueque` does, until it is struck."""

    @classmethod
    def name(cls) -> str:
        return "mishap"

    def schema(self) -> Any:
        return datasource.schema(self.options)

    def writer(self, schema: Any, overwrite: bool) -> Any:
        return Struck(datasource.writer(schema, self.options, overwrite), *_place(self.options))

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:
        return StreamStruck(
            datasource.stream_writer(schema, self.options, overwrite), *_place(self.options)
        )


class Struck(DataSourceArrowWriter):
    """Has the writer do everything, with mishaps."""

    def __init__(self, inner: Any, url: str, queue: str) -> None:
        self._inner, self._mishaps = inner, Mishaps(url, queue)

    def write(self, iterator: Any) -> Any:
        with self._mishaps.happening():
            return self._inner.write(iterator)

    def commit(self, messages: Any, *batch: int) -> None:
        with self._mishaps.happening():
            self._inner.commit(messages, *batch)

    def abort(self, messages: Any, *batch: int) -> None:
        self._inner.abort(messages, *batch)


class StreamStruck(DataSourceStreamArrowWriter):
    __init__, write, commit, abort = Struck.__init__, Struck.write, Struck.commit, Struck.abort  # type: ignore[assignment]


class Mishaps:
    """What is planned for a queue."""

    def __init__(self, url: str, queue: str) -> None:
        self._url, self._key = url, key(queue)

    @contextlib.contextmanager
    def happening(self) -> Iterator[None]:
        """Let it happen in this process."""
        with self._connected() as cli:
            _, _, step = (cli.hget(self._key, "step") or "").partition(" ")
        place = batches if step == "enqueue_many" else protocol
        if not hasattr(place, step):  # nothing is planned, or for elsewhere
            yield
            return
        real = getattr(place, step)

        def watched(*given: Any, **named: Any) -> Any:
            self.meet(f"before {step}")
            result = real(*given, **named)
            self.meet(f"after {step}")
            return result

        setattr(place, step, watched)
        try:
            yield
        finally:
            setattr(place, step, real)

    def meet(self, step: str) -> None:
        """Be at a step: of all processes, the one at the planned call of it is struck."""
        task = TaskContext.get()
        attempt = task.attemptNumber() if task is not None else 0
        with self._connected() as cli:
            planned = cli.hgetall(self._key)
            if planned.get("step") != step or (attempt and planned["again"] == "0"):
                return
            if task is not None and task.partitionId() != int(planned["partition"]):
                return
            if cli.hincrby(self._key, f"calls of attempt {attempt}", 1) == int(planned["call"]):
                cli.hincrby(self._key, "struck", 1)
                self._strike(cli, planned["act"])

    def _strike(self, cli: redis_py.Redis, act: str) -> None:
        if act == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        while act == "pause" and cli.exists(self._key):
            time.sleep(0.01)
        if act == "raise":
            raise RuntimeError("struck")

    def _connected(self) -> redis_py.Redis:
        return redis_py.Redis.from_url(self._url, decode_responses=True)


def naive(url: str, queue: str) -> Callable[[Any], None]:
    """Return what every blog does in foreachPartition: a pipeline, random ids. Each chunk is a
    step.
    """

    def write(rows: Any) -> None:
        with redis_py.Redis.from_url(url, decode_responses=True) as cli:
            chunk: list[str] = []
            for row in rows:
                chunk.append(json.dumps(row.asDict(), default=str))
                if len(chunk) == CHUNK:
                    naive_chunk(cli, queue, chunk)
                    Mishaps(url, queue).meet("after chunk")
                    chunk = []
            naive_chunk(cli, queue, chunk)

    return write


def naive_chunk(cli: redis_py.Redis, queue: str, texts: list[str]) -> None:
    with cli.pipeline() as pipeline:
        for text in texts:
            task = str(uuid.uuid4())
            pipeline.hset(
                f"blueque_task_{task}",
                mapping={"status": "pending", "queue": queue, "parameters": text},
            )
            pipeline.lpush(f"blueque_pending_tasks_{queue}", task)
        pipeline.execute()


def processes_of(pid: int) -> list[psutil.Process]:
    """Return a process and all that it has started, directly or not."""
    root = psutil.Process(pid)
    return [root, *root.children(recursive=True)]


def _place(options: Any) -> tuple[str, str]:
    return str(options.get("url", redis_url()[0])), str(options["queue"])
