"""Stack: where a running Python task is just now, all its threads, told by the C half of Python, which waits for no lock.

It goes to the task's own standard error, so it comes into its log as whatever the task prints. A line of ours stands before
it: `blueque: stack [mark]`. Of a task that cannot show it nothing is printed: what a program prints says why it failed.
"""

from __future__ import annotations

import faulthandler
import fcntl
import os
import signal

from blueque.attempt import Attempt

NUMBER = signal.SIGRTMIN + 6                           # nobody else uses it; it ends whoever has no handler for it
WORDS = "blueque: stack"
DESCRIPTOR = 250                                       # that it is written to: none that the task gets when it opens a file
CANNOT = "this is no Python handler, or it is still getting ready"
CLOSED = "the task has closed the file that it would be written to"


def register(attempt: Attempt) -> None:
    """In the task process: have the signal write where it is. Not in what it starts: an exec takes it away."""
    try:
        opened = _open(attempt)
        try:
            descriptor = fcntl.fcntl(opened, fcntl.F_DUPFD_CLOEXEC, DESCRIPTOR)
        finally:
            os.close(opened)
        if descriptor == DESCRIPTOR:
            faulthandler.register(NUMBER, descriptor, all_threads=True, chain=False)
        else:                                          # it is another's already
            os.close(descriptor)
    except (OSError, RuntimeError, ValueError):        # no descriptor is left for it: the task has better things to do
        pass


def show(attempt: Attempt, pid: int, pidfd: int, mark: str) -> str | None:
    """In the listener: have the task process show where it is; return why it cannot. Raises OSError."""
    if not _has_handler(pid):
        return CANNOT
    if not _is_open(attempt, pid):
        return CLOSED
    descriptor = _open(attempt)
    try:
        os.write(descriptor, f"{WORDS} {mark}\n".encode())
    finally:
        os.close(descriptor)
    signal.pidfd_send_signal(pidfd, NUMBER)
    return None


def _open(attempt: Attempt) -> int:
    return os.open(f"{attempt.path}/stderr", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


def _is_open(attempt: Attempt, pid: int) -> bool:
    """Tell whether it would be written where it belongs: the task may have closed that, and opened a file of its own."""
    try:
        return os.path.samefile(f"/proc/{pid}/fd/{DESCRIPTOR}", f"{attempt.path}/stderr")
    except OSError:
        return False


def _has_handler(pid: int) -> bool:
    """Tell whether the process has a handler for the signal, which would otherwise end it."""
    try:
        with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
            caught = next((line.split()[1] for line in file if line.startswith("SigCgt:")), "0")
    except OSError:
        return False
    return bool(int(caught, 16) >> (NUMBER - 1) & 1)
