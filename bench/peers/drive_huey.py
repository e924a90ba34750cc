"""Drives Huey."""

from __future__ import annotations

from collections.abc import Callable

import driver
import work
from huey import RedisHuey

huey = RedisHuey(driver.QUEUE, url=driver.URL)
note = huey.task(name="note")(work.note)


def make() -> Callable[[str], object]:
    """Each thread takes a connection from the pool of redis-py for each call."""
    return note


if __name__ == "__main__":
    driver.main("drive_huey")
