"""What there is of tasks after a write or an archiver, counted."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow.parquet
import redis as redis_py

from blueque.model import keys


def pending(cli: redis_py.Redis, queue: str = "render") -> Counter[str]:
    """Return the parameters of the pending tasks of a queue, and how often they are there; each
    task must be whole.
    """
    ids = cli.lrange(keys.pending(queue), 0, -1)
    with cli.pipeline(transaction=False) as pipeline:
        for task in ids:
            pipeline.hmget(keys.task(task), "status", "queue", "parameters")
        found = pipeline.execute()
    assert {(status, queue) for status, queue, _ in found} <= {("pending", queue)}
    return Counter(parameters for _, _, parameters in found)


def is_exact(cli: redis_py.Redis, rows: int, queue: str = "render") -> bool:
    """Tell whether there is one task for each of so many different rows, each in line."""
    found = pending(cli, queue)
    return len(found) == sum(found.values()) == rows and leftovers(cli) == []


def tally(found: Counter[str], rows: int) -> str:
    """Return in words how many of so many different rows are no task, and how many tasks are too
    many.
    """
    return f"{rows} rows, {rows - len(found)} lost, {found.total() - len(found)} twice"


def leftovers(cli: redis_py.Redis) -> list[str]:
    """Return the keys of tasks that are in no line."""
    lines = [
        name
        for kind in ("pending_tasks", "line", "scheduled_tasks")
        for name in cli.keys(f"blueque_{kind}_*")
    ]
    listed = {
        task
        for name in lines
        for task in (cli.zrange if cli.type(name) == "zset" else cli.lrange)(name, 0, -1)
    }
    return [
        name
        for name in cli.keys("blueque_task_*")
        if name.removeprefix("blueque_task_") not in listed
    ]


class Verdict(NamedTuple):
    """How many tasks are neither in Redis nor in the archive, how many rows are too many, how many
    tasks are in both.
    """

    lost: int
    doubled: int
    both: int


def _that_count(directory: Path) -> Iterator[Path]:
    """Yield the files that published lists name, and files that are not of a batch."""
    listed = set()
    for mark in directory.glob("_published/*/*"):
        queue, name = mark.parts[-2:]
        names = json.loads((directory / "_written" / queue / f"{name}.json").read_text())["files"]
        listed |= {directory / queue / name for name in names}
    for path in directory.glob("queue=*/day=*/*.parquet"):
        if path in listed or not re.match(r"\d{8}T\d{6}-", path.name):
            yield path


def judge(
    cli: redis_py.Redis, directory: Path, ids: Iterable[str], queue: str = "render"
) -> Verdict:
    """Look at Redis and at each file that counts, without Spark and without our reader."""
    rows = Counter(
        task
        for path in _that_count(directory)
        for task in pyarrow.parquet.read_table(path, columns=["task_id"], partitioning=None)[
            "task_id"
        ].to_pylist()
    )
    lists = (keys.complete, keys.failed, keys.cancelled, keys.pending)
    listed = {task for name in lists for task in cli.lrange(name(queue), 0, -1)}
    there = {task for task in listed if cli.exists(keys.task(task))}
    return Verdict(
        len({*ids} - {*rows} - there), sum(rows.values()) - len(rows), len(there & {*rows})
    )


def forget_tasks(cli: redis_py.Redis, queue: str = "render") -> int:
    """Delete all that there is of its pending tasks, as if they had run and been archived; return
    how many there were.
    """
    ids = cli.lrange(keys.pending(queue), 0, -1)
    cli.delete(keys.pending(queue), keys.tasks(queue), *map(keys.task, ids))
    return len(ids)
