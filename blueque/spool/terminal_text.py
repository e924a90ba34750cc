"""Printed: one file that a task prints to, read line by line as a terminal would show it in the
end.

What is drawn over after a carriage return is one line, the last of it. A cursor that moves up, as
that of several bars one below the other does, makes their rows a small screen: a row is a line once
it has scrolled out of it, or when all is over.
"""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Iterator, Sequence

from blueque.model.log_line import LINES
from blueque.system.plain_files import open_plain

MAX_LINE = 4 * 1024  # bytes; what is longer is cut
AT_A_LOOK = 8 * 2**20  # bytes of a stream: what is more is left out, for we must beat
BLOCK = 2**18
ROWS = 20  # of a screen, and lines that a cursor may come back to
_MOVE = re.compile(rb"(\n|\x1b\[\d{0,2}A)")
_UP = re.compile(rb"\x1b\[\d{0,2}A")
_DRAWS = re.compile(rb"\r|\x1b\[\d?K")
_PART_OF_UP = re.compile(rb"\x1b(\[\d{0,2})?\Z")


class Stream:
    """One of the files.

    place: where the line begins that has not ended yet. ended: the last lines that were drawn over,
    and have ended since somebody has emptied it; of several bars the outermost last.
    """

    def __init__(self, path: str, place: int) -> None:
        self._path = path
        self.place = self._at = place
        self._begun, self._cut = b"", 0  # of that line; how many bytes of it were left out
        self._left_out = 0  # bytes, before what comes next
        self._is_bar = False  # that line was drawn over
        self._is_amid = False  # what comes first is the rest of a line that was left out
        self.ended: deque[bytes] = deque(maxlen=ROWS)
        # lines that were drawn over, and nothing was printed since
        self._above: deque[bytes] = deque(maxlen=ROWS)
        self._rows: list[bytes] = []  # of the screen, if there is one; that line is in one of them:
        self._row = 0
        self._told: list[bytes] = []  # rows of it that are lines already
        # nothing, or something without a return, was written to that row
        self._is_fresh = self._is_plain = False
        self._is_below = False  # nothing, and the cursor came from above

    @property
    def drawn(self) -> list[bytes]:
        """The lines that have not ended yet, if they are drawn again and again; of several bars the
        outermost first.
        """
        line = self._drawn_last(self._begun)[0] if self._is_bar or b"\r" in self._begun else b""
        rows = [*self._rows[: self._row], line, *self._rows[self._row + 1 :]]
        # A cursor rests in the row of the outermost, or below when that has ended; what is above
        # has ended, too.
        first = 0 if self._is_below else self._row
        rows = rows[first:] + rows[:first]
        return [row for row in rows if row.strip()]

    def news(self, is_over: bool, is_brief: bool, kept: int) -> Iterator[bytes | int]:
        """Yield the lines that are new, as they are seen; of very many the last, and how much was
        left out.

        is_over: what has no end is a line, too. is_brief: of some lines that nobody will see the
            number is enough.
        """
        try:
            descriptor = open_plain(self._path)
        except OSError:
            return
        try:
            status = os.fstat(descriptor)
            if status.st_size < self._at:  # the task has emptied it
                self._clear()
                self._begin(0)
            if status.st_size - self._at > AT_A_LOOK:
                if self._at == 0:  # the first lines are always of interest
                    yield from self._read(descriptor, BLOCK, False)
                yield _gap(self._skip(status.st_size - AT_A_LOOK))
            yield from self._read(descriptor, status.st_size, is_brief)
            if status.st_blocks * 512 > kept and status.st_nlink == 1:
                _thin_out(self._path, status.st_size, kept)
        finally:
            os.close(descriptor)
        if is_over:
            yield from self._rest()

    def lines(self, end: int | None = None) -> Iterator[bytes]:
        """Yield the lines up to there, all of them, as they are seen; None: as far as there is
        anything.
        """
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
        if limit == size or not self._rows:  # else what is on the screen is not over there
            yield from self._rest()

    def _read(self, descriptor: int, limit: int, is_brief: bool) -> Iterator[bytes | int]:
        while self._at < limit and (
            block := os.pread(descriptor, min(BLOCK, limit - self._at), self._at)
        ):
            if is_brief and (count := block.count(b"\n")) > 2 * LINES:
                passed = block.rsplit(b"\n", LINES + 1)[0]
                self._clear()
                self._begin(self._at + len(passed) + 1)
                self._is_amid = False
                block = block[len(passed) + 1 :]
                yield count - LINES
            yield from self._split(block)

    def _rest(self) -> Iterator[bytes]:
        """Yield what has no end."""
        if self._rows:
            self._rows[self._row] = self._seen(b"")
            yield from self._leave(len(self._rows))
        elif self._begun or self._cut:
            text = self._seen(b"")
            self._begin(self._at)
            yield text

    def _skip(self, place: int) -> int:
        """Go on there, in the midst of a line; return how many bytes are left out by it."""
        skipped = place - self.place
        self._clear()
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
        if self._rows or (
            (b"\x1b[" in block or b"\x1b" in self._begun[-4:])
            and _UP.search(self._begun[-4:] + block)
        ):
            yield from self._draw(block)
            return
        *whole, rest = block.split(b"\n")
        for text in whole:
            seen = (
                self._ended(text)
                if self._begun or self._cut or len(text) > MAX_LINE or b"\r" in text
                else text
            )
            if seen is text and self._above:
                self._pass(text)
            self._begin(self._at + len(text) + 1)
            yield seen
        self._grow(rest)

    def _grow(self, rest: bytes) -> None:
        """Go on with the line that has not ended yet."""
        self._begun += rest
        self._at += len(rest)
        if len(self._begun) > 2 * MAX_LINE:  # a bar is drawn again and again, for days
            self._is_bar = self._is_bar or b"\r" in self._begun
            last = self._begun[-1:] if self._begun.endswith(b"\r") else b""
            line, self._cut = self._drawn_last(self._begun)
            self._begun = line + last

    def _ended(self, text: bytes) -> bytes:
        """Return what a terminal would show of the line that has ended with this, and remember it
        if it was drawn over.
        """
        seen = self._seen(text)
        if self._is_bar or b"\r" in self._begun or b"\r" in text:
            self._remember(seen)
        else:
            self._pass(seen)
        return seen

    def _pass(self, seen: bytes) -> None:
        """Forget what a cursor might have come back to: something was printed since, and not only
        an empty line.
        """
        if seen:
            self._above.clear()
        elif self._above:
            self._above.append(seen)

    def _remember(self, seen: bytes) -> None:
        self.ended.append(seen)
        self._above.append(seen)

    def _draw(self, block: bytes) -> Iterator[bytes]:
        """Do the same as a terminal, whose cursor moves up and down."""
        if part := _PART_OF_UP.search(self._begun):
            self._begun = self._begun[: part.start()]
            self._at -= len(part[0])
            block = part[0] + block
        for text in _MOVE.split(block):
            if text == b"\n":
                yield from self._go_down()
            elif _UP.fullmatch(text):
                self._go_up(int(text[2:-1] or b"1"), len(text))
            elif text:
                if self._is_fresh:
                    self._is_fresh = False
                    self._is_below = False
                    self._is_plain = not _DRAWS.match(text)
                self._grow(text)

    def _go_up(self, count: int, size: int) -> None:
        """size: bytes of the sequence that says so."""
        self._at += size
        if not self._rows:
            self._rows, self._row = [b""], 0
        self._rows[self._row] = self._seen(b"")
        self._row -= count
        while self._row < 0:
            if len(self._rows) < ROWS:
                self._rows.insert(0, self._above.pop() if self._above else b"")
                self._told.append(self._rows[0])
            self._row += 1
        self._arrive()

    def _go_down(self) -> Iterator[bytes]:
        self._at += 1
        if not self._rows:
            seen = self._ended(b"")
            self._begin(self._at)
            yield seen
            return
        self._rows[self._row] = self._seen(b"")
        self._row += 1
        if self._is_plain:  # somebody prints: there is nothing to come back to
            yield from self._leave(self._row)
            self._above.clear()
            return
        if self._row == len(self._rows):
            yield from self._say(self._rows[:1])
            self._rows = [*self._rows[1:], b""]
            self._row -= 1
            self.place = self._at
        self._arrive()
        self._is_below = True

    def _arrive(self) -> None:
        """Be in another row: what comes is written over what is there, if anything comes."""
        row = self._rows[self._row]
        self._begun, self._cut, self._is_bar = row + b"\r" if row else b"", 0, bool(row)
        self._is_fresh, self._is_below, self._is_plain = True, False, False

    def _leave(self, count: int) -> Iterator[bytes]:
        """Yield the first rows of the screen, after which it is none."""
        drawn, said = self.drawn, [*self._say(self._rows[:count])]
        self.ended.extend(reversed(drawn))
        self._clear()
        self._begin(self._at)
        yield from said

    def _say(self, rows: Sequence[bytes]) -> Iterator[bytes]:
        for row in rows:
            if row.strip() and row not in self._told:
                self._remember(row)
                yield row

    def _clear(self) -> None:
        self._rows, self._row, self._told, self._is_below = [], 0, [], False

    def _begin(self, place: int) -> None:
        """Be at the beginning of a line."""
        self.place = self._at = place
        self._begun, self._cut, self._is_bar = b"", 0, False

    def _seen(self, text: bytes) -> bytes:
        """Return what a terminal would show of the line that ends with this: the last of what was
        drawn over.
        """
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
    """Give back the blocks in the middle of a file; its beginning, and more of its end, stay where
    they are.
    """
    import ctypes  # here: next to no task prints so much

    begin, end = kept // 8 // 4096 * 4096, (size - kept // 2) // 4096 * 4096
    if end > begin:
        descriptor = open_plain(path, os.O_WRONLY)
        try:
            flags = 1 | 2  # keep the size, punch a hole: see fallocate(2); not all can
            ctypes.CDLL(None).fallocate(
                descriptor, flags, ctypes.c_long(begin), ctypes.c_long(end - begin)
            )
        finally:
            os.close(descriptor)


def _next_data(descriptor: int, place: int, limit: int) -> int:
    """Return where there is anything from this place on."""
    try:
        return min(os.lseek(descriptor, place, os.SEEK_DATA), limit)
    except OSError:  # nothing
        return limit
