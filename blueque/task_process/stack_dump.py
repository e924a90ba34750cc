"""Dump the stacks of all threads of a running Python task.

faulthandler writes them, without any lock of Python, into a file in memory of the task process. The
listener copies that to the file `stack` of the attempt, below a line `blueque: stack [MARK]`. From
there it goes into the log, marked as lines that the task did not print.
"""

from __future__ import annotations

import contextlib
import faulthandler
import fcntl
import os
import signal
import time

from blueque.model import log_line
from blueque.spool.attempt import STACK, Attempt
from blueque.system.plain_files import open_plain

NUMBER = signal.SIGRTMIN + 6  # its default action ends the process
DESCRIPTOR = 250  # of the file in memory; higher than what open() gives to the task
PATIENCE, PACE = 0.5, 0.02  # seconds to wait for the stacks; between two polls
CANNOT = "the task is not a Python handler, or is still starting"
CLOSED = "the task has closed the file that the stacks are written to"
BUSY = "the stacks of another task are just written to the same file; ask again"
_MEMORY, _STDERR = "blueque-stack", 2
_MAX_BYTES = 2**20


def register() -> None:
    """In the task process or its keeper: install the signal handler, and those for crashes of libraries.

    Programs that the task starts do not have it, because exec removes it.
    """
    try:
        if not faulthandler.is_enabled():
            faulthandler.enable(_STDERR)  # of a crash in C code, wherever sys.stderr goes
        # An earlier task may have replaced the handler, which only a new registration installs, or
        # have closed the descriptor.
        faulthandler.unregister(NUMBER)
        with contextlib.suppress(OSError):
            if _is_memory(f"/proc/self/fd/{DESCRIPTOR}"):
                faulthandler.register(NUMBER, DESCRIPTOR, all_threads=True, chain=False)
                return
        # a file on disk takes ten times as long
        opened = os.memfd_create(_MEMORY, os.MFD_CLOEXEC)
        try:
            fcntl.fcntl(opened, fcntl.F_SETFL, os.O_APPEND)
            descriptor = fcntl.fcntl(opened, fcntl.F_DUPFD_CLOEXEC, DESCRIPTOR)
        finally:
            os.close(opened)
        if descriptor == DESCRIPTOR:
            faulthandler.register(NUMBER, descriptor, all_threads=True, chain=False)
        else:  # the task already uses this number
            os.close(descriptor)
    except (OSError, RuntimeError, ValueError):
        pass  # no descriptor is left; the task runs without stack dumps


def unregister() -> None:
    """Undo `register`."""
    faulthandler.unregister(NUMBER)
    with contextlib.suppress(OSError):
        if _is_memory(f"/proc/self/fd/{DESCRIPTOR}"):
            os.close(DESCRIPTOR)


def show(attempt: Attempt, pid: int, pidfd: int, mark: str) -> str | None:
    """In the listener: fetch and save the stacks. Return None, or why there are none. Raises OSError."""
    if not _has_handler(pid):
        return CANNOT
    try:
        memory = _open_memory(pid)
    except OSError:
        return CLOSED
    try:
        # All processes of a keeper have the same file, and another listener may have adopted
        # one of them.
        fcntl.flock(memory, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(memory, 0)
        signal.pidfd_send_signal(pidfd, NUMBER)
        shown = _read(memory)
        os.ftruncate(memory, 0)
    except BlockingIOError:
        return BUSY
    finally:
        os.close(memory)
    _note(attempt, b"%b %b\n%b" % (log_line.STACK.encode(), mark.encode(), shown))
    return None


def _open_memory(pid: int) -> int:
    """Return a descriptor of the file in memory. Raises OSError: the task may have closed it and
    opened another file under its number.
    """
    path = f"/proc/{pid}/fd/{DESCRIPTOR}"
    if not _is_memory(path):
        raise FileNotFoundError(path)
    return os.open(path, os.O_RDWR | os.O_CLOEXEC)


def _is_memory(path: str) -> bool:
    """Return whether this descriptor is the file in memory. Raises OSError."""
    return os.readlink(path).startswith(f"/memfd:{_MEMORY} ")


def _read(memory: int) -> bytes:
    """Return what the task process writes, or nothing if it does not write in time."""
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
    """Return whether the process has a handler for the signal, which would otherwise end it."""
    try:
        with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
            caught = next((line.split()[1] for line in file if line.startswith("SigCgt:")), "0")
    except OSError:
        return False
    return bool(int(caught, 16) >> (NUMBER - 1) & 1)
