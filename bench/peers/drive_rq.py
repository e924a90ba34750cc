"""Drives RQ."""

from __future__ import annotations

from collections.abc import Callable

import driver
import redis
import rq
import work


def make() -> Callable[[str], object]:
    queue = rq.Queue(driver.QUEUE, connection=redis.Redis.from_url(driver.URL))
    return lambda text: queue.enqueue(work.note, text)


def bulk(count: int) -> driver.Answer:
    queue = rq.Queue(driver.QUEUE, connection=redis.Redis.from_url(driver.URL))
    queue.enqueue(work.note, driver.TEXT)
    clock = driver.Clock()
    for first in range(0, count, 1000):
        size = min(1000, count - first)
        queue.enqueue_many(
            [rq.Queue.prepare_data(work.note, args=(driver.TEXT,)) for _ in range(size)]
        )
    return clock.read()


if __name__ == "__main__":
    driver.main("drive_rq")
