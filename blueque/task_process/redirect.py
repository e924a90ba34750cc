"""Output: where what a task prints goes, before there is a task and once there is one."""

from __future__ import annotations

import io
import os
import sys
from typing import Any

from blueque.spool.attempt import Attempt
from blueque.system.plain_files import open_plain

_STREAMS = ((1, "stdout"), (2, "stderr"))


class Output:
    """Standard input, output and error of this process, a task process."""

    def __init__(self) -> None:
        # descriptor -> what tells the file that it was given
        self._kept: dict[int, tuple[int, int]] = {}

    def keep(self, directory: str | None) -> None:
        """Send what is printed to the files in there, for whoever runs in this process later; None:
        it is lost.
        """
        _replace(0, os.open(os.devnull, os.O_RDONLY))
        for number, name in _STREAMS:
            path = os.devnull if directory is None else f"{directory}/{name}"
            _replace(number, os.open(path, os.O_RDWR | os.O_APPEND))
            self._kept[number] = _identity(number)
        _renew_streams()

    def drop(self) -> None:
        """Forget what has been printed so far."""
        _flush()
        for number in self._kept:
            if self._is_ours(number):
                try:
                    os.ftruncate(number, 0)
                except OSError:  # nobody has kept it
                    pass

    def send_to(self, attempt: Attempt) -> None:
        """Send output to the spool, what has been kept first, and read from nothing.

        No pipe of ours may break under the task when we die.
        """
        if not self._kept:
            _replace(0, os.open(os.devnull, os.O_RDONLY))
        _flush()
        for number, name in _STREAMS:
            if self._kept and not self._is_ours(number):
                continue  # what has been imported has sent it elsewhere
            file = open_plain(f"{attempt.path}/{name}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            if self._kept and _identity(file) == self._kept[number]:
                os.close(file)  # it has been there all the time, under another name
                continue
            if self._kept:
                _copy(number, file)
            _replace(number, file)
        if not self._kept:
            _renew_streams()

    def _is_ours(self, number: int) -> bool:
        try:
            return _identity(number) == self._kept[number]
        except OSError:  # closed
            return False


def _replace(number: int, descriptor: int) -> None:
    if descriptor != number:  # it is the same when the listener itself had this one closed
        os.dup2(descriptor, number)
        os.close(descriptor)


def _identity(descriptor: int) -> tuple[int, int]:
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino


def _copy(number: int, file: int) -> None:
    at = 0
    try:
        while content := os.pread(number, 65536, at):
            at += os.write(file, content)
    except OSError:  # a full disk: the task shall say so, if it has to
        pass


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):  # closed, or replaced by something else
            pass


def _renew_streams() -> None:
    sys.stdin = _stream(sys.stdin, 0, "r")
    sys.stdout = _stream(sys.stdout, 1, "w")
    sys.stderr = _stream(sys.stderr, 2, "w")


def _is_on(stream: Any, number: int) -> bool:
    try:
        return (
            isinstance(stream, io.TextIOWrapper) and not stream.closed and stream.fileno() == number
        )
    except (OSError, ValueError):  # it is on no descriptor at all
        return False


def _stream(inherited: Any, number: int, mode: str) -> Any:
    """Return a text stream on the descriptor: the inherited one if that is what it is, else a new
    one.
    """
    if _is_on(inherited, number):
        # `process.fork` has flushed it. A line should be seen when it is printed, whatever
        # characters it holds.
        if mode == "w" and not (
            inherited.line_buffering and inherited.errors == "backslashreplace"
        ):
            inherited.reconfigure(line_buffering=True, errors="backslashreplace")
        return inherited
    return open(
        number, mode, buffering=1 if mode == "w" else -1, errors="backslashreplace", closefd=False
    )
