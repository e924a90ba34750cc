"""TaskProcesses: the processes of one listener that run its tasks, most of them forked ahead.

A listener has a task process forked before the task comes, by its fork server or by itself (see
forks.py). While tasks are short, it has several forked in a row. When no task has come for a
minute, it ends all waiting processes but one, and the fork server until the next task.

A listener that never gets a task needs no fork server. So it forks the process for its first task
itself, unless code of the user's runs in it.

A warm process has also imported the handler. A waiting process exits when the listener closes the
handshake.

If queues have different handlers, a warm process takes only tasks of the handler that it has
imported, because an import may change the process. Another process takes any task.
"""

from __future__ import annotations

import errno
import functools
import logging
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from blueque.node.forks import ForkServer
from blueque.node.reuse import Reusable, Reuse, TaskProcess
from blueque.spool.spool import Spool
from blueque.system import process, signals
from blueque.task_process import fork_server, handshake, main

log = logging.getLogger("blueque")

LONG_AGO = float("-inf")
UNNEEDED = 60.0  # seconds without a task after which all but one of them go
COLD = 60.0  # seconds for which none prepares its work after one has died of it
TRIES = 6  # to get one for a task
ONCE = Reuse()  # a process takes one task
BURST = 8  # how many are forked in a row for short tasks

# Waits up to so many seconds, and does what is due meanwhile: `Waiting.wait`.
Pause: TypeAlias = Callable[[float], object]


class Work(NamedTuple):
    """What a slot runs.

    life: the function that a task process runs from its fork to its exit status. It gets the spool,
        the handshake, and the queue whose handler to import, or None; see `task_process.main`.
    is_warm: whether a process imports the handler before there is a task.
    kinds: for each queue, the first queue with the same handler; empty: all have one handler.
    burst: how many processes are forked in a row for short tasks.
    until_empty: leave when there is nothing to reserve.
    reuse: how many tasks a process takes, by queue; one, for a queue that is not there.
    server: for the fork server of a slot; None: the listener forks all its task processes itself.
    forks_first: the listener forks the process for its first task itself. False: code of the user's
        runs in the listener, or is to run in the fork server.
    """

    life: Callable[[Spool, int, str | None], int]
    is_warm: bool = True
    kinds: Mapping[str, str] = MappingProxyType({})
    burst: int = BURST
    until_empty: bool = False
    reuse: Mapping[str, Reuse] = MappingProxyType({})
    server: fork_server.Orders | None = None
    forks_first: bool = True


class TaskProcesses:
    """The task processes of one listener.

    become: the function that a task process runs which the listener has forked. It gets its end of
        the handshake, and the queue whose handler to import, or None, and returns the exit status.
    """

    def __init__(
        self,
        spool: Spool,
        queues: Sequence[str],
        work: Work,
        become: Callable[[int, str | None], int],
    ) -> None:
        self._spool, self._work, self._become = spool, work, become
        self._kinds = {queue: work.kinds.get(queue, queues[0]) for queue in queues}
        self._kind = queues[0]  # of our last task; before the first, the only one that there is
        is_only = len({*self._kinds.values()}) == 1
        self._prepares = self._kind if is_only else None  # the handler that the next ones import
        self._cold_until = 0.0
        self._taken_at = LONG_AGO
        self._is_in_demand = False  # two were taken within `UNNEEDED`
        self.are_tasks_short = False
        self._server = None if work.server is None else ForkServer(work.server, self._busy)
        # The descriptor that tells that `reap` should be called, as long as there is one.
        self.answering = [] if self._server is None else self._server.answering
        self._error = 0  # that kept the fork server from forking, as errno
        self._waiting: list[TaskProcess] = []
        self.running: int | None = None  # the pid of the one that runs our task, not to be reaped
        # the one that was taken last, if it may take another task
        self.reusable: Reusable | None = None
        self.left_alone: set[int] = set()  # of tasks of ours that another listener has adopted

    def start(self) -> None:
        """Start the fork server, if there is to be one and none has been needed so far."""
        if self._server is not None and self._server.is_resting:
            self._server.start()

    @property
    def has_preloads(self) -> bool:
        """Whether there are modules to import that all task processes are to have."""
        return self._work.server is not None and bool(self._work.server.preload)

    def is_preloading(self) -> bool:
        """Tell whether these modules are still imported."""
        return self.has_preloads and self._server is not None and self._server.is_starting

    @property
    def refusal(self) -> str | None:
        """Why one of these modules cannot be imported."""
        return None if self._server is None else self._server.refusal

    def take(
        self, queue: str, pause: Pause, devices: str = "", memory_limit: int | None = None
    ) -> TaskProcess:
        """Return a process for a task of that queue, forked now if none waits. Raises OSError.

        devices: what the task has been given that is numbered, see `Claim.devices`.
        memory_limit: of the task. What earlier tasks have left in a process counts against it.
        """
        kind = self._kinds.get(queue, "")
        # If two tasks in a row have the same handler, the next one may have it, too.
        self._prepares = kind if kind == self._kind else None
        if self.answering:
            self._collect()
        may_ask, self._error = True, 0
        for _ in range(TRIES):
            while self._drop_dead(self._waiting[:1]):
                pass
            unfit = [
                one for one in self._waiting if not self._is_fit(one, queue, devices, memory_limit)
            ]
            self._dismiss(unfit)
            if self._waiting:
                break
            if not ((self._server and self._server.asked) or (may_ask and self._ask(1))):
                self._fork(1)
                continue
            may_ask = self._await_answer(pause)  # another one would make the task wait again
            if error := self._take_error():
                raise error
        else:
            raise OSError(errno.EAGAIN, "task processes end as soon as they are forked")
        self._kind = kind
        now = time.monotonic()
        self._taken_at, self._is_in_demand = now, now < self._taken_at + UNNEEDED
        taken = self._waiting.pop(0)
        self.running = taken.pid
        self.reusable = self._get_reusable(taken, queue, devices)
        return taken

    def _is_fit(
        self, waiting: TaskProcess, queue: str, devices: str, memory_limit: int | None
    ) -> bool:
        """Tell whether the process may run a task of that queue."""
        past = waiting.past
        if waiting.prepared not in (None, self._kinds.get(queue, "")):
            return False
        return past is None or (
            past.tasks < self._get_reuse(queue).tasks
            and time.monotonic() < past.until
            and past.devices == devices
            and past.leaves_enough_of(memory_limit)
        )

    def _get_reuse(self, queue: str) -> Reuse:
        return self._work.reuse.get(queue, ONCE)

    def _get_reusable(self, taken: TaskProcess, queue: str, devices: str) -> Reusable | None:
        past, reuse = taken.past, self._get_reuse(queue)
        if (past.tasks if past is not None else 0) + 1 >= reuse.tasks:
            return None
        until = time.monotonic() + reuse.seconds if past is None else past.until
        return Reusable(taken._replace(prepared=self._kind), until, devices)

    def take_back(self, reusable: Reusable) -> None:
        """Have a process that has ended its task wait for the next."""
        self._waiting.insert(0, reusable.next())
        self.reusable = None

    def end_reused(self) -> None:
        """End the waiting processes that have run a task."""
        self._dismiss([waiting for waiting in self._waiting if waiting.past is not None])

    def fork_ahead(self) -> None:
        """Have task processes forked if none waits."""
        if self.answering:
            self._collect()
        if self._waiting:
            return
        forks_itself = self._work.forks_first and self._taken_at == LONG_AGO
        if not forks_itself:
            self.start()
        if self._server and (self._server.asked or self._server.is_starting):
            return  # `reap` is called when it has started
        count = self._work.burst if self.are_tasks_short and self._is_in_demand else 1
        if forks_itself or not self._ask(count):
            try:
                self._fork(count)
            except OSError:  # the fork failed; the next task will wait for a process
                pass

    def reap(self) -> None:
        """Reap the children that have ended, except the one that runs our task: its end has to be
        examined first.
        """
        is_starting = self._server is not None and self._server.is_starting
        if self.answering:
            self._collect()
        if is_starting and self._server is not None and not self._server.is_starting:
            self.fork_ahead()
        # Before it is known which children are forked for us, they would pass for strays.
        if not (self._server and self._server.asked):
            # One that ran our task once, and that another listener has adopted, is among them.
            kept = process.reap_strays(self._busy(), self._note_ending)
            if kept not in (None, self.running):
                self._drop_dead(self._waiting)
                self.reap()

    def strays(self, pause: Pause) -> set[int]:
        """Return the children that have come to us from our task."""
        while self._server and self._server.asked:
            self._await_answer(pause)  # which children are forked for us
        found = process.children(os.getpid()) - self._busy()
        if self._server is not None:
            found -= {child for child in found if self._server.has_been(child)}
        # What another listener has adopted from us, and what came of that, belongs to it.
        return {child for child in found if process.session(child) not in self.left_alone}

    def _busy(self) -> set[int]:
        """Return the processes that run a task of ours or wait for one."""
        return {self.running or 0, *(waiting.pid for waiting in self._waiting)}

    def _note_ending(self, pid: int, ticks: int, reaped: process.Reaped) -> None:
        if self._server is not None and self._server.has_been(pid):
            self._server.note_end(pid, reaped.code)
        else:
            self._spool.note_ending(pid, ticks, reaped)

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
        """End all waiting processes, and the fork server."""
        if self._server is not None:
            self._collect()
            self._server.close()
        self._dismiss(self._waiting)

    def look_over(self) -> None:
        """End all waiting processes but one, and the fork server, if no task has come for a while; and
        a fork server that does not answer.
        """
        if self._server is not None:
            self._server.note_late()
        now = time.monotonic()
        if now >= self._taken_at + UNNEEDED:
            self._dismiss(self._waiting[1:])
            if self._server is not None and self._waiting:
                self._server.rest(UNNEEDED)
        self._dismiss([one for one in self._waiting if one.past and now >= one.past.until])

    def _to_prepare(self) -> str | None:
        """Return the queue whose handler the next ones import."""
        is_warm = self._work.is_warm and time.monotonic() >= self._cold_until
        return self._prepares if is_warm else None

    def _ask(self, count: int) -> bool:
        """Ask the fork server for so many; False: there is none now."""
        return self._server is not None and self._server.ask(self._to_prepare(), count)

    def _collect(self) -> None:
        """Take what the fork server has forked."""
        for asked, forked in () if self._server is None else self._server.answers():
            self._error = 0 if forked.pids else forked.error
            for end, pid in zip_longest(asked.handshakes, forked.pids):
                if pid is None or not process.is_child(pid):
                    os.close(end)
                else:
                    identity = process.identity(pid)
                    self._waiting.append(TaskProcess(pid, end, identity, asked.prepared))

    def _take_error(self) -> OSError | None:
        """Return, once, why the fork server could not fork."""
        error, self._error = self._error, 0
        return OSError(error, os.strerror(error)) if error else None

    def _await_answer(self, pause: Pause) -> bool:
        """Wait until the fork server answers. False: it is given up."""
        assert self._server is not None
        while self._server.asked and (left := self._server.until - time.monotonic()) > 0:
            pause(left)  # which collects it; a signal or a duty cuts it short
        self._server.note_late()
        return self._server.pid is not None

    def _fork(self, count: int) -> None:
        """Fork until so many wait. Raises OSError."""
        prepared = self._to_prepare()
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

    def _drop_dead(self, some: Sequence[TaskProcess]) -> bool:
        """Let go of those that have been killed while they waited. Return whether there were any."""
        before = len(self._waiting)
        for waiting in list(some):
            if process.peek_ending(waiting.pid) is not None:
                self._waiting.remove(waiting)
                os.close(waiting.handshake)
                how = process.describe(process.wait_for(waiting.pid))
                if waiting.past is None:
                    self.cool_down(waiting.pid, how)
                else:
                    log.info("pid=%d ended while it waited for another task (%s)", waiting.pid, how)
        return len(self._waiting) < before

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
        if self.reusable is not None:
            self.reusable.close()
        if self._server is not None:
            self._server.after_fork_in_child()
        self._waiting = []
        return self._become(theirs, prepared)
