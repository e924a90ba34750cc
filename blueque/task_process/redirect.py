"""Redirect standard input, output and error of a task process: to a blank directory while it waits,
then to the files of its attempt.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from typing import Any

from blueque.spool.attempt import Attempt
from blueque.system import process
from blueque.system.plain_files import identity, open_plain

_STREAMS = ((1, "stdout"), (2, "stderr"))


def settle() -> None:
    """Set up empty input, and output streams that write each line at once and accept any character."""
    process.fill_standard_streams()
    _replace(0, os.open(os.devnull, os.O_RDONLY))
    sys.stdin = _stream(sys.stdin, 0, "r")
    sys.stdout = _stream(sys.stdout, 1, "w")
    sys.stderr = _stream(sys.stderr, 2, "w")


class Output:
    """The output of this task process."""

    def __init__(self) -> None:
        # descriptor -> device and inode of the file that it was given
        self._kept: dict[int, tuple[int, int]] = {}
        self.is_in_place = False  # the blank directory has become that of the attempt

    def keep(self, files: Sequence[int] | None) -> None:
        """Send output to these two files until there is a task; None: discard it. Closes the files."""
        for place, (number, _) in enumerate(_STREAMS):
            _replace(number, os.open(os.devnull, os.O_RDWR) if files is None else files[place])
            self._kept[number] = identity(number)

    def drop(self) -> None:
        """Discard the output so far."""
        process.flush()
        for number in self._kept:
            if self._is_ours(number):
                try:
                    os.ftruncate(number, 0)
                except OSError:  # /dev/null
                    pass

    def forget(self) -> None:
        """Let the files of the next attempt begin empty."""
        self._kept = {}

    def send_to(self, attempt: Attempt) -> None:
        """Send output to the files of the attempt, beginning with the output so far.

        These are files, not pipes, so that the task survives its listener.
        """
        process.flush()
        for number, name in _STREAMS:
            if self._kept and not self._is_ours(number):
                continue  # the imported module has redirected it
            path = f"{attempt.path}/{name}"
            if self._kept and _is_file(path, self._kept[number]):
                self.is_in_place = True
                continue
            file = open_plain(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            if self._kept:
                _copy(number, file)
            _replace(number, file)

    def _is_ours(self, number: int) -> bool:
        try:
            return identity(number) == self._kept[number]
        except OSError:  # closed
            return False


def _replace(number: int, descriptor: int) -> None:
    if descriptor != number:  # equal if the listener was started with this one closed
        os.dup2(descriptor, number)
        os.close(descriptor)


def _is_file(path: str, kept: tuple[int, int]) -> bool:
    try:
        status = os.lstat(path)
    except OSError:
        return False
    return (status.st_dev, status.st_ino) == kept


def _copy(number: int, file: int) -> None:
    at = 0
    try:
        while content := os.pread(number, 65536, at):
            at += os.write(file, content)
    except OSError:  # a full disk; the task will meet it itself
        pass


def _is_on(stream: Any, number: int) -> bool:
    try:
        return (
            isinstance(stream, io.TextIOWrapper) and not stream.closed and stream.fileno() == number
        )
    except (OSError, ValueError):  # it has no descriptor
        return False


def _stream(inherited: Any, number: int, mode: str) -> Any:
    """Return a text stream on the descriptor: the inherited stream if it uses it, or a new one."""
    if _is_on(inherited, number):
        # `process.fork` has flushed it. Each line is written at once, with any characters.
        if mode == "w" and not (
            inherited.line_buffering and inherited.errors == "backslashreplace"
        ):
            inherited.reconfigure(line_buffering=True, errors="backslashreplace")
        return inherited
    return open(
        number, mode, buffering=1 if mode == "w" else -1, errors="backslashreplace", closefd=False
    )
