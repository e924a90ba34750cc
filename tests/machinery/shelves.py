"""Finished tasks, archives of them, and what must be true of both: nothing lost, nothing doubled,
nothing left over.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import redis as redis_py
from oracle import EVENTS
from transactions import protocol

from blueque import Client, archives
from blueque.archives import batch_steps, claims, opening, parquet_files, picking, stores
from blueque.model import keys

QUEUE = "a/b_c"  # needs to be escaped in a path
DAY = 86400.0
NOON = 20_000 * DAY + DAY / 2  # of 2024-10-04
LISTS = {"complete": keys.complete, "failed": keys.failed, "cancelled": keys.cancelled}


def finished(number: int) -> dict[str, str]:
    """Return the fields of a finished task: of two days, and of three statuses."""
    status = ("complete", "complete", "failed", "cancelled")[number % 4]
    ended = NOON + DAY * (number // 20 % 2) + number * 1.000001
    fields = {
        "status": status,
        "queue": QUEUE,
        "parameters": f"p{number}",
        "created": str(ended - 9),
        "started": str(ended - 5),
        "finished": str(ended),
        "updated": str(ended + 0.25),
        "attempt": "1",
        "token": "t" * 32,
        "finished_by": "t" * 32,
    }
    return {**fields, "result": "r" * 50} if status == "complete" else {**fields, "error": "e"}


def fill(cli: redis_py.Redis, count: int, first: int = 0) -> list[str]:
    """Make finished tasks, oldest first, and one that is pending; return the ids of those that are
    finished.
    """
    ids = [f"task-{number:05}" for number in range(first, first + count)]
    with cli.pipeline(transaction=False) as pipeline:
        for number, task in enumerate(ids, first):
            fields = finished(number)
            pipeline.hset(keys.task(task), mapping=fields)
            pipeline.lpush(LISTS[fields["status"]](QUEUE), task)
            pipeline.zadd(keys.tasks(QUEUE), {task: float(fields["created"])})
        pipeline.execute()
    cli.zincrby(keys.QUEUES, 0, QUEUE)
    return ids


def archived(directory: os.PathLike[str] | str) -> Counter[str]:
    """Return how many rows each task has in the archive, as a reader sees them."""
    return Counter(
        archives.read(directory, fields=["task_id"], latest=False)["task_id"].to_pylist()
    )


def left(cli: redis_py.Redis) -> set[str]:
    """Return everything in Redis but what is allowed to expire, and what events leave to their
    queue.
    """
    return {key for key in cli.keys("*") if cli.ttl(key) < 0 and not key.startswith(EVENTS)}


def require_exact(
    cli: redis_py.Redis, directory: Path, ids: Iterable[str], staying: Iterable[str] = ()
) -> None:
    """Require that each task is in the archive once, and gone from Redis as a whole; those that
    stay are still there.
    """
    ids, staying = [*ids], {*staying}
    assert archived(directory) == Counter(ids)
    gone = {*ids} - staying
    assert not [task for task in gone if cli.exists(keys.task(task))]
    for members in [
        *(cli.lrange(key(QUEUE), 0, -1) for key in LISTS.values()),
        cli.zrange(keys.tasks(QUEUE), 0, -1),
    ]:
        assert not gone & {*members}
    assert not cli.exists(keys.archive(QUEUE))
    require_nothing_left_over(str(directory))


def require_nothing_left_over(directory: str) -> None:
    """Require that each file and each list in the archive counts."""
    place, store = opening.open_(directory, unverified=True), stores.Store(directory)
    root = store.path()
    names = [path.removeprefix(f"{root}/") for path in store.below(root)]
    lists = {os.path.basename(name) for name in names if name.startswith("_written")}
    assert {f"{os.path.basename(one)}.json" for one in names if one.startswith("_pub")} == lists
    assert {name for name in names if name.startswith("queue=")} == {
        file.path.removeprefix(f"{root}/") for file in place.files()
    }


# Dying in the middle

OF_ANY_STORE: list[tuple[Any, str]] = [
    (parquet_files.Files, "write"),
    (parquet_files.Files, "close"),
    (picking, "pick"),
    (batch_steps, "write_down"),
    (batch_steps, "publish"),
    (batch_steps, "delete"),
    (batch_steps, "finish"),
]
POINTS = [
    *[(protocol, name) for name in ("claim_batch", "mark_batch", "erase", "freeze", "thaw")],
    *[(stores.Store, name) for name in ("names", "below", "put", "create", "remove", "sync")],
    *OF_ANY_STORE,
]


class Points:
    """Counts the calls of what an archiver does, before and after each, and does something at each
    of them.

    act: takes the number of the point. of: only in the thread of this name. calls: whose calls, by
        owner and name.
    """

    def __init__(
        self,
        act: Callable[[int], object],
        of: str | None = None,
        calls: Sequence[tuple[Any, str]] = tuple(POINTS),
    ) -> None:
        self.names: list[str] = []
        self._act, self._of, self._calls = act, of, calls

    def __enter__(self) -> Points:
        self._patches = [
            mock.patch.object(owner, name, self._wrap(owner, name)) for owner, name in self._calls
        ]
        for patch in self._patches:
            patch.start()
        return self

    def __exit__(self, *_: object) -> None:
        for patch in self._patches:
            patch.stop()

    def _wrap(self, owner: Any, name: str) -> Callable[..., Any]:
        real = getattr(owner, name)

        def wrapped(*arguments: Any, **options: Any) -> Any:
            self._pass(f"before {name}")
            result = real(*arguments, **options)
            self._pass(f"after {name}")
            return result

        return wrapped

    def _pass(self, name: str) -> None:
        if self._of in (None, threading.current_thread().name):
            self.names.append(name)
            self._act(len(self.names) - 1)


def kill_at(at: int) -> Callable[[int], object]:
    """Have this process die at a point, as by kill -9."""
    return lambda number: os.kill(os.getpid(), signal.SIGKILL) if number == at else None


def in_child(action: Callable[[], object]) -> int:
    """Run something in a forked process and return its wait status."""
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        try:
            action()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    return os.waitpid(pid, 0)[1]


def run(url: str, directory: Path, **options: Any) -> archives.Archived:
    client = Client(url, patience=2.0)
    try:
        return archives.archive(QUEUE, directory, client=client, **{"batch": 25, **options})
    finally:
        client.close()


def quick_lease() -> Any:
    """Have an archiver be taken for dead after a fifth of a second, although it lives; none shows
    that it does.
    """
    return mock.patch.multiple(claims, LEASE=0.2, POLL=0.02, BEAT=1000.0)
