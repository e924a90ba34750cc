"""EndHooks: a slot's side of the hook `on_end`, see task_process/end_hook.py."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
from collections.abc import Callable

from blueque.model.task import Task
from blueque.system import process
from blueque.task_process import end_hook
from blueque.task_process.end_hook import Orders

log = logging.getLogger("blueque")

MOST = 4  # hooks of one slot that run at a time
TIME, MEMORY = 60.0, 2**30  # seconds and bytes of data of each
STEP = 0.05
_SIGNALS = sorted(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP})


class EndHooks:
    """Starts a process for each task that has ended here.

    hooks: the name of the class. redis_url, task_url, log_format: see `Orders`.
    """

    def __init__(self, hooks: str, redis_url: str, task_url: str | None, log_format: str) -> None:
        self._orders = Orders(hooks, "", 0, redis_url, task_url, log_format, [], TIME, MEMORY)
        self._running: set[int] = set()

    def start(self, ended: Task, pause: Callable[[float], object], sessions: set[int]) -> None:
        """Start the hook of a task whose attempt has ended.

        pause: waits a number of seconds; it is called while too many others run.
        sessions: gets those of the hooks that run.
        """
        while len(self._count(sessions)) >= MOST:
            pause(STEP)
        task = ended.id
        orders = self._orders._replace(task=task, attempt=ended.attempt or 0, paths=sys.path)
        arguments = [sys.executable, "-P", "-m", end_hook.__name__, task]
        try:
            kept = process.keep_in_memory(json.dumps(orders))  # it has a password
            try:
                pid = os.posix_spawn(
                    sys.executable,
                    arguments,
                    {**os.environ, end_hook.ORDERS: str(kept)},
                    file_actions=[(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)],
                    setsid=True,
                    setsigmask=(),
                    setsigdef=_SIGNALS,
                )
            finally:
                os.close(kept)
        except OSError as error:
            log.error("cannot start the hook on_end task=%s: %s", task, error.strerror)
        else:
            self._running.add(pid)
            sessions.add(pid)

    def wait(self) -> None:
        """Wait until those that run have ended: in a container they would end with the listener."""
        for pid in self._running:
            process.reap(pid)

    def _count(self, sessions: set[int]) -> set[int]:
        """Return those that run; reap the others."""
        for pid in [*self._running]:
            if not process.is_child(pid) or process.peek_ending(pid) is not None:
                process.reap(pid)
                self._running.discard(pid)
                sessions.discard(pid)
        return self._running
