"""Drives SAQ."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import driver
import saq
import work

AT_A_TIME = 100  # calls under way of a bulk


async def note(context: Any, *, text: str) -> None:
    work.note(text)


def _queue() -> saq.Queue:
    return saq.Queue.from_url(driver.URL, name=driver.QUEUE)


async def make() -> Callable[[str], Awaitable[object]]:
    queue = _queue()
    return lambda text: queue.enqueue("note", text=text)


def bulk(count: int) -> driver.Answer:
    async def run() -> driver.Answer:
        queue = _queue()
        await queue.enqueue("note", text=driver.TEXT)
        clock = driver.Clock()
        for first in range(0, count, AT_A_TIME):
            size = min(AT_A_TIME, count - first)
            await asyncio.gather(*(queue.enqueue("note", text=driver.TEXT) for _ in range(size)))
        return clock.read()

    return asyncio.run(run())


if driver.URL:
    settings = {"queue": _queue(), "functions": [("note", note)], "concurrency": 2}

if __name__ == "__main__":
    driver.main("drive_saq")
