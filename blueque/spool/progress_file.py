"""Gauge: the progress of a task in the file `progress.live`. The task writes it through a memory
map, so a report takes half a microsecond.

The file begins with a number that each report changes. Then come done and total as doubles, NaN if
unknown; the length of the words; and the words: the unit, a line feed and the text in UTF-8. The
last 8 bytes hold the number again. A report writes the number at the end first, and the number at
the beginning last. A reader that finds two different numbers reads again.
"""

from __future__ import annotations

import mmap
import os
import struct
import time
from typing import NamedTuple

from blueque.system.plain_files import open_plain
from blueque.text.format import one_line

NAME = "progress.live"
MAX_WORDS = 470  # bytes
_COUNTER = struct.Struct("=Q")
_FACTS = struct.Struct("=ddH")
_WORDS = _COUNTER.size + _FACTS.size  # where they begin
_SIZE = 512
_END = _SIZE - _COUNTER.size
_TRIES = 100
_NONE = float("nan")


class Told(NamedTuple):
    """A progress report. number: a new one for each report. done, total: None if unknown."""

    number: int
    done: float | None
    total: float | None
    unit: str
    text: str

    def __str__(self) -> str:
        """The text that people see: 450/1500 frames encoding."""
        said = (
            ""
            if self.done is None
            else f"{self.done:g}"
            if self.total is None
            else f"{self.done:g}/{self.total:g}"
        )
        return " ".join(word for word in (said, self.unit, self.text) if word)


class Gauge:
    """Writes the file. Forked children of the task may use the same object. Raises OSError."""

    def __init__(self, directory: str) -> None:
        descriptor = open_plain(f"{directory}/{NAME}", os.O_RDWR | os.O_CREAT)
        try:
            # Else a full disk would end a process that writes to the map. (It still may where each write
            # is a copy, as on btrfs.)
            os.posix_fallocate(descriptor, 0, _SIZE)
            self._map = mmap.mmap(descriptor, _SIZE)
        finally:
            os.close(descriptor)
        self._words: tuple[str, str] = ("", "")
        self._packed = b""

    def tell(self, done: float | None, total: float | None, unit: str, text: str) -> None:
        """Write a report."""
        if self._words != (unit, text):
            self._packed = f"{one_line(unit)}\n{one_line(text)}".encode()[:MAX_WORDS]
            self._words = (unit, text)
        # which no other process of ours will have
        packed, number = self._packed, time.monotonic_ns()
        facts = _FACTS.pack(
            _NONE if done is None else done, _NONE if total is None else total, len(packed)
        )
        _COUNTER.pack_into(self._map, _END, number)
        # each time: another process may have told something else
        self._map[_WORDS : _WORDS + len(packed)] = packed
        self._map[_COUNTER.size : _WORDS] = facts
        _COUNTER.pack_into(self._map, 0, number)


def read(directory: str) -> Told | None:
    """Return the last report; None: there is none, or at each try one was just being written."""
    try:
        descriptor = open_plain(f"{directory}/{NAME}")
    except OSError:
        return None
    try:
        for _ in range(_TRIES):
            content = os.pread(descriptor, _SIZE, 0)
            if len(content) < _SIZE:  # made on a full disk, or cut by the task
                return None
            if content[: _COUNTER.size] == content[_END:]:
                break
        else:
            return None
    except OSError:
        return None
    finally:
        os.close(descriptor)
    count = _COUNTER.unpack_from(content)[0]
    done, total, length = _FACTS.unpack_from(content, _COUNTER.size)
    words = content[_WORDS : _WORDS + length].decode("utf-8", "ignore")  # one that was cut in two
    # the task may have written anything there
    unit, text = map(one_line, words.partition("\n")[::2])
    # What is not a number is not equal to itself.
    return (
        Told(count, done if done == done else None, total if total == total else None, unit, text)
        if count
        else None
    )
