"""Drives Blueque: the checkout that PYTHONPATH names."""

from __future__ import annotations

from collections.abc import Callable

import driver

from blueque import Client


def make() -> Callable[[str], object]:
    return Client(driver.URL).get_queue(driver.QUEUE).enqueue


def bulk(count: int) -> driver.Answer:
    """Each row is a dict, made into JSON inside the clock, as are the ids."""
    queue = Client(driver.URL).get_queue(driver.QUEUE)
    rows = ({"text": "x" * 88} for _ in range(count))  # 100 bytes of JSON
    queue.enqueue_many([{"text": "warm"}])
    clock = driver.Clock()
    queue.enqueue_many(rows)
    return {**clock.read(), "tasks": count + 1}


if __name__ == "__main__":
    driver.main("drive_blueque")
