"""ForkingRunner: a listener inside your own program, as in 1.0.0."""

from __future__ import annotations

import functools
import logging
import os
import time
from collections.abc import Callable
from typing import Any, NoReturn

from blueque.client import Client
from blueque.errors import NotOwner
from blueque.model.task import Task
from blueque.system import process

log = logging.getLogger("blueque")

PACE = 0.1  # seconds between two looks at a process that a former listener has left


class ForkingRunner:
    """Takes tasks from a queue and runs `task_callback(task)` for each in a process of its own.

    It forks and waits, as in 1.0.0. For limits, logs, progress, orders and heartbeats, run
    `blueque-listener`. As for any fork, the program must be single-threaded at that time.
    task_callback: takes the task and returns its result. The process of the task records its start
        and end in Redis, even if this program has died meanwhile.
    """

    def __init__(self, client: Client, queue: str, task_callback: Callable[[Task], Any]) -> None:
        self._client, self._queue, self._callback = client, queue, task_callback

    def run(self) -> NoReturn:
        """Finish what dead listeners of this host have left, then take tasks for ever."""
        listener = self._client.get_listener(self._queue)
        while (task := listener.claim_orphan()) is not None:
            if task.status == "reserved":
                self._run_task(task)
            while task.status == "started" and process.is_alive(task.pid or 0, task.fields):
                time.sleep(PACE)
        while True:
            self._run_task(listener.listen())

    def fork_task(self, task: Task) -> int:
        """Fork a process that runs a reserved task and records how it ends; return its pid.

        Raises OSError.
        """
        return process.fork(functools.partial(self._live, task))

    def _run_task(self, task: Task) -> None:
        code = process.wait_for(self.fork_task(task))
        if code == 0:
            return
        try:
            self._client.get_processor(task).fail(process.describe(code))
        except NotOwner as error:  # it has recorded its end itself, or was cancelled
            log.info("%s", error)

    def _live(self, task: Task) -> int:
        """Run a task as its process."""
        os.setsid()
        processor = self._client.get_processor(task)
        processor.start(os.getpid(), process.identity(os.getpid()))
        try:
            processor.complete(self._callback(task))
        except Exception as error:
            processor.fail(error)
        finally:
            logging.shutdown()  # this process ends without the cleanup of Python
        return 0
