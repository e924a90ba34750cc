"""Stack: where a running Python task is, all its threads, written by the C half of Python, which
waits for no lock.

The task process writes it into a file in memory. Its listener moves it from there to the file
`stack` of the attempt, below
a line `blueque: stack [MARK]`. It comes into the log from there, as lines that the task has not
    printed.
"""

from __future__ import annotations

import faulthandler
import fcntl
import os
import signal
import time

from blueque.spool.attempt import STACK, Attempt
from blueque.system.plain_files import open_plain

NUMBER = signal.SIGRTMIN + 6  # nobody else uses it; it ends whoever has no handler for it
WORDS = "blueque: stack"
DESCRIPTOR = 250  # that it is written to: none that the task gets when it opens a file
PATIENCE, PACE = 0.5, 0.02  # seconds to wait for it; between two looks whether there is more
CANNOT = "this is no Python handler, or it is still getting ready"
CLOSED = "the task has closed the file that it would be written to"
_MEMORY = "blueque-stack"
_MAX_BYTES = 2**20


def register() -> None:
    """In the task process: have the signal write where it is. Not in what it starts: an exec takes
    it away.
    """
    try:
        # on a disk it would take ten times as long
        opened = os.memfd_create(_MEMORY, os.MFD_CLOEXEC)
        try:
            fcntl.fcntl(opened, fcntl.F_SETFL, os.O_APPEND)
            descriptor = fcntl.fcntl(opened, fcntl.F_DUPFD_CLOEXEC, DESCRIPTOR)
        finally:
            os.close(opened)
        if descriptor == DESCRIPTOR:
            faulthandler.register(NUMBER, descriptor, all_threads=True, chain=False)
        else:  # it is another's already
            os.close(descriptor)
    except (OSError, RuntimeError, ValueError):
        # no descriptor is left for it: the task has better things to do
        pass


def show(attempt: Attempt, pid: int, pidfd: int, mark: str) -> str | None:
    """In the listener: have the task process show where it is; return why it cannot. Raises
    OSError.
    """
    if not _has_handler(pid):
        return CANNOT
    try:
        memory = _open_memory(pid)
    except OSError:
        return CLOSED
    try:
        os.ftruncate(memory, 0)
        signal.pidfd_send_signal(pidfd, NUMBER)
        shown = _read(memory)
    finally:
        os.close(memory)
    _note(attempt, b"%b %b\n%b" % (WORDS.encode(), mark.encode(), shown))
    return None


def _open_memory(pid: int) -> int:
    """Return a descriptor of the file in memory. Raises OSError: the task may have closed it, and
    opened one of its own.
    """
    path = f"/proc/{pid}/fd/{DESCRIPTOR}"
    if not os.readlink(path).startswith(f"/memfd:{_MEMORY} "):
        raise FileNotFoundError(path)
    return os.open(path, os.O_RDWR | os.O_CLOEXEC)


def _read(memory: int) -> bytes:
    """Return what the task process writes there, once it has written it, or nothing if it does not
    in time.
    """
    deadline, before = time.monotonic() + PATIENCE, 0
    while time.monotonic() < deadline:
        time.sleep(PACE)
        size = os.fstat(memory).st_size
        if size and size == before:
            break
        before = size
    return os.pread(memory, _MAX_BYTES, 0)


def _note(attempt: Attempt, text: bytes) -> None:
    descriptor = open_plain(f"{attempt.path}/{STACK}", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(descriptor, text)
    finally:
        os.close(descriptor)


def _has_handler(pid: int) -> bool:
    """Tell whether the process has a handler for the signal, which would otherwise end it."""
    try:
        with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
            caught = next((line.split()[1] for line in file if line.startswith("SigCgt:")), "0")
    except OSError:
        return False
    return bool(int(caught, 16) >> (NUMBER - 1) & 1)
