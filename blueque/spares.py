"""Spares: task processes that wait at their gates for tasks yet to come.

A fork is expensive twice: the child copies each page that it writes to, and so does the listener until the next fork. So
task processes are forked ahead, off the way of a task, and several in a row while tasks are short: then the listener
copies its pages once for all of them. A warm one has prepared its work, too: imported the handler. Its gate shut, it leaves.
"""

from __future__ import annotations

import functools
import logging
import os
import signal
import time
from collections.abc import Callable
from typing import NamedTuple

from blueque import gate, process, signals, task_process

log = logging.getLogger("blueque")

COLD = 60.0                                            # seconds for which none prepares its work after one has died of it


class Spare(NamedTuple):
    """A waiting process; `gate` is our end: it learns from it what to do, or leaves when it is closed.

    identity: as `process.identity` tells.
    """

    pid: int
    gate: int
    identity: dict[str, str | int]


class Spares:
    """The waiting task processes of one listener.

    become: the whole life of one, given its end of the gate, and whether to prepare its work; returns its exit status.
    """

    def __init__(self, become: Callable[[int, bool], int], is_warm: bool) -> None:
        self._become, self._is_warm = become, is_warm
        self._cold_until = 0.0
        self._waiting: list[Spare] = []

    @property
    def pids(self) -> set[int]:
        return {spare.pid for spare in self._waiting}

    def take(self) -> Spare:
        """Return one, forked now if there is none. Raises OSError."""
        self.bury()
        self.fill(1)
        return self._waiting.pop(0)

    def fill(self, count: int) -> None:
        """Fork until so many wait. Raises OSError."""
        is_warm = self._is_warm and time.monotonic() >= self._cold_until
        while len(self._waiting) < count:
            theirs, ours = gate.make()
            try:
                # Until it stands on its own feet, the child would take a signal that is ours, and pass it on to us.
                with signals.blocked(task_process.SIGNALS):
                    pid = process.fork(functools.partial(self._be_spare, theirs, ours, is_warm))
            except OSError:
                os.close(ours)
                raise
            finally:
                os.close(theirs)
            self._waiting.append(Spare(pid, ours, process.identity(pid)))

    def bury(self) -> None:
        """Let go of those that have been killed while they waited."""
        for spare in list(self._waiting):
            if process.peek_ending(spare.pid) is not None:
                self._waiting.remove(spare)
                os.close(spare.gate)
                self.cool_down(spare.pid, process.describe(process.wait_for(spare.pid)))

    def cool_down(self, pid: int, how: str) -> None:
        """Prepare no work ahead for a while: one has died before it had any, and the next might, too.

        What an import does is then done by a task, which fails with it, and nobody forks for nothing again and again.
        """
        now = time.monotonic()
        if self._is_warm and now >= self._cold_until:
            log.warning("pid=%d ended before it had begun a task (%s): importing nothing ahead for %g s", pid, how, COLD)
        self._cold_until = now + COLD

    def dismiss(self) -> set[int]:
        """Send all away, and return which they were."""
        waiting, self._waiting = self._waiting, []
        for spare in waiting:
            os.close(spare.gate)
            process.signal_group(spare.pid, signal.SIGKILL)    # it holds nothing, and may have been stopped
        for spare in waiting:
            process.reap(spare.pid)
        return {spare.pid for spare in waiting}

    def _be_spare(self, theirs: int, ours: int, is_warm: bool) -> int:
        # The others' gates too: while we held a copy of an end, its process would not notice that the listener is gone.
        for end in [ours, *(spare.gate for spare in self._waiting)]:
            os.close(end)
        self._waiting = []
        return self._become(theirs, is_warm)
