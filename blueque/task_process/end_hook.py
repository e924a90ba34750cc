"""The process that calls the hook `on_end` for one task that has ended, and then ends.

A fresh interpreter, started by the listener that has recorded the end; see node/end_hooks.py.
"""

from __future__ import annotations

import json
import logging
import os
import resource
import signal
import sys
from typing import NamedTuple

from blueque.client import Client
from blueque.errors import BluequeError
from blueque.model import units
from blueque.model.states import FINISHED
from blueque.system import process
from blueque.system.log_format import log_to_stderr
from blueque.task_process.handlers import place_of
from blueque.task_process.hooks import ON_END, load

log = logging.getLogger("blueque")

LAST = 5.0  # seconds between TimeoutError in a hook and its end
ORDERS = "BLUEQUE_END_HOOK"


class Orders(NamedTuple):
    """What the process needs.

    hooks: the name of the class. attempt: that has ended; a later one may end soon after.
    redis_url: of the listener. task_url: what its tasks get.
    paths: its import path. seconds, data: how long it may take, and how many bytes of memory.
    """

    hooks: str
    task: str
    attempt: int
    redis_url: str
    task_url: str | None
    log_format: str
    paths: list[str]
    seconds: float
    data: int


def main() -> int:
    """Call the hook, if the task has ended for good; return the exit status."""
    orders = Orders(*json.loads(process.read_from_memory(int(os.environ.pop(ORDERS)))))
    log_to_stderr(orders.log_format)
    sys.path[:] = orders.paths
    units.connect_as_listener(orders.task_url)
    _limit(orders.seconds, orders.data)
    try:
        client = Client(orders.redis_url)
        task = client.get_task(orders.task)
        client.close()
    except BluequeError as error:
        log.error("hook %s task=%s is not called: %s", ON_END, orders.task, error)
        return 1
    if task.status not in FINISHED or task.attempt != orders.attempt:
        return 0  # it runs again, or has done so meanwhile
    try:
        load(orders.hooks).on_end(task)
    except BaseException as error:
        what = f"{type(error).__name__}: {error}{place_of(error)}"
        log.error("hook %s task=%s raised %s", ON_END, orders.task, what)
        return 1
    return 0


def _limit(seconds: float, data: int) -> None:
    """Hold this process to its limits."""

    def end(*_: object) -> None:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, LAST)
        raise TimeoutError(f"it has run for {seconds:g} s")

    signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    least = data if most == resource.RLIM_INFINITY else min(data, most)
    resource.setrlimit(resource.RLIMIT_DATA, (least, least))


if __name__ == "__main__":
    process.leave_with(main)
