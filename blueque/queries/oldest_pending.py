"""The oldest tasks in line: what a bounded queue may discard."""

from __future__ import annotations

from blueque.connection.redis import Redis
from blueque.model import keys
from blueque.model.lines import DEFAULT


def oldest_pending(redis: Redis, queue: str, count: int) -> list[str]:
    """Return so many of the tasks in all lines of a queue, the one that was made first at first.

    Of each line its next tasks count as its oldest ones.
    """
    (names,) = redis.read(("ZRANGE", keys.lines(queue), 0, -1))
    ends = redis.read(
        *[("LRANGE", keys.line(queue, name), -count, -1) for name in (DEFAULT, *names)]
    )
    tasks = [task for end in ends for task in reversed(end)]
    if not tasks:
        return []
    fields = redis.read(*[("HMGET", keys.task(task), "status", "created") for task in tasks])
    waiting = [
        (float(created or 0), task)
        for task, (status, created) in zip(tasks, fields, strict=True)
        if status == "pending"
    ]
    return [task for _, task in sorted(waiting, key=lambda pair: pair[0])[:count]]
