"""TaskProcesses: the processes of one listener that run its tasks, most of them forked ahead.

A fork costs time twice: the child copies each memory page that it writes to, and so does the
listener until its next fork. So a listener forks a task process before the task comes. While tasks
are short, it forks several in a row and copies its pages once for all of them. When no task has
come for a minute, it ends all waiting processes but one. A warm process has also imported the
handler. A waiting process exits when the listener closes the handshake.

If queues have different handlers, a warm process takes only tasks of the handler that it has
imported, because an import may change the process. Another process takes any task.
"""

from __future__ import annotations

import functools
import logging
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from blueque.spool.spool import Spool
from blueque.system import process, signals
from blueque.task_process import handshake, main

log = logging.getLogger("blueque")

UNNEEDED = 60.0  # seconds without a task after which all but one of them go
COLD = 60.0  # seconds for which none prepares its work after one has died of it
BURST = 8  # how many are forked in a row for short tasks


class Work(NamedTuple):
    """What a slot runs.

    life: the function that a task process runs from its fork to its exit status. It gets the spool,
        the handshake, and the queue whose handler to import, or None; see `task_process.main`.
    is_warm: whether a process imports the handler before there is a task.
    kinds: for each queue, the first queue with the same handler; empty: all have one handler.
    burst: how many processes are forked in a row for short tasks.
    until_empty: leave when there is nothing to reserve.
    """

    life: Callable[[Spool, int, str | None], int]
    is_warm: bool = True
    kinds: Mapping[str, str] = MappingProxyType({})
    burst: int = BURST
    until_empty: bool = False


class TaskProcess(NamedTuple):
    """A process that waits for a task. handshake: our end of it.

    identity: as `process.identity` tells. prepared: the queue whose handler it has imported, if it
        has.
    """

    pid: int
    handshake: int
    identity: dict[str, str | int]
    prepared: str | None = None


class TaskProcesses:
    """The task processes of one listener.

    become: the function that a task process runs. It gets its end of the handshake, and the queue
        whose handler to import, or None, and returns the exit status.
    is_reaper: whether this listener reaps all children of its process, not only task processes.
    """

    def __init__(
        self,
        spool: Spool,
        queues: Sequence[str],
        work: Work,
        become: Callable[[int, str | None], int],
        is_reaper: bool,
    ) -> None:
        self._spool, self._work, self._become = spool, work, become
        self._is_reaper = is_reaper
        self._kinds = {queue: work.kinds.get(queue, queues[0]) for queue in queues}
        self._kind = queues[0]  # of our last task; before the first, the only one that there is
        is_only = len({*self._kinds.values()}) == 1
        self._prepares = self._kind if is_only else None  # the handler that the next ones import
        self._cold_until = 0.0
        self._taken_at = float("-inf")
        self._is_in_demand = False  # two were taken within `UNNEEDED`
        self.are_tasks_short = False
        self._waiting: list[TaskProcess] = []
        self.running: int | None = None  # the pid of the one that runs our task, not to be reaped
        self.left_alone: set[int] = set()  # of tasks of ours that another listener has adopted

    def take(self, queue: str) -> TaskProcess:
        """Return a process for a task of that queue, forked now if none waits. Raises OSError."""
        kind = self._kinds.get(queue, "")
        self._dismiss(
            [waiting for waiting in self._waiting if waiting.prepared not in (None, kind)]
        )
        # If two tasks in a row have the same handler, the next one may have it, too.
        self._prepares = kind if kind == self._kind else None
        self._drop_dead()
        self._fork(1)
        self._kind = kind
        now = time.monotonic()
        self._taken_at, self._is_in_demand = now, now < self._taken_at + UNNEEDED
        taken = self._waiting.pop(0)
        self.running = taken.pid
        return taken

    def fork_ahead(self) -> None:
        """Fork task processes if none waits."""
        if not self._waiting:
            try:
                self._fork(self._work.burst if self.are_tasks_short and self._is_in_demand else 1)
            except OSError:  # the fork failed; the next task will wait for a process
                pass

    def reap(self) -> None:
        """Reap the children that have ended, except the one that runs our task: its end has to be
        examined first.
        """
        self._drop_dead()
        if self._is_reaper:
            # One that ran our task once, and that another listener has adopted, is among them.
            keep = {self.running or 0, *(waiting.pid for waiting in self._waiting)}
            process.reap_strays(keep, self._spool.note_ending)

    def strays(self) -> set[int] | None:
        """Return the children that have come to us from our task; None in a program whose other
        children are not ours.
        """
        if not self._is_reaper:
            return None
        own = {self.running, *(waiting.pid for waiting in self._waiting)}
        found = process.children(os.getpid()) - own
        # What another listener has adopted from us, and what came of that, belongs to it.
        return {child for child in found if process.session(child) not in self.left_alone}

    def cool_down(self, pid: int, how: str) -> None:
        """Import no handler ahead for a while, because a process died before it had a task.

        The next task then imports the handler itself and fails with its error. Without this pause,
        the listener would fork processes that die again and again.
        """
        now = time.monotonic()
        if self._work.is_warm and now >= self._cold_until:
            log.warning(
                "pid=%d ended before it had begun a task (%s): importing nothing ahead for %g s",
                pid,
                how,
                COLD,
            )
        self._cold_until = now + COLD

    def dismiss(self) -> None:
        """End all waiting processes."""
        self._dismiss(self._waiting)

    def dismiss_unneeded(self) -> None:
        """End all waiting processes but one if no task has come for a while."""
        if time.monotonic() >= self._taken_at + UNNEEDED:
            self._dismiss(self._waiting[1:])

    def _fork(self, count: int) -> None:
        """Fork until so many wait. Raises OSError."""
        is_warm = self._work.is_warm and time.monotonic() >= self._cold_until
        prepared = self._prepares if is_warm else None
        while len(self._waiting) < count:
            theirs, ours = handshake.make()
            try:
                # Until it has its own handlers, the child would take a signal that is ours, and
                # pass it on to us.
                with signals.blocked(main.SIGNALS):
                    pid = process.fork(functools.partial(self._be_child, theirs, ours, prepared))
            except OSError:
                os.close(ours)
                raise
            finally:
                os.close(theirs)
            self._waiting.append(TaskProcess(pid, ours, process.identity(pid), prepared))

    def _drop_dead(self) -> None:
        """Let go of those that have been killed while they waited."""
        for waiting in list(self._waiting):
            if process.peek_ending(waiting.pid) is not None:
                self._waiting.remove(waiting)
                os.close(waiting.handshake)
                self.cool_down(waiting.pid, process.describe(process.wait_for(waiting.pid)))

    def _dismiss(self, some: Sequence[TaskProcess]) -> None:
        some = list(some)
        self._waiting = [waiting for waiting in self._waiting if waiting not in some]
        for dismissed in some:
            os.close(dismissed.handshake)
            # it holds nothing, and may have been stopped
            process.signal_group(dismissed.pid, signal.SIGKILL)
        for dismissed in some:
            process.reap(dismissed.pid)
            self._spool.remove_blank(dismissed.pid)

    def _be_child(self, theirs: int, ours: int, prepared: str | None) -> int:
        # The handshakes of the others too: while we held a copy of an end, its process would not
        # notice that the listener is gone.
        for end in [ours, *(waiting.handshake for waiting in self._waiting)]:
            os.close(end)
        self._waiting = []
        return self._become(theirs, prepared)
