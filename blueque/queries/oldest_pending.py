"""The oldest tasks in line: what a bounded queue may discard."""

from __future__ import annotations

from collections.abc import Sequence

from blueque.connection.redis import Redis
from blueque.model import keys
from blueque.model.lines import DEFAULT
from blueque.queries.line_order import age_of


def oldest_pending(redis: Redis, queue: str, count: int) -> list[str]:
    """Return at most so many of the tasks in all lines of a queue, the one that was made first at
    first. There is none only if none is pending.

    Of each line its next tasks count as its oldest ones.
    """
    seen: list[str] = []
    while True:
        tasks = _next_of_all_lines(redis, queue, count)
        found = _pending(redis, queue, tasks)
        # Others may have taken all of them meanwhile. What stays there and is not pending never goes.
        if found or tasks == seen:
            return found[:count]
        seen = tasks


def _next_of_all_lines(redis: Redis, queue: str, count: int) -> list[str]:
    (names,) = redis.read(("ZRANGE", keys.lines(queue), 0, -1))
    ends = redis.read(
        *[("LRANGE", keys.line(queue, name), -count, -1) for name in (DEFAULT, *names)]
    )
    return [task for end in ends for task in reversed(end)]


def _pending(redis: Redis, queue: str, tasks: Sequence[str]) -> list[str]:
    """Return those of the tasks that are pending in this queue, the one that was made first at first."""
    if not tasks:
        return []
    asked = [("HMGET", keys.task(task), "status", "queue", "created") for task in tasks]
    waiting = [
        (age_of(created), task)
        for task, (*state, created) in zip(tasks, redis.read(*asked), strict=True)
        if state == ["pending", queue]
    ]
    return [task for _, task in sorted(waiting, key=lambda pair: pair[0])]
