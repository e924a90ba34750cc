"""The title of a process, which `ps` shows as its command.

It replaces the arguments of the program in memory, where the kernel reads them. It writes only to
the bytes that the kernel shows as these arguments, through /proc/self/mem, so that it cannot hit
other memory.
"""

from __future__ import annotations

import os

from blueque.system.procfs import read_plainly, read_stat

_BEGIN, _END = 23, 24  # in the last of `read_stat`: arg_start and arg_end of proc(5)
LEAST = 40  # bytes; a title that is cut shorter than this says nothing


class Title:
    """The command that `ps` shows for this process. A forked child shows that of its parent."""

    def __init__(self) -> None:
        self._begin = 0
        self._before: bytes | None = None  # the arguments; empty: they cannot be replaced

    def show(self, text: str) -> None:
        """Show this text, cut to the room of the arguments. Does nothing if that is impossible."""
        try:
            if self._before is None:
                self._begin, self._before = _find()
            if self._before:
                room = len(self._before)
                encoded = text.encode("utf-8", "backslashreplace")[: room - 1]
                self._write(encoded.ljust(room, b"\0"))
        except (OSError, ValueError, IndexError):  # another /proc than that of Linux
            self._before = b""

    def restore(self) -> None:
        """Show the arguments again."""
        if self._before:
            try:
                self._write(self._before)
            except OSError:
                self._before = b""

    def _write(self, content: bytes) -> None:
        memory = os.open("/proc/self/mem", os.O_RDWR)
        try:
            os.pwrite(memory, content, self._begin)
        finally:
            os.close(memory)


def _find() -> tuple[int, bytes]:
    """Return where the arguments are, and the arguments. Return nothing if they cannot be replaced."""
    fields = read_stat(os.getpid())[-1].split()
    begin, end = int(fields[_BEGIN]), int(fields[_END])
    if not LEAST < end - begin < 2**16:
        return 0, b""
    memory = os.open("/proc/self/mem", os.O_RDONLY)
    try:
        found = os.pread(memory, end - begin, begin)
    finally:
        os.close(memory)
    # Something else may have replaced them, such as setproctitle.
    return (begin, found) if found == read_plainly("/proc/self/cmdline") else (0, b"")
