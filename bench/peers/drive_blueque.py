"""Drives this checkout of Blueque."""

from __future__ import annotations

import time
from collections.abc import Callable

import driver

from blueque import Client


def make() -> Callable[[str], object]:
    return Client(driver.URL).get_queue(driver.QUEUE).enqueue


def bulk(count: int) -> float:
    """Each row is a dict, made into JSON inside the clock, as are the ids."""
    queue = Client(driver.URL).get_queue(driver.QUEUE)
    rows = ({"text": "x" * 88} for _ in range(count))  # 100 bytes of JSON
    queue.enqueue_many([{"text": "warm"}])
    began = time.perf_counter()
    queue.enqueue_many(rows)
    return time.perf_counter() - began


if __name__ == "__main__":
    driver.main("drive_blueque")
