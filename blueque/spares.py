"""Spares: task processes that wait at their gates for tasks yet to come.

A fork is expensive twice: the child copies each page that it writes to, and so does the listener until the next fork. So
task processes are forked ahead, off the way of a task, and several in a row while tasks are short: then the listener
copies its pages once for all of them. A spare has run nothing of the user's; its gate shut, it leaves.
"""

from __future__ import annotations

import functools
import os
import signal
from collections.abc import Callable
from typing import NamedTuple

from blueque import process, signals, task_process


class Spare(NamedTuple):
    """A waiting process; `gate` is our end of its pipe: it learns from it what to do, or leaves when it is closed."""

    pid: int
    gate: int


class Spares:
    """The waiting task processes of one listener.

    become: the whole life of one, given its end of the pipe; returns its exit status.
    """

    def __init__(self, become: Callable[[int], int]) -> None:
        self._become = become
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
        while len(self._waiting) < count:
            theirs, ours = os.pipe()
            try:
                # Until it stands on its own feet, the child would take a signal that is ours, and pass it on to us.
                with signals.blocked(task_process.SIGNALS):
                    pid = process.fork(functools.partial(self._be_spare, theirs, ours))
            except OSError:
                os.close(ours)
                raise
            finally:
                os.close(theirs)
            self._waiting.append(Spare(pid, ours))

    def bury(self) -> None:
        """Let go of those that have been killed while they waited."""
        for spare in list(self._waiting):
            if process.peek_ending(spare.pid) is not None:
                self._waiting.remove(spare)
                os.close(spare.gate)
                process.reap(spare.pid)

    def dismiss(self) -> None:
        """Send all away."""
        waiting, self._waiting = self._waiting, []
        for spare in waiting:
            os.close(spare.gate)
            process.signal_group(spare.pid, signal.SIGKILL)    # it holds nothing, and may have been stopped
        for spare in waiting:
            process.reap(spare.pid)

    def _be_spare(self, theirs: int, ours: int) -> int:
        # The others' pipes too: while we held a copy of an end, its process would not notice that the listener is gone.
        for gate in [ours, *(spare.gate for spare in self._waiting)]:
            os.close(gate)
        self._waiting = []
        return self._become(theirs)
