"""Keeper: a slot's side of its keeper, see task_process/keeper.py.

The slot never waits here. If the keeper does not start, does not answer, or ends, it is replaced.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import marshal
import os
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from blueque.system import process, unix_sockets
from blueque.task_process import handshake
from blueque.task_process.keeper import FORMAT

log = logging.getLogger("blueque")

ANSWER = 5.0  # seconds for an answer; a loaded machine needs a hundredth of it
START = 30.0  # seconds for the start of an interpreter, perhaps from a disk in the network
TRY_AGAIN = 2.0  # seconds between two starts
FAILURES = 3  # starts in a row after which the next ones are likely to fail, too
RARELY = 10.0  # seconds between two starts then
LAST = 1.0  # seconds to wait for the end of a process that was killed
_MOST = 200_000  # bytes of a message


class Forked(NamedTuple):
    """A task process that the keeper has forked and that waits for its task.

    pid: 0: there is none, and `error` is the number of the error.
    pidfd: a descriptor of it, and handshake: our end of its handshake; both belong to the caller.
    prepared: the queue whose handler it imports.
    """

    pid: int
    error: int
    pidfd: int
    handshake: int
    prepared: str | None


class Ended(NamedTuple):
    """A task process that has ended, and how."""

    pid: int
    reaped: process.Reaped


class Keeper:
    """Starts a keeper, asks it for task processes, and replaces it.

    start: forks a keeper that serves that end of a socket, and returns its pid. Raises OSError.
    """

    def __init__(self, start: Callable[[int], int]) -> None:
        self._start = start
        self.pid: int | None = None
        self.refusal: str | None = None  # why a module of `--preload` cannot be imported
        self.preloaded: set[int] = set()  # processes that modules of `--preload` have started
        self.pids: set[int] = set()  # of all that we have started and not reaped
        self._dying: dict[int, float] = {}  # those that we have killed, and until when to wait
        self._end = -1
        self.descriptors: list[int] = []  # on which something is to come
        self.is_starting = False  # it imports what it needs
        self._is_patient = False  # and also modules of `--preload`
        self._asked: tuple[str | None, int] | None = None  # prepared, and our end of the handshake
        self.until = float("inf")  # when its answer, or its start, is late
        self._was_lost = False
        self._start_at = 0.0  # when to start one; on the monotonic clock, as all times here
        self._failures = 0  # starts in a row that came to nothing
        self.failure = ""  # the last of them

    @property
    def is_asked(self) -> bool:
        """Whether it has been asked for a process and has not answered."""
        return self._asked is not None

    @property
    def is_dying(self) -> bool:
        """Whether a killed keeper has not ended yet."""
        return any(time.monotonic() < until for until in self._dying.values())

    @property
    def is_there(self) -> bool:
        return self._end >= 0

    @property
    def cannot_start(self) -> bool:
        """Whether several starts in a row have failed: the interpreter may be gone."""
        return self._failures >= FAILURES

    def start(self, is_patient: bool = False) -> None:
        """Start a keeper if there is none, unless one was started a short time ago.

        is_patient: its start may take any time.
        """
        now = time.monotonic()
        if self.is_there or now < self._start_at:
            return
        self._start_at = now + (TRY_AGAIN if not self.cannot_start else RARELY)
        try:
            theirs, ours = unix_sockets.pair()
        except OSError as error:
            log.warning("cannot start a keeper: %s", error.strerror)
            return
        self._end, self.descriptors[:], self.is_starting = ours, [ours], True
        try:
            self.pid = self._start(theirs)
        except OSError as error:
            self._lose(f"cannot start: {error.strerror}")
            return
        finally:
            os.close(theirs)
        self.pids.add(self.pid)
        self._is_patient = is_patient
        self.until = float("inf") if is_patient else now + START

    def ask(self, prepared: str | None) -> bool:
        """Ask for a task process. False: there is no keeper, or it is starting, or has been asked.

        prepared: the queue whose handler it imports. Raises OSError: too many files are open.
        """
        if not self.is_there or self.is_starting or self.is_asked:
            return False
        theirs, ours = handshake.make()
        try:
            request = marshal.dumps(prepared, FORMAT)
            unix_sockets.send(self._end, request, [theirs], may_wait=False)
        except OSError as error:
            os.close(ours)
            self._lose(f"cannot be asked: {error.strerror}")
            return False
        finally:
            os.close(theirs)
        self._asked, self.until = (prepared, ours), time.monotonic() + ANSWER
        return True

    def hear(self) -> Iterator[Forked | Ended]:
        """Yield its messages."""
        while self.is_there and process.is_ready(self._end):
            try:
                message, files = unix_sockets.receive(self._end, _MOST, 1)
            except OSError as error:
                self._lose(f"does not answer: {error.strerror}")
                return
            if not message:
                self._lose("has ended")
                return
            kind, *rest = marshal.loads(message)
            if kind == "forked" and self._asked is not None:
                (prepared, ours), self._asked = self._asked, None
                self.until = float("inf")
                yield _forked(rest, files, ours, prepared)
            elif kind == "ended":
                pid, *reaped = rest
                yield Ended(pid, process.Reaped(*reaped))
            elif kind == "ready":
                self._note_ready(*rest)

    def note_late(self) -> None:
        """Give up a keeper that does not answer in time: it may have been stopped, or hang."""
        if time.monotonic() >= self.until:
            what = "started" if self.is_starting else "answered"
            self._lose(f"has not {what} in time")

    def note_end(self, pid: int, code: int) -> None:
        """Record that a keeper has ended and was reaped. code: see `process.describe`."""
        self.pids.discard(pid)
        self._dying.pop(pid, None)
        if pid == self.pid:
            self.pid = None
            self._lose(f"has ended ({process.describe(code)})", pid)

    def has_been_lost(self) -> bool:
        """Return, once, whether a keeper has ended or was given up."""
        was_lost, self._was_lost = self._was_lost, False
        return was_lost

    def kill(self) -> None:
        """End a keeper that has no task, and wait a short time for that."""
        if self.pid is None:
            return
        pidfd = os.pidfd_open(self.pid)
        os.kill(self.pid, signal.SIGKILL)
        if process.is_ready(pidfd, LAST):  # our listener has left by then: no beat is due
            process.reap(self.pid)
            self.pids.discard(self.pid)
        os.close(pidfd)

    def let_go(self) -> None:
        """Close our end: the keeper ends what has not begun, then itself when the last task has ended."""
        if self._asked is not None:
            os.close(self._asked[1])
        if self.is_there:
            os.close(self._end)
        self._end, self.pid, self._asked, self.is_starting = -1, None, None, False
        self.until = float("inf")
        self.descriptors.clear()

    def _lose(self, how: str, pid: int | None = None) -> None:
        level = logging.DEBUG if self.cannot_start else logging.WARNING
        log.log(level, "keeper pid=%s %s; starting another", pid or self.pid, how)
        if self.is_starting:
            self._failures, self.failure = self._failures + 1, how
        if self.is_starting and self._is_patient:
            self.refusal = f"cannot preload modules: the keeper that imported them {how}"
        self._was_lost = True
        if self.pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)  # what it has comes to us
            self._dying[self.pid] = time.monotonic() + LAST
        self.let_go()

    def _note_ready(self, refusal: str | None, threads: list[str], preloaded: list[int]) -> None:
        self.is_starting, self.until, self._failures = False, float("inf"), 0
        self.refusal, self.preloaded = refusal, set(preloaded)
        if threads:
            log.warning(
                "preloaded modules have left threads: %s: tasks are forked without them, and "
                "hang if they need a lock that they hold",
                ", ".join(threads),
            )
        if refusal is not None:
            log.error("%s", refusal)


def _forked(answer: list[Any], files: list[int], ours: int, prepared: str | None) -> Forked:
    pid, error = answer
    if not files:  # it could not be forked, or no more files may be open here
        os.close(ours)
        return Forked(0, error or errno.EMFILE, -1, -1, prepared)
    return Forked(pid, 0, files[0], ours, prepared)
