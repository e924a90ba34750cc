"""Things that go wrong at a given step of a writer, in the driver or a worker, and not by luck.

A writer that is wrapped in `Struck` is struck as a key in Redis says, which `plan` sets. Beside it,
the naive way to do the same, with the same mishaps.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import psutil
import redis as redis_py
from pyspark import TaskContext
from transactions import protocol

from blueque.spark import write_options

PATIENCE = 60.0  # seconds
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
    """Have something happen before or after the call-th `step` for a queue, as `before close_group`, in
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


class Struck:
    """Has a writer do everything, with mishaps."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self._mishaps = Mishaps(inner.target.url, inner.target.queue)
        self.target, self.fate = inner.target, inner.fate

    def write(self, batches: Any) -> Any:
        with self._mishaps.happening():
            return self._inner.write(batches)

    def has_all(self, reports: Any) -> Any:
        return self._inner.has_all(reports)

    def commit(self, reports: Any) -> Any:
        with self._mishaps.happening():
            return self._inner.commit(reports)


class Mishaps:
    """What is planned for a queue."""

    def __init__(self, url: str, queue: str) -> None:
        self._url, self._key = url, key(queue)

    @contextlib.contextmanager
    def happening(self) -> Iterator[None]:
        """Let it happen in this thread."""
        with self._connected() as cli:
            _, _, step = (cli.hget(self._key, "step") or "").partition(" ")
        if not hasattr(protocol, step):  # nothing is planned, or for elsewhere
            yield
            return
        _watch(protocol, step)
        _here.mishaps = self
        try:
            yield
        finally:
            _here.mishaps = None

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
        return patient(self._url)


_here = threading.local()  # the mishaps that happen in this thread
_real: list[tuple[Any, str, Any]] = []  # the functions that are watched in this process


def _watch(place: Any, step: str) -> None:
    """Have a function tell the mishaps of its thread when it is called, until `unwatch`."""
    real = getattr(place, step)
    if hasattr(real, "is_watched"):
        return

    def watched(*given: Any, **named: Any) -> Any:
        mishaps = getattr(_here, "mishaps", None)
        if mishaps is None:
            return real(*given, **named)
        mishaps.meet(f"before {step}")
        result = real(*given, **named)
        mishaps.meet(f"after {step}")
        return result

    watched.is_watched = True  # type: ignore[attr-defined]
    _real.append((place, step, real))
    setattr(place, step, watched)


def unwatch() -> None:
    """Put the functions back: the tests that follow in this process compare them."""
    while _real:
        setattr(*_real.pop())


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


def patient(url: str) -> redis_py.Redis:
    """Return a client that waits as long as those of `have_patience`."""
    return redis_py.Redis.from_url(url, decode_responses=True, socket_timeout=PATIENCE)


def have_patience() -> None:
    """Have all of ours in this process wait for Redis where the machine may stand still for seconds."""
    write_options.PATIENCE = PATIENCE


def processes_of(pid: int) -> list[psutil.Process]:
    """Return a process and all that it has started, directly or not."""
    root = psutil.Process(pid)
    return [root, *root.children(recursive=True)]
