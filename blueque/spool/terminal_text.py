"""Read the lines of a file that a task prints to.

A line that is redrawn with carriage returns, such as a progress bar, becomes one line: the text
after its last carriage return. tqdm draws an inner bar by going down a row, drawing, and moving the
cursor back up. This leaves the cursor where it was, so it is not a line: it is cut out, and only
the last one is remembered.
"""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Iterator

from blueque.model.log_line import LINES
from blueque.system.plain_files import open_plain

MAX_LINE = 4 * 1024  # bytes; of longer lines the middle is left out
HALF = MAX_LINE // 2
MAX_READ = 8 * 2**20  # bytes of a stream in one look: the listener must beat, so more is left out
BLOCK = 2**18
ENDED = 20  # redrawn lines that are remembered after their end
_UP = re.compile(rb"\x1b\[\d*A")
# What an inner bar writes after its newline: it draws or clears a row, and goes up again.
_INNER = re.compile(rb"\r([^\r]*?)\r?(?:\x1b\[\d*A)+")
_MAYBE_INNER = re.compile(rb"\r[^\r]*\r?(?:\x1b(?:\[\d*)?)?\Z")


class Stream:
    """Reads one of the files.

    ended: the last redrawn lines that have ended since the caller cleared it; of nested bars the
    outermost last.
    """

    def __init__(self, path: str, place: int) -> None:
        self._path = path
        self._at = self._line_at = self._held_at = place
        self._begun, self._cut = b"", 0  # the line that has not ended; bytes of it left out
        self._is_bar = False  # that line was redrawn, even if `_begun` has no carriage return
        self._held: bytes | None = None  # a redrawn line after its newline: the cursor may return
        self._empty = 0  # empty lines after it
        self._inner = b""  # the last drawing of an inner bar
        self._left_out = 0  # bytes before the next line
        self._fragment = b""  # the end of the rest of such a line
        self._is_partial = False  # the next text is the rest of a line that was left out
        self.ended: deque[bytes] = deque(maxlen=ENDED)

    @property
    def place(self) -> int:
        """Where the first line begins that has not been yielded."""
        return self._line_at if self._held is None else self._held_at

    @property
    def drawn(self) -> list[bytes]:
        """The redrawn lines that have not ended yet; of nested bars the outermost first."""
        begun = self._shown() if self._is_bar or b"\r" in self._begun else b""
        return [row for row in (begun, self._held or b"", self._inner) if row.strip()]

    def news(self, is_over: bool, is_brief: bool, kept: int) -> Iterator[bytes | int]:
        """Yield the new lines. If there are very many, yield the last, and numbers of skipped lines.

        is_over: the task has ended: text without a newline is a line, too.
        is_brief: yield the number of lines instead of lines that would not be shown.
        """
        try:
            descriptor = open_plain(self._path)
        except OSError:
            return
        try:
            status = os.fstat(descriptor)
            if status.st_size < self._at:  # the task has emptied it
                self._go_to(0)
            if status.st_size == self._at and not self._begun:  # tqdm goes down and up at once
                yield from self._release()
            if status.st_size - self._at > MAX_READ:
                if self._at == 0:  # the first lines are always of interest
                    yield from self._read(descriptor, BLOCK, False)
                yield _gap(self._skip(status.st_size - MAX_READ))
            yield from self._read(descriptor, status.st_size, is_brief)
            if status.st_blocks * 512 > kept and status.st_nlink == 1:
                _thin_out(self._path, status.st_size, kept)
        finally:
            os.close(descriptor)
        if is_over:
            yield from self._rest()

    def lines(self, end: int | None = None) -> Iterator[bytes]:
        """Yield all lines up to the offset `end`, which was a `place`; None: all that there are."""
        try:
            descriptor = open_plain(self._path)
        except OSError:
            return
        try:
            size = os.fstat(descriptor).st_size
            limit = size if end is None else min(size, end)
            while self._at < limit:
                data = _next_data(descriptor, self._at, limit)
                if data > self._at:  # it was thinned out
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
        while self._at < limit and (
            block := os.pread(descriptor, min(BLOCK, limit - self._at), self._at)
        ):
            if is_brief and (count := block.count(b"\n")) > 2 * LINES:
                passed = block.rsplit(b"\n", LINES + 1)[0]
                count += 0 if self._held is None else 1 + self._empty
                self._go_to(self._at + len(passed) + 1)
                block = block[len(passed) + 1 :]
                yield count - LINES
            yield from self._split(block)

    def _split(self, block: bytes) -> Iterator[bytes]:
        if self._is_partial:
            rest, end, block = block.partition(b"\n")
            fragment, is_partial = (self._fragment + rest)[-HALF:], not end
            self._go_to(self._at + len(rest) + len(end))
            self._fragment, self._is_partial = fragment, is_partial
            if end:
                yield from self._end_fragment()
        *whole, rest = block.split(b"\n")
        for text in whole:
            self._at += len(text) + 1
            if (
                self._begun
                or self._cut
                or self._held is not None
                or len(text) > MAX_LINE
                or b"\r" in text
            ):
                self._begun += text
                yield from self._end_line()
            else:
                self._inner = b""
                self._line_at = self._at
                yield text
        if rest:
            self._at += len(rest)
            self._begun += rest
            yield from self._cut_out_inner()
            self._shorten()

    def _cut_out_inner(self) -> Iterator[bytes]:
        """If the begun line is a drawing of an inner bar, go back to the line above.

        If it cannot become one, yield the line above, which has ended.
        """
        if (inner := _INNER.match(self._begun)) is not None:
            self._inner = inner[1][:MAX_LINE]
            self._begun = self._begun[inner.end() :]
            if self._held is not None:
                self._begun, self._is_bar = self._held + self._begun, True
                self._line_at, self._held, self._empty = self._held_at, None, 0
        elif self._held is not None and self._begun and not _MAYBE_INNER.match(self._begun):
            yield from self._release()

    def _end_line(self) -> Iterator[bytes]:
        """Yield the begun line, which a newline has ended; if it was redrawn, hold it instead."""
        yield from self._cut_out_inner()
        if self._held is not None and not self._begun and self._empty < ENDED:
            self._empty += 1
            self._line_at = self._at
            return
        yield from self._release()
        shown = self._shown()
        if self._is_redrawn():
            self._held, self._held_at = shown, self._line_at
        else:
            self._inner = b""
        self._begin_line()
        if self._held is None:
            yield shown

    def _release(self) -> Iterator[bytes]:
        """Yield the line that was held, and the empty lines after it."""
        if self._held is not None:
            lines = [self._held, *[b""] * self._empty]
            self.ended.append(self._held)
            self._held, self._empty, self._inner = None, 0, b""
            yield from lines

    def _rest(self) -> Iterator[bytes]:
        """Yield what is held and what has no newline."""
        rest, bars = [*self._end_fragment()], []
        if self._begun or self._cut:
            rest = [self._shown(), *([self._inner] if self._inner.strip() else [])]
            bars = rest[::-1] if self._is_redrawn() else rest[1:]
        yield from self._release()
        self.ended.extend(bars)
        self._go_to(self._at)
        yield from rest

    def _end_fragment(self) -> Iterator[bytes]:
        """Yield the end of a long line, if more of it was skipped than is read at once."""
        if len(self._fragment) == HALF:
            yield self._fragment
        self._fragment = b""

    def _skip(self, place: int) -> int:
        """Continue there, within a line; return how many bytes this leaves out."""
        skipped = place - self.place
        self._go_to(place)
        self._is_partial = True
        return skipped

    def _go_to(self, place: int) -> None:
        self._at = place
        self._held, self._empty, self._inner, self._is_partial = None, 0, b"", False
        self._fragment = b""
        self._begin_line()

    def _begin_line(self) -> None:
        self._line_at = self._at
        self._begun, self._cut, self._is_bar = b"", 0, False

    def _is_redrawn(self) -> bool:
        return self._is_bar or b"\r" in self._begun.rstrip(b"\r")

    def _shorten(self) -> None:
        """Keep only the last drawing of a bar that may be redrawn for days."""
        if len(self._begun) > 2 * MAX_LINE:
            self._is_bar = self._is_redrawn()
            last = b"\r" if self._begun.endswith(b"\r") else b""
            line, self._cut = self._last_drawing()
            self._begun = line + last

    def _shown(self) -> bytes:
        """Return what a terminal would show of the begun line."""
        line, cut = self._last_drawing()
        line = _UP.sub(b"", line) if b"\x1b[" in line else line
        return b"%b %b ... %b" % (line[:HALF], _gap(cut), line[HALF:]) if cut else line

    def _last_drawing(self) -> tuple[bytes, int]:
        """Return the shortened text after the last carriage return, and how many bytes were cut."""
        text = self._begun.rstrip(b"\r")
        first = text.rfind(b"\r") + 1
        line = text[first:]
        if len(line) > MAX_LINE:
            line = line[:HALF] + line[-HALF:]
        return line, (0 if first else self._cut) + len(text) - first - len(line)


def _gap(size: int) -> bytes:
    return b"... (%b left out)" % _bytes(size)


def _bytes(size: int) -> bytes:
    return b"%d byte%b" % (size, b"" if size == 1 else b"s")


def _thin_out(path: str, size: int, kept: int) -> None:
    """Free the blocks in the middle of a file; its beginning and more of its end stay in place."""
    import ctypes  # here: hardly any task prints so much

    begin, end = kept // 8 // 4096 * 4096, (size - kept // 2) // 4096 * 4096
    if end > begin:
        descriptor = open_plain(path, os.O_WRONLY)
        try:
            flags = 1 | 2  # keep the size, punch a hole: see fallocate(2); some file systems cannot
            ctypes.CDLL(None).fallocate(
                descriptor, flags, ctypes.c_long(begin), ctypes.c_long(end - begin)
            )
        finally:
            os.close(descriptor)


def _next_data(descriptor: int, place: int, limit: int) -> int:
    """Return the offset of the next data from this place on."""
    try:
        return min(os.lseek(descriptor, place, os.SEEK_DATA), limit)
    except OSError:  # there is none
        return limit
