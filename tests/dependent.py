"""Tasks that wait for others, made by the functions of blueque.protocol."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from transactions import protocol

from blueque.connection.redis import Redis
from blueque.model.attempt_ref import AttemptRef
from blueque.model.new_task import NewTask
from blueque.protocol.ends import End

NODE = "gpu-1.cluster.example.com_4021"


def block(
    redis: Redis,
    task: str,
    parents: Mapping[str, str] | str,
    queue: str = "video",
    now: float | None = None,
    eta: float | None = None,
    **options: Any,
) -> None:
    """Make a task that waits for others. parents: the condition on each; one id: `ok`."""
    conditions = {parents: "ok"} if isinstance(parents, str) else dict(parents)
    given = {"parameters_encoding": "json", **options}
    new = NewTask(task, queue, "{}", given, conditions, eta)
    protocol.enqueue_after(redis, [new], time.time() if now is None else now)


def enqueue(
    redis: Redis, task: str, queue: str = "video", now: float | None = None, **options: Any
) -> None:
    made = time.time() if now is None else now
    given = {"parameters_encoding": "json", **options}
    if "group" in options:
        protocol.enqueue_after(redis, [NewTask(task, queue, "{}", given, {})], made)
    else:
        protocol.enqueue(redis, queue, task, "{}", made, given)


def start(redis: Redis, task: str, queue: str = "video", now: float | None = None) -> None:
    """Have a task run that is the next of its queue."""
    began = time.time() if now is None else now
    protocol.register(redis, queue, NODE, "i1", {"beat_every": 10}, time.time())
    protocol.pop(redis, queue, NODE, "i1")
    attempt = AttemptRef(queue, task, f"secret-{task}", NODE)
    protocol.reserve(redis, attempt, "i1", began)
    protocol.start(redis, attempt, 4711, began)


def end(redis: Redis, task: str, queue: str = "video", **failure: Any) -> None:
    """Have a new task of the queue run and end, failed if facts of a failure are given, and tell
    those who wait for it.
    """
    enqueue(redis, task, queue)
    finish(redis, task, queue, **failure)


def finish(redis: Redis, task: str, queue: str = "video", **failure: Any) -> None:
    """The same for a task that is the next of its queue."""
    start(redis, task, queue)
    attempt = AttemptRef(queue, task, f"secret-{task}", NODE)
    if failure:
        protocol.end(redis, attempt, End.fail("boom", failure), time.time())
    else:
        protocol.end(redis, attempt, End.complete("1", {"result_encoding": "json"}), time.time())
    protocol.settle(redis, task, time.time())
