"""ForkServer: a slot's side of its fork server, see task_process/fork_server.py.

The slot never waits here, and never depends on it: if the fork server does not start, does not
answer, ends, or is of another version because the package was replaced, the slot forks its task
processes itself.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import socket
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator
from typing import Any, NamedTuple

from blueque.system import process
from blueque.task_process import fork_server, handshake
from blueque.task_process.fork_server import Forked, Orders

log = logging.getLogger("blueque")

ANSWER = 5.0  # seconds for an answer; a loaded machine needs a hundredth of it
START = 30.0  # seconds for the start of an interpreter, perhaps from a disk in the network
TRY_AGAIN = 60.0  # seconds between two starts
_MOST = 200_000  # bytes of a message


class Asked(NamedTuple):
    """A request that has not been answered.

    handshakes: our ends of them. until: when the answer is late, on the monotonic clock.
    """

    prepared: str | None
    handshakes: list[int]
    until: float


class ForkServer:
    """Starts a fork server, asks it for task processes, and replaces it.

    orders: without the descriptor of its end, which is that of another socket each time.
    busy: returns the task processes that the slot has taken over from it.
    """

    def __init__(self, orders: Orders, busy: Callable[[], Collection[int]]) -> None:
        self._orders, self._busy = orders, busy
        self.pid: int | None = None
        self.refusal: str | None = None  # why a module of `--preload` cannot be imported
        self._end: socket.socket | None = None
        self.asked: deque[Asked] = deque()  # requests to which an answer is to come
        self.answering: list[int] = []  # the descriptor on which something is to come
        self._former: set[int] = (
            set()
        )  # pids of fork servers and middle processes that we have killed
        self.is_resting = True  # there is none because none has been needed
        self.is_starting = False  # it imports what it needs; nothing is asked of it before that
        self._ready_by = 0.0
        self._started_at = float("-inf")  # on the monotonic clock, as all times here
        self._start_at = 0.0  # when to start one; infinity: never again

    @property
    def descriptors(self) -> list[int]:
        """What belongs to the slot and not to a process that it forks."""
        ends = [] if self._end is None else [self._end.fileno()]
        return ends + [end for asked in self.asked for end in asked.handshakes]

    @property
    def until(self) -> float:
        """When the oldest answer is late, or the start."""
        if self.is_starting:
            return self._ready_by
        return self.asked[0].until if self.asked else float("inf")

    def start(self) -> None:
        """Start one if there is none, unless one has failed a short time ago."""
        if self._end is not None or time.monotonic() < self._start_at:
            return
        if fork_server.is_replaced():
            self._do_without()
            return
        self._started_at, self.is_resting = time.monotonic(), False
        try:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        except OSError as error:
            self._lose(f"cannot start: {error.strerror}")
            return
        try:
            self.pid = fork_server.start(self._orders._replace(end=theirs.fileno()))
        except OSError as error:
            ours.close()
            self._lose(f"cannot start: {error.strerror}")
            return
        finally:
            theirs.close()
        ours.setblocking(False)
        self._end, self.is_starting = ours, True
        self._ready_by = self._started_at + START
        self.answering[:] = [ours.fileno()]

    def ask(self, prepared: str | None, count: int) -> bool:
        """Ask for so many task processes. False: the slot has to fork them itself.

        prepared: the queue whose handler they are to import.
        """
        self.start()
        if self._end is None or self.is_starting:
            return False
        theirs, ours = list[int](), list[int]()
        try:
            for _ in range(count):
                their, our = handshake.make()
                theirs.append(their)
                ours.append(our)
            fork_server.ask(self._end.fileno(), prepared, theirs)
        except OSError as error:
            for end in ours:
                os.close(end)
            self._lose(f"cannot be asked: {error.strerror}")
            return False
        finally:
            for end in theirs:
                os.close(end)
        self.asked.append(Asked(prepared, ours, time.monotonic() + ANSWER))
        self.answering[:] = [self._end.fileno()]
        return True

    def answers(self) -> Iterator[tuple[Asked, Forked]]:
        """Yield the requests that have been answered, with the answers. The handshakes are the
        caller's from then on.
        """
        for forked in self._hear():
            asked = self.asked.popleft()
            if not self.asked:
                self.answering.clear()
            yield asked, forked
            if not forked.pids and not forked.error:
                self._lose("has forked nothing, as if its middle process had been killed")

    def note_late(self) -> None:
        """Give up a fork server that does not come to an answer: it may have been stopped, or hang."""
        if time.monotonic() >= self.until:
            self._lose(
                "has not started in time" if self.is_starting else "has not answered in time"
            )

    def rest(self, unneeded: float) -> None:
        """End it if it has existed for so many seconds and has nothing to do.

        Not one with modules of `--preload`, whose import may take minutes.
        """
        is_needed = self.is_starting or self.asked or self._orders.preload
        if self._end is None or is_needed or time.monotonic() < self._started_at + unneeded:
            return
        self.close()
        self.is_resting = True

    def has_been(self, pid: int) -> bool:
        """Tell whether the process is or was a fork server of this slot, or is its middle process."""
        if pid == self.pid or pid in self._former:
            return True
        with contextlib.suppress(ProcessLookupError):
            group = os.getpgid(pid)
            return group == self.pid or group in self._former  # it has come to us
        return False

    def note_end(self, pid: int, code: int) -> None:
        """Take notice that this fork server has ended and was reaped. code: see `process.describe`."""
        self._former.discard(pid)
        self._end_middle(pid)  # its middle process has come to us
        if pid == self.pid:
            self.pid = None
            self._lose(f"has ended ({process.describe(code)})", pid)

    def after_fork_in_child(self) -> None:
        """Close what belongs to the slot."""
        for descriptor in self.descriptors:
            os.close(descriptor)
        if self._end is not None:
            self._end.detach()
        self._end, self.pid = None, None
        self._forget()

    def close(self) -> None:
        """End it, and let go of what was asked for: a task process without its handshake ends."""
        if self._end is not None:
            self._end.close()
            self._end = None
        if self.pid is not None:
            os.kill(self.pid, signal.SIGKILL)
            self._former.add(self.pid)  # reaped when it has ended: the kernel may hold it for long
            self._end_middle(self.pid)
            self.pid = None
        for asked in self.asked:
            for end in asked.handshakes:
                os.close(end)
        self._forget()

    def _end_middle(self, server: int) -> None:
        """End a middle process that was stopped. A task process leaves the group of the fork server as
        soon as it runs, which may be after we have got it.
        """
        for child in process.children(os.getpid()).difference(self._busy()):
            with contextlib.suppress(ProcessLookupError):
                if os.getpgid(child) == server:
                    os.kill(child, signal.SIGKILL)
                    self._former.add(child)

    def _forget(self) -> None:
        self.is_starting = False
        self.asked.clear()
        self.answering.clear()

    def _lose(self, how: str, pid: int | None = None) -> None:
        now = time.monotonic()
        self._start_at = max(now, self._started_at + TRY_AGAIN)
        log.warning(
            "fork server pid=%s %s; the next one starts in %.0f s, and the listener forks meanwhile",
            pid or self.pid,
            how,
            self._start_at - now,
        )
        self.close()

    def _hear(self) -> Iterator[Forked]:
        """Yield what it has forked."""
        while self._end is not None:
            try:
                said = self._end.recv(_MOST)
            except BlockingIOError:
                return
            except OSError as error:
                self._lose(f"does not answer: {error.strerror}")
                return
            if not said:
                self._lose("has ended")
                return
            kind, *rest = json.loads(said)
            if kind == "forked":
                yield Forked(*rest)
            else:
                self._note(kind, rest)

    def _note(self, kind: str, rest: list[Any]) -> None:
        if kind == "ready":
            self.is_starting = False
            self.refusal, threads = rest
            self.answering.clear()
            if threads:
                log.warning(
                    "preloaded modules have left threads: %s: tasks are forked without them, and "
                    "hang if they need a lock that they hold",
                    ", ".join(threads),
                )
            if self.refusal is not None:
                self._lose(self.refusal)
        elif rest != fork_server.VERSION:
            self._do_without()
        elif self._orders.preload:
            self._ready_by = float("inf")  # its imports may take any time

    def _do_without(self) -> None:
        log.warning(
            "the package was replaced after this listener had begun: "
            "it forks task processes itself until it is started again"
        )
        self.close()
        self._start_at = float("inf")
