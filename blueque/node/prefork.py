"""Spares: task processes that wait at their gates for tasks yet to come.

A fork is expensive twice: the child copies each page that it writes to, and so does the listener
until the next fork. So task processes are forked ahead, off the way of a task, and several in a row
while tasks are short: then the listener copies its pages once for all of them. All but one go when
    no task has come for a minute. A warm one has prepared its
work, too: imported the handler. Its gate shut, it leaves.

Where queues have different handlers, a warm one is for tasks of one of them only: what an import
has done to a process is not for another's task. One that is not warm is for any task.
"""

from __future__ import annotations

import functools
import logging
import os
import signal
import time
from collections.abc import Callable, Collection
from typing import NamedTuple

from blueque.system import process, signals
from blueque.task_process import handshake as gate
from blueque.task_process import main

log = logging.getLogger("blueque")

UNNEEDED = 60.0  # seconds without a task after which all but one of them go
COLD = 60.0  # seconds for which none prepares its work after one has died of it


class Spare(NamedTuple):
    """A waiting process; `gate` is our end: it learns from it what to do, or leaves when it is
    closed.

    identity: as `process.identity` tells. prepared: the queue whose handler it has imported, if it
        has.
    """

    pid: int
    gate: int
    identity: dict[str, str | int]
    prepared: str | None = None


class Spares:
    """The waiting task processes of one listener.

    become: the whole life of one, given its end of the gate, and the queue whose work to prepare,
        if any; returns its exit status.
    is_warm: whether any prepares its work.
    prepares: the queue whose work those prepare that are forked next; None: none does.
    """

    def __init__(
        self, become: Callable[[int, str | None], int], is_warm: bool, prepares: str | None
    ) -> None:
        self._become, self._is_warm, self.prepares = become, is_warm, prepares
        self._cold_until = 0.0
        self._taken_at = float("-inf")
        self.are_in_demand = False  # two were taken within `UNNEEDED`
        self._waiting: list[Spare] = []

    @property
    def pids(self) -> set[int]:
        return {spare.pid for spare in self._waiting}

    def take(self) -> Spare:
        """Return one, forked now if there is none. Raises OSError."""
        self.bury()
        self.fill(1)
        now = time.monotonic()
        self._taken_at, self.are_in_demand = now, now < self._taken_at + UNNEEDED
        return self._waiting.pop(0)

    def fill(self, count: int) -> None:
        """Fork until so many wait. Raises OSError."""
        prepared = self.prepares if self._is_warm and time.monotonic() >= self._cold_until else None
        while len(self._waiting) < count:
            theirs, ours = gate.make()
            try:
                # Until it stands on its own feet, the child would take a signal that is ours, and
                # pass it on to us.
                with signals.blocked(main.SIGNALS):
                    pid = process.fork(functools.partial(self._be_spare, theirs, ours, prepared))
            except OSError:
                os.close(ours)
                raise
            finally:
                os.close(theirs)
            self._waiting.append(Spare(pid, ours, process.identity(pid), prepared))

    def bury(self) -> None:
        """Let go of those that have been killed while they waited."""
        for spare in list(self._waiting):
            if process.peek_ending(spare.pid) is not None:
                self._waiting.remove(spare)
                os.close(spare.gate)
                self.cool_down(spare.pid, process.describe(process.wait_for(spare.pid)))

    def cool_down(self, pid: int, how: str) -> None:
        """Prepare no work ahead for a while: one has died before it had any, and the next might,
        too.

        What an import does is then done by a task, which fails with it, and nobody forks for
        nothing again and again.
        """
        now = time.monotonic()
        if self._is_warm and now >= self._cold_until:
            log.warning(
                "pid=%d ended before it had begun a task (%s): importing nothing ahead for %g s",
                pid,
                how,
                COLD,
            )
        self._cold_until = now + COLD

    def dismiss(self, but: Collection[str | None] = ()) -> set[int]:
        """Send them away, and return which they were. but: those that have prepared the work of one
        of these stay.
        """
        return self._send_away([spare for spare in self._waiting if spare.prepared not in but])

    def dismiss_unneeded(self) -> set[int]:
        """Send all but one away if there has been no task for a while, and return which they were."""
        if time.monotonic() < self._taken_at + UNNEEDED:
            return set()
        return self._send_away(self._waiting[1:])

    def _send_away(self, some: list[Spare]) -> set[int]:
        self._waiting = [spare for spare in self._waiting if spare not in some]
        for spare in some:
            os.close(spare.gate)
            # it holds nothing, and may have been stopped
            process.signal_group(spare.pid, signal.SIGKILL)
        for spare in some:
            process.reap(spare.pid)
        return {spare.pid for spare in some}

    def _be_spare(self, theirs: int, ours: int, prepared: str | None) -> int:
        # The others' gates too: while we held a copy of an end, its process would not notice that
        # the listener is gone.
        for end in [ours, *(spare.gate for spare in self._waiting)]:
            os.close(end)
        self._waiting = []
        return self._become(theirs, prepared)
