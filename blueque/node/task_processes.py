"""TaskProcesses: the processes of one listener that run its tasks.

The keeper of the listener starts with the first task and forks them, one in advance. A warm process
has also imported the handler. A waiting process exits when the listener closes the handshake.

If queues have different handlers, a warm process takes only tasks of the handler that it has
imported, because an import may change the process. Another process takes any task.
"""

from __future__ import annotations

import errno
import functools
import logging
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, NoReturn, TypeAlias

from blueque.node.keeper import LAST, Ended, Keeper
from blueque.node.reuse import Reusable, Reuse, TaskProcess
from blueque.spool.spool import Spool
from blueque.system import process, signals
from blueque.task_process import keeper, main

log = logging.getLogger("blueque")

COLD = 60.0  # seconds for which none prepares its work after one has died of it
TRIES = 6  # to get one for a task
ONCE = Reuse()  # a process takes one task
LOOK = 0.1  # seconds between two looks at what the keeper has told us

# Waits up to so many seconds, and does what is due meanwhile: `Waiting.wait`.
Pause: TypeAlias = Callable[[float], object]


class Work(NamedTuple):
    """What a slot runs.

    orders: for the keeper, without its end of a socket.
    is_warm: whether a process imports the handler before there is a task.
    is_early: whether one waits before the first task of the slot. A keeper and a waiting process
        take as much memory as the slot, so a slot that never has a task has none.
    kinds: for each queue, the first queue with the same handler; empty: all have one handler.
    until_empty: leave when there is nothing to reserve.
    reuse: how many tasks a process takes, by queue; a missing queue means one.
    """

    orders: keeper.Orders
    is_warm: bool = True
    is_early: bool = False
    kinds: Mapping[str, str] = MappingProxyType({})
    until_empty: bool = False
    reuse: Mapping[str, Reuse] = MappingProxyType({})


class TaskProcesses:
    """The task processes of one listener.

    let_go: called in the child that becomes the keeper, to close what belongs to the listener.
    """

    def __init__(
        self, spool: Spool, queues: Sequence[str], work: Work, let_go: Callable[[], object]
    ) -> None:
        self._spool, self._work, self._let_go = spool, work, let_go
        self._kinds = {queue: work.kinds.get(queue, queues[0]) for queue in queues}
        self._kind = queues[0]  # of our last task; before the first, the only one that there is
        is_only = len({*self._kinds.values()}) == 1
        self._prepares = self._kind if is_only else None  # the handler that the next ones import
        self._cold_until = 0.0
        self._forks_ahead = work.is_early  # else from the first task on
        self._keeper = Keeper(self._fork_keeper)
        # The descriptor that tells that `reap` should be called. None while a task runs: what the keeper
        # says then can wait, and would wake the listener once more for each task.
        self.answering: list[int] = []
        self._error = 0  # that kept the keeper from forking, as errno
        self._waiting: list[TaskProcess] = []
        self._ended: dict[int, process.Reaped] = {}  # how processes have ended, by pid
        self.running: int | None = None  # the pid of the one that runs our task
        # the one that was taken last, if it may take another task
        self.reusable: Reusable | None = None
        self._dismissed = set[int]()  # pids of those that we have ended, and that may be there yet
        # whether the process of the running task has lost its keeper: what it leaves comes to us
        self._has_lost_keeper = False
        # pids of processes of ours that other listeners watch; they may come to us, too
        self._adopted = set[int]()

    def start(self) -> None:
        """Start the keeper, if there is none."""
        self._keeper.start(self.has_preloads)
        self._listen()

    def _listen(self) -> None:
        self.answering[:] = self._keeper.descriptors if self.running is None else []

    @property
    def has_preloads(self) -> bool:
        """Whether there are modules to import for all task processes."""
        return bool(self._work.orders.preload)

    def is_preloading(self) -> bool:
        """Return whether these modules are still being imported."""
        return self.has_preloads and self._keeper.is_starting

    @property
    def refusal(self) -> str | None:
        """Why one of these modules cannot be imported."""
        return self._keeper.refusal

    @property
    def trouble(self) -> str | None:
        """Why no task can have a process: none waits and keepers do not start. None: no trouble."""
        if self._waiting or not self._keeper.cannot_start:
            return None
        if not os.path.exists(sys.executable):
            return f"cannot run tasks: the interpreter {sys.executable} is gone"
        return f"cannot run tasks: their keeper {self._keeper.failure}"

    def take(
        self,
        queue: str,
        pause: Pause,
        devices: str = "",
        memory_limit: int | None = None,
        may_wait: Callable[[], bool] = lambda: True,
    ) -> TaskProcess:
        """Return a process for a task of that queue, forked now if none waits. Raises OSError.

        devices: the numbered resources of the task, see `Claim.devices`.
        memory_limit: of the task. What earlier tasks have left in a process counts against it.
        may_wait: returns whether to wait longer for a keeper.
        """
        kind = self._kinds.get(queue, "")
        # If two tasks in a row have the same handler, the next one may have it, too.
        self._prepares = kind if kind == self._kind else None
        self._forks_ahead = True
        self._collect()
        self._error = 0
        for _ in range(TRIES):
            self._drop_ended(pause)
            self._dismiss(
                [
                    one
                    for one in self._waiting
                    if not self._is_fit(one, queue, devices, memory_limit)
                ]
            )
            if self._waiting:
                break
            self._await_one(pause, may_wait)
        else:
            raise OSError(errno.EAGAIN, "task processes end as soon as they are forked")
        self._kind = kind
        taken = self._waiting.pop(0)
        self.running = taken.pid
        self._has_lost_keeper = taken.past is not None and process.parent(taken.pid) == os.getpid()
        self._listen()
        self.reusable = self._get_reusable(taken, queue, devices)
        return taken

    def _is_fit(
        self, waiting: TaskProcess, queue: str, devices: str, memory_limit: int | None
    ) -> bool:
        """Return whether the process may run a task of that queue."""
        past = waiting.past
        if waiting.prepared not in (None, self._kinds.get(queue, "")):
            return False
        return past is None or (
            past.tasks < self._get_reuse(queue).tasks
            and time.monotonic() < past.until
            and past.devices == devices
            and past.leaves_enough_of(memory_limit)
        )

    def _await_one(self, pause: Pause, may_wait: Callable[[], bool]) -> None:
        """Wait until the keeper has forked a process, or cannot. Raises OSError."""
        while not self._waiting and may_wait():
            self.start()
            if self._keeper.cannot_start or not self._keeper.is_there:
                raise OSError(errno.EAGAIN, "its keeper has ended, and another one starts soon")
            self._keeper.ask(self._to_prepare())
            # A signal or a duty cuts it short, and so does an answer, which is collected.
            pause(min(self._keeper.until - time.monotonic(), LOOK))
            self._collect()
            self._keeper.note_late()
            if self._error:
                error, self._error = self._error, 0
                raise OSError(error, os.strerror(error))
        if not self._waiting:
            raise OSError(errno.EAGAIN, "its process was not forked before an order came")

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
        """Fork a task process in advance if none waits; before the first task, see `Work`."""
        self._collect()
        if self._waiting or not self._forks_ahead:
            return
        self.start()
        try:
            self._keeper.ask(self._to_prepare())
        except OSError:  # the next task will wait for a process
            pass

    def end_run(self) -> None:
        """Let go of the process of our task, and reap those that ended after it."""
        self.running = None
        self.reap()

    def reap(self) -> None:
        """Hear the keeper, and reap children that have ended."""
        self._hear()
        for pid in process.ended_children():
            if pid in self._keeper.pids:
                self._keeper.note_end(pid, process.wait_for(pid))
                self._note_keeper()
            else:  # it came to us when its keeper died
                self._ended[pid] = self._spool.reap(pid)
                self._adopted.discard(pid)

    def _hear(self) -> None:
        was_starting = self._keeper.is_starting
        self._collect()
        if was_starting and not self._keeper.is_starting:
            self.fork_ahead()

    def strays(self, pause: Pause) -> set[int]:
        """Return the processes that our ended task has left behind."""
        while True:
            self._collect()
            found = self._find_strays()
            if self._keeper.is_dying:
                pause(LOOK)  # what it has comes to us when it has ended
            elif found and self._keeper.is_asked:
                self.answering[:] = (
                    self._keeper.descriptors
                )  # which tells who of them was forked for us
                pause(self._keeper.until - time.monotonic())
                self._keeper.note_late()
            else:
                return found

    def _find_strays(self) -> set[int]:
        found: set[int] = set()
        if self._keeper.pid is not None:
            found = process.children(self._keeper.pid) - self._keeper.preloaded
        if self._has_lost_keeper:
            ours = process.children(os.getpid()) - self._keeper.pids
            # Else some of them may be of a task that another listener watches.
            if ours.isdisjoint(self._adopted):
                found |= ours
        self._dismissed &= found
        waiting = {one.pid for one in self._waiting}
        return found - waiting - self._dismissed - {self.running or 0}

    def ending(self) -> process.Reaped | None:
        """Return how the process of our task ended, if its keeper or we have reaped it."""
        self._collect()
        return self._ended.get(self.running or 0)

    def leave_alone(self) -> None:
        """Let go of the running task, which another listener has adopted, and of its keeper.

        The other processes of the keeper are left by that task.
        """
        if self.running is not None:
            self._adopted.add(self.running)
            self._dismiss(self._waiting)
            self._keeper.let_go()

    def cool_down(self, pid: int, how: str) -> None:
        """Import no handler in advance for a while, because a process died before it had a task.

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
        """End all waiting processes, and the keeper if it has no task."""
        self._collect()
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            one.kill()
        if self.running is None:
            self._keeper.kill()
        self._keeper.let_go()
        for one in waiting:
            process.is_ready(one.pidfd, LAST)
            one.close()
            self._spool.remove_blank(one.pid)
        self.reap()

    def look_over(self) -> None:
        """End a keeper that does not answer, and processes that take no more tasks."""
        self._hear()
        self._keeper.note_late()
        self._note_keeper()
        now = time.monotonic()
        self._dismiss([one for one in self._waiting if one.past and now >= one.past.until])

    def _to_prepare(self) -> str | None:
        """Return the queue whose handler the next one imports."""
        is_warm = self._work.is_warm and time.monotonic() >= self._cold_until
        return self._prepares if is_warm else None

    def _collect(self) -> None:
        """Handle the messages of the keeper."""
        for told in self._keeper.hear():
            if isinstance(told, Ended):
                self._ended[told.pid] = told.reaped
                continue
            self._error = told.error
            if told.pid:
                identity = process.identity(told.pid)
                self._waiting.append(
                    TaskProcess(told.pid, told.pidfd, told.handshake, identity, told.prepared)
                )
        self._note_keeper()
        if self._ended:
            self._drop([one for one in self._waiting if one.pid in self._ended])
            self._ended = {pid: how for pid, how in self._ended.items() if pid == self.running}
        self._listen()

    def _note_keeper(self) -> None:
        """End the waiting processes if their keeper is gone: they have become our children."""
        if self._keeper.has_been_lost():
            self._has_lost_keeper = True
            self._dismiss([one for one in self._waiting if one.past is None])

    def _drop_ended(self, pause: Pause) -> None:
        """Let go of the next process if it has been killed while it waited, and of the one after it."""
        while self._waiting and self._waiting[0].has_ended():
            ended = self._waiting[0]
            pause(LOOK)  # its keeper tells how it ended
            self._collect()
            if ended in self._waiting:
                self._drop([ended])

    def _drop(self, some: Sequence[TaskProcess]) -> None:
        """Let go of those that have been killed while they waited."""
        for waiting in some:
            self._waiting.remove(waiting)
            waiting.close()
            reaped = self._ended.get(waiting.pid)
            how = "its keeper is gone" if reaped is None else process.describe(reaped.code)
            if waiting.past is None:
                self.cool_down(waiting.pid, how)
            else:
                log.info("pid=%d ended while it waited for another task (%s)", waiting.pid, how)

    def _dismiss(self, some: Sequence[TaskProcess]) -> None:
        some = list(some)
        self._waiting = [waiting for waiting in self._waiting if waiting not in some]
        for dismissed in some:
            dismissed.kill()  # it holds nothing, and may have been stopped
            self._dismissed.add(dismissed.pid)
            dismissed.close()

    def _fork_keeper(self, end: int) -> int:
        with signals.blocked(main.HELD_BACK):  # it ends when its slot does
            return process.fork(functools.partial(self._be_keeper, end))

    def _be_keeper(self, end: int) -> NoReturn:
        self._let_go()
        keeper.become(self._work.orders._replace(end=end))
