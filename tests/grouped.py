"""Groups as their listeners and schedulers leave them: run the tasks in line, and settle the groups."""

from __future__ import annotations

import time

from blueque import Client
from blueque.listener.listener import Listener
from blueque.model.units import Timing
from blueque.recovery.group_settling import settle_groups_step


def run_all(client: Client, queue: str) -> int:
    """Complete all tasks in line of a queue, as a listener does, and return how many."""
    listener, count = client.get_listener(queue), 0
    assert isinstance(listener, Listener)
    listener.register(Timing())
    while (task := listener.take()) is not None:
        processor = client.get_processor(task)
        processor.start(77)
        processor.complete("done")
        count += 1
    listener.leave()
    return count


def settle(client: Client, seconds: float = 0.0) -> None:
    """Do what listeners and schedulers do for groups, so many seconds from now."""
    while settle_groups_step(client.connections, time.time() + seconds):
        pass


def seen(client: Client, group: str = "n1") -> tuple[str, int, int, int]:
    """Return the state of a group, and how many members it has: all, open ones, bad ones."""
    found = client.group(group).progress()
    return found.state, found.members, found.open, found.bad
