"""Drives Blueque 1.0.0."""

from __future__ import annotations

from collections.abc import Callable

import driver

from blueque.client import Client

CALM = 0.2, 1.2  # seconds; it polls each second, which shorter ones would follow


def make() -> Callable[[str], object]:
    return Client(driver.URL).get_queue(driver.QUEUE).enqueue


def work() -> None:
    """Run tasks for ever."""
    import work as tasks
    from blueque.forking_runner import ForkingRunner

    ForkingRunner(Client(driver.URL), driver.QUEUE, tasks.handle).run()


if __name__ == "__main__":
    driver.main("drive_blueque_1_0_0")
