"""EndHooks: a slot's side of the hook `on_end`, see task_process/end_hook.py."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import NamedTuple

from blueque.model.task import Task
from blueque.system import process
from blueque.task_process import end_hook
from blueque.task_process.end_hook import Orders

log = logging.getLogger("blueque")

MOST = 4  # hooks of one slot that run at a time
TIME, MEMORY = 60.0, 2**30  # seconds and bytes of data of each
LATE = 10.0  # seconds after its time until a hook is killed: it begins late, and has `LAST` to end
STEP = 0.05
_SIGNALS = sorted(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP})


class _Hook(NamedTuple):
    """A hook that runs. start: of its process, in ticks. until: on the monotonic clock."""

    task: str
    start: int | None
    until: float


class EndHooks:
    """Starts a process for each task that has ended here.

    hooks: the name of the class. redis_url, task_url, log_format: see `Orders`.
    """

    def __init__(self, hooks: str, redis_url: str, task_url: str | None, log_format: str) -> None:
        self._orders = Orders(hooks, "", 0, redis_url, task_url, log_format, [], TIME, MEMORY)
        self._running: dict[int, _Hook] = {}

    def start(self, ended: Task, pause: Callable[[float], object], sessions: set[int]) -> None:
        """Start the hook of a task whose attempt has ended.

        pause: waits a number of seconds; it is called while too many others run.
        sessions: gets those of the hooks that run.
        """
        while self.are_too_many(sessions):
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
            until = time.monotonic() + TIME + LATE
            self._running[pid] = _Hook(task, process.start_ticks(pid), until)
            sessions.add(pid)

    def are_too_many(self, sessions: set[int]) -> bool:
        """Tell whether another hook would have to wait."""
        if len(self._running) >= MOST:
            self.look_over(sessions)
        return len(self._running) >= MOST

    def look_over(self, sessions: set[int]) -> None:
        """Let go of those that have ended, and kill those whose time is over: the limit of their own
        process does nothing while it is stuck in C code.
        """
        for pid, hook in [*self._running.items()]:
            # else it was reaped, and another child may have its pid
            is_there = process.is_child(pid) and process.start_ticks(pid) == hook.start
            if is_there and process.peek_ending(pid) is None:
                if time.monotonic() >= hook.until:
                    log.error("hook on_end task=%s does not end: killing pid=%d", hook.task, pid)
                    process.signal_group(pid, signal.SIGKILL)
                    self._running.pop(pid)  # even if that does not end it
                continue
            if is_there:
                process.reap(pid)
            self._running.pop(pid)
            sessions.discard(pid)

    def wait(self) -> None:
        """Wait until those that run have ended: in a container they would end with the listener."""
        self.look_over(set())
        for pid, hook in self._running.items():
            descriptor = os.pidfd_open(pid)
            process.wait_readable([descriptor], hook.until - time.monotonic())
            os.close(descriptor)
        self.look_over(set())
