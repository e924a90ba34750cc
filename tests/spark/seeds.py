"""Finished tasks by the thousand, as listeners leave them, for those who read and archive them."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

import redis as redis_py

from blueque.connection.redis import pack
from blueque.model import keys

NOON = 1795176000.0  # 20 November 2026, 12:00 UTC
DAY = 86400.0
NODE = "node-1.example.com_4711"
LISTS = {"complete": keys.complete, "failed": keys.failed, "cancelled": keys.cancelled}
CHUNK = 1000


def task_id(number: int) -> str:
    return str(uuid.UUID(int=number * 0x9E3779B97F4A7C15F39CC0605CEDC835 % 2**128, version=4))


def seed(
    url: str,
    queue: str,
    count: int,
    status: str = "complete",
    *,
    first: int = 0,
    end: float = NOON,
    spread: float = 0.0,
) -> list[str]:
    """Make tasks that have ended like that, one after the other, and return their ids, oldest
    first.

    first: the number of the first one; ids are made of numbers. end: when the last one ended.
    spread: seconds between the first and the last one.
    """
    ids = [task_id(number) for number in range(first, first + count)]
    step = spread / max(count - 1, 1)
    with redis_py.Redis.from_url(url) as client:
        connection = client.connection_pool.get_connection()
        for begin in range(0, count, CHUNK):
            some = range(begin, min(begin + CHUNK, count))
            commands = [
                pack(
                    (
                        "HSET",
                        keys.task(ids[at]),
                        *fields(queue, ids[at], first + at, status, end - spread + at * step),
                    )
                )
                for at in some
            ]
            commands += [
                pack(
                    (
                        "ZADD",
                        keys.tasks(queue),
                        *[word for at in some for word in (end - spread - 200, ids[at])],
                    )
                ),
                pack(("LPUSH", LISTS[status](queue), *[ids[at] for at in some])),
            ]
            connection.send_packed_command([b"".join(commands)])
            for _ in commands:
                connection.read_response()
        client.zadd(keys.QUEUES, {queue: 0}, nx=True)
        client.connection_pool.release(connection)
    return ids


def fields(
    queue: str, task: str, number: int, status: str, finished: float
) -> Sequence[str | float | int]:
    """Return the names and values of what the hash of such a task holds."""
    how = {
        "complete": ("result", f'{{"frames":{number}}}', "result_encoding", "json"),
        "failed": (
            "error",
            f"frame {number} is broken",
            "error_type",
            "ValueError",
            "traceback",
            "Traceback ...",
        ),
        "cancelled": ("cancelled_by", "ada@example.com"),
    }
    return (
        "status",
        status,
        "queue",
        queue,
        "parameters",
        f'{{"scene":"{number:06d}","frame":{number},"codec":"av1"}}',
        "parameters_encoding",
        "json",
        "created",
        finished - 200,
        "node",
        NODE,
        "pid",
        1000 + number % 1000,
        "pid_start",
        12345,
        "boot",
        "7f3c2d1a-5b6e-4f80-9a1b-2c3d4e5f6a7b",
        "ns",
        "pid:[4026531836]",
        "token",
        uuid.UUID(task).hex,
        "attempt",
        1,
        "files",
        f"node-1:/var/lib/blueque/spool/{task}/1",
        "started",
        finished - 60,
        "memory_peak",
        52428800,
        "cpu_seconds",
        58.5,
        *how[status],
        "finished_by",
        uuid.UUID(task).hex,
        "finished",
        finished,
        "updated",
        finished,
    )
