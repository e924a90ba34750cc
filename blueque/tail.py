"""Tail: what a task prints, read line by line from the files that it prints to, with the time at which we saw each line.

The task writes to files of its own, so that it never waits for us, nor breaks when we die. We look about once a second.

    times           a line for each look that has found something: when, how far we had come in stdout and in stderr, and
                    how many lines these were; by it somebody else goes on where we were, and tells when a line was read
"""

from __future__ import annotations

import os
import stat
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from blueque.settings import LOG_LIMIT

STREAMS = ("stdout", "stderr")
MAX_LINE = 4 * 1024                                    # bytes; what is longer is cut
HEAD = 64 * 1024                                       # bytes of the first lines, which are always kept
LOOKS = 3600                                           # that wait for Redis; older ones are in `times` whatever it says
LEAST = 16                                             # bytes of it that a line takes at least: there are empty ones
LINES = 1000                                           # the last ones, which are kept besides
AT_A_LOOK = 8 * 2**20                                  # bytes of a stream: what is more is left out, for we must beat
BLOCK = 2**18
HELD = 2**19                                           # bytes of the lines that wait to be taken


class Line(NamedTuple):
    """A line that a task has printed.

    number: 1 is the first of the attempt, in both streams together. at: when it was read, in Unix seconds; 0: by nobody yet.
    is_head: it is one of the first, which are kept.
    """

    number: int
    at: float
    stream: str
    text: str
    is_head: bool = False


class Tail:
    """Reads what an attempt prints, whose files are in the directory `path`.

    What was read by somebody else before is not read again.
    kept: bytes of a file on the disk; what is more is removed from its middle.
    """

    def __init__(self, path: str, kept: int = LOG_LIMIT) -> None:
        self._path, self._kept = path, kept
        self._number, *places = _resume(path)
        self._streams = [_Stream(f"{path}/{name}", place) for name, place in zip(STREAMS, places, strict=True)]
        self._head = HEAD - max(sum(places), LEAST * self._number)     # bytes that are left of it
        self._first: list[Line] = []
        self._last: deque[tuple[int, float, str, bytes]] = deque()
        self._held = 0                                 # their bytes
        self._looks: list[tuple[float, int, list[int]]] = []       # that are not in the file `times` yet

    @property
    def has_news(self) -> bool:
        """Whether there are lines that are not `done`."""
        return bool(self._first or self._last)

    @property
    def has_read(self) -> bool:
        """Whether the attempt has printed any line."""
        return self._number > 0

    def look(self, now: float, is_over: bool = False) -> None:
        """Read what is new.

        is_over: nobody prints any more: what has no end is a line, too.
        """
        before = self._number
        for name, stream in zip(STREAMS, self._streams, strict=True):
            for text in stream.news(is_over, is_brief=self._head <= 0, kept=self._kept):
                if isinstance(text, int):
                    self._number += text
                    continue
                self._number += 1
                if self._head > 0:
                    self._head -= max(len(text) + 1, LEAST)
                    self._first.append(Line(self._number, now, name, _readable(text), True))
                else:
                    self._hold((self._number, now, name, text))
        if self._number > before:
            self._looks.append((now, self._number, [stream.place for stream in self._streams]))
            if len(self._looks) > LOOKS:
                _note(self._path, *self._looks.pop(0))

    def bar(self) -> str:
        """Return what is drawn again and again on standard error, or else on standard output, as it is now."""
        return next((text for stream in reversed(self._streams) if (text := _readable(stream.drawn))), "")

    def news(self) -> list[Line]:
        """Return the lines that are not `done`, in order; of very many, the first and the last."""
        return [*self._first, *(Line(number, at, name, _readable(text)) for number, at, name, text in self._last)]

    def done(self, number: int) -> None:
        """Forget the lines up to this number; whoever comes after us begins behind them."""
        self._first = [line for line in self._first if line.number > number]
        while self._last and self._last[0][0] <= number:
            self._let_go()
        while self._looks and self._looks[0][1] <= number:
            _note(self._path, *self._looks.pop(0))

    def _hold(self, line: tuple[int, float, str, bytes]) -> None:
        self._last.append(line)
        self._held += len(line[3])
        while len(self._last) > LINES or self._held > HELD:
            self._let_go()

    def _let_go(self) -> None:
        self._held -= len(self._last.popleft()[3])


def read(path: str) -> Iterator[Line]:
    """Yield all lines of an attempt, from the files in its directory."""
    streams = [_Stream(f"{path}/{name}", 0) for name in STREAMS]
    number = 0
    for at, _, *ends in _times(path):
        for name, stream, end in zip(STREAMS, streams, ends, strict=True):
            for text in stream.lines(end):
                number += 1
                yield Line(number, at, name, _readable(text))
    for name, stream in zip(STREAMS, streams, strict=True):
        for text in stream.lines():
            number += 1
            yield Line(number, 0.0, name, _readable(text))


class _Stream:
    """One of the files.

    place: where the line begins that has not ended yet.
    """

    def __init__(self, path: str, place: int) -> None:
        self._path = path
        self.place = self._at = place
        self._begun, self._cut = b"", 0                # of that line; how many bytes of it were left out
        self._left_out = 0                             # bytes, before what comes next
        self._is_bar = False                           # that line was drawn over
        self._is_amid = False                          # what comes first is the rest of a line that was left out

    @property
    def drawn(self) -> bytes:
        """The line that has not ended yet, if it is one that is drawn again and again."""
        return self._drawn_last(self._begun)[0] if self._is_bar or b"\r" in self._begun else b""

    def news(self, is_over: bool, is_brief: bool, kept: int) -> Iterator[bytes | int]:
        """Yield the lines that are new, as they are seen; of very many the last, and how much was left out.

        is_over: what has no end is a line, too. is_brief: of some lines that nobody will see the number is enough.
        """
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW)
        except OSError:
            return
        try:
            status = os.fstat(descriptor)
            if status.st_size < self._at:              # the task has emptied it
                self._begin(0)
            if status.st_size - self._at > AT_A_LOOK:
                if self._at == 0:                      # the first lines are always of interest
                    yield from self._read(descriptor, BLOCK, False)
                yield _gap(self._skip(status.st_size - AT_A_LOOK))
            yield from self._read(descriptor, status.st_size, is_brief)
            if status.st_blocks * 512 > kept and stat.S_ISREG(status.st_mode) and status.st_nlink == 1:
                _thin_out(self._path, status.st_size, kept)
        finally:
            os.close(descriptor)
        if is_over:
            yield from self._rest()

    def lines(self, end: int | None = None) -> Iterator[bytes]:
        """Yield the lines up to there, all of them, as they are seen; None: as far as there is anything."""
        try:
            descriptor = os.open(self._path, os.O_RDONLY)
        except OSError:
            return
        try:
            size = os.fstat(descriptor).st_size
            limit = size if end is None else min(size, end)
            while self._at < limit:
                data = _next_data(descriptor, self._at, limit)
                if data > self._at:                    # it was thinned out
                    self._left_out += self._skip(data)
                    continue
                if self._left_out:
                    yield _gap(self._left_out)
                    self._left_out = 0
                before = self._at
                for text in self._read(descriptor, min(self._at + BLOCK, limit), False):
                    assert isinstance(text, bytes)
                    yield text
                if self._at == before:
                    break
        finally:
            os.close(descriptor)
        yield from self._rest()

    def _read(self, descriptor: int, limit: int, is_brief: bool) -> Iterator[bytes | int]:
        while self._at < limit and (block := os.pread(descriptor, min(BLOCK, limit - self._at), self._at)):
            if is_brief and (count := block.count(b"\n")) > 2 * LINES:
                passed = block.rsplit(b"\n", LINES + 1)[0]
                self._begin(self._at + len(passed) + 1)
                self._is_amid = False
                block = block[len(passed) + 1 :]
                yield count - LINES
            yield from self._split(block)

    def _rest(self) -> Iterator[bytes]:
        """Yield what has no end."""
        if self._begun or self._cut:
            text = self._seen(b"")
            self._begin(self._at)
            yield text

    def _skip(self, place: int) -> int:
        """Go on there, in the midst of a line; return how many bytes are left out by it."""
        skipped = place - self.place
        self._begin(place)
        self._is_amid = True
        return skipped

    def _split(self, block: bytes) -> Iterator[bytes]:
        if self._is_amid:
            rest, end, block = block.partition(b"\n")
            self._begin(self._at + len(rest) + len(end))
            self._is_amid = not end
            if not block:
                return
        *whole, rest = block.split(b"\n")
        for text in whole:
            seen = self._seen(text) if self._begun or self._cut or len(text) > MAX_LINE or b"\r" in text else text
            self._begin(self._at + len(text) + 1)
            yield seen
        self._begun += rest
        self._at += len(rest)
        if len(self._begun) > 2 * MAX_LINE:            # a bar is drawn again and again, for days
            self._is_bar = self._is_bar or b"\r" in self._begun
            last = self._begun[-1:] if self._begun.endswith(b"\r") else b""
            line, self._cut = self._drawn_last(self._begun)
            self._begun = line + last

    def _begin(self, place: int) -> None:
        """Be at the beginning of a line."""
        self.place = self._at = place
        self._begun, self._cut, self._is_bar = b"", 0, False

    def _seen(self, text: bytes) -> bytes:
        """Return what a terminal would show of the line that ends with this: the last of what was drawn over."""
        line, cut = self._drawn_last(self._begun + text)
        return b"%b ... (%d bytes more)" % (line, cut) if cut else line

    def _drawn_last(self, text: bytes) -> tuple[bytes, int]:
        """Return the last of what was drawn over, cut, and how many bytes of it were left out."""
        text = text.rstrip(b"\r")
        drawn = text.rfind(b"\r") + 1
        line = text[drawn : drawn + MAX_LINE]
        return line, (0 if drawn else self._cut) + len(text) - drawn - len(line)


def _gap(size: int) -> bytes:
    return b"... (%d bytes left out)" % size


def _thin_out(path: str, size: int, kept: int) -> None:
    """Give back the blocks in the middle of a file; its beginning, and more of its end, stay where they are."""
    import ctypes  # here: next to no task prints so much

    begin, end = kept // 8 // 4096 * 4096, (size - kept // 2) // 4096 * 4096
    if end > begin:
        descriptor = os.open(path, os.O_WRONLY | os.O_NOFOLLOW)
        try:
            flags = 1 | 2                              # keep the size, punch a hole: see fallocate(2); not all can
            ctypes.CDLL(None).fallocate(descriptor, flags, ctypes.c_long(begin), ctypes.c_long(end - begin))
        finally:
            os.close(descriptor)


def _next_data(descriptor: int, place: int, limit: int) -> int:
    """Return where there is anything from this place on."""
    try:
        return min(os.lseek(descriptor, place, os.SEEK_DATA), limit)
    except OSError:                                    # nothing
        return limit


def _readable(text: bytes) -> str:
    return text.decode("utf-8", "replace")


def _note(path: str, now: float, number: int, places: list[int]) -> None:
    try:
        descriptor = os.open(f"{path}/times", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    except OSError:                                    # a full disk, or the directory is gone: it is for people only
        return
    try:
        os.write(descriptor, b"%.3f %d %d %d\n" % (now, number, *places))
    except OSError:
        pass
    finally:
        os.close(descriptor)


def _times(path: str) -> Iterator[tuple[float, int, int, int]]:
    try:
        with open(f"{path}/times", "rb") as file:
            for line in file:
                try:
                    at, number, *places = line.split()
                    yield float(at), int(number), int(places[0]), int(places[1])
                except (ValueError, IndexError):       # written in part, on a full disk
                    continue
    except OSError:
        return


def _resume(path: str) -> tuple[int, int, int]:
    """Return how many lines were read, and how far that was in each stream."""
    last = (0, 0, 0)
    for _, number, *places in _times(path):
        last = (number, places[0], places[1])
    return last
