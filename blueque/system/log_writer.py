"""Writes log lines to standard error without waiting for its reader.

A plain write blocks while a pipe is full or a terminal is stopped with Ctrl-S, and a listener would
miss its beats. So a line that cannot be written at once is dropped. The next written line follows
one that says how many were dropped.
"""

from __future__ import annotations

import logging
import os
import select
import socket
import stat
import sys
from collections.abc import Callable

STDERR = 2
DROPPED = "drop lines=%d: standard error could not take them"


class Writer(logging.Handler):
    """A log handler for standard error that never blocks and never raises."""

    def __init__(self) -> None:
        super().__init__()
        self._encoding = getattr(sys.stderr, "encoding", None) or "utf-8"
        self._socket: socket.socket | None = None
        self._write = self._open()
        self._pid, self._dropped, self._rest = os.getpid(), 0, b""

    def emit(self, record: logging.LogRecord) -> None:
        if self._pid != os.getpid():  # a forked child: the parent tells of its own
            self._pid, self._dropped, self._rest = os.getpid(), 0, b""
        if self._dropped and self._put(_about(self._dropped)):
            self._dropped = 0
        if self._dropped or not self._put(record):
            self._dropped += 1

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
        super().close()

    def _put(self, record: logging.LogRecord) -> bool:
        """Write the record or its beginning; the rest goes before the next. False: no byte was written."""
        try:
            if self._rest:
                self._rest = self._rest[self._write(self._rest) :]
            if self._rest:
                return False
            line = f"{self.format(record)}\n".encode(self._encoding, "backslashreplace")
            written = self._write(line)
        except Exception:  # also a record that cannot be formatted
            return False
        self._rest = line[written:] if written else b""
        return written > 0

    def _open(self) -> Callable[[bytes], int]:
        """Return a function that writes what standard error can take at once, and returns the size."""
        if sys.stderr is None:  # closed: another file may have its number
            return len
        if stat.S_ISSOCK(os.fstat(STDERR).st_mode):
            self._socket = connection = socket.socket(fileno=os.dup(STDERR))
            return lambda data: connection.send(data, socket.MSG_DONTWAIT)
        return (lambda data: os.write(STDERR, data)) if reopen() else _write_if_ready


def reopen() -> bool:
    """Make standard error non-blocking, if it is a pipe or a terminal.

    False: it is neither, or cannot be opened: it is another user's, or a pipe without a reader.
        O_NONBLOCK belongs to the open file description, which the shell and others share. So it is
        opened again, for a description of this process and its children.
    """
    if not stat.S_ISFIFO(os.fstat(STDERR).st_mode) and not os.isatty(STDERR):
        return False
    try:
        own = os.open(f"/proc/self/fd/{STDERR}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError:
        return False
    os.dup2(own, STDERR)
    os.close(own)
    return True


def _about(dropped: int) -> logging.LogRecord:
    return logging.LogRecord("blueque", logging.WARNING, "", 0, DROPPED, (dropped,), None)


def _write_if_ready(data: bytes) -> int:
    """Write while there is room, in pieces that fit. Another writer may take the room first."""
    poll = select.poll()
    poll.register(STDERR, select.POLLOUT)
    written = 0
    while written < len(data) and poll.poll(0):
        written += os.write(STDERR, data[written : written + select.PIPE_BUF])
    return written
