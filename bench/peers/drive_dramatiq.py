"""Drives Dramatiq."""

from __future__ import annotations

from collections.abc import Callable

import dramatiq
import driver
import work
from dramatiq.brokers.redis import RedisBroker

dramatiq.set_broker(RedisBroker(url=driver.URL))
note = dramatiq.actor(actor_name="note", queue_name=driver.QUEUE)(work.note)

CALM = 0.2, 1.2  # seconds; it polls, and more rarely after a while of nothing


def make() -> Callable[[str], object]:
    """Each thread takes a connection from the broker's pool for each call."""
    return note.send


if __name__ == "__main__":
    driver.main("drive_dramatiq")
