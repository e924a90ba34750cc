"""Read what a task prints, line by line from its files, with the time of each read.

The task writes to its own files, so it never waits for a reader, nor breaks when the reader dies.
The listener reads about once a second.

    times           a line for each read that has found something: the time, the number of lines so
                    far, and the offsets in stdout, stderr and `stack`. Another reader goes on from
                    there, and knows when each line was read.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator

from blueque.model.log_line import LINES, OURS, Line
from blueque.model.units import LOG_LIMIT
from blueque.spool.attempt import STACK
from blueque.spool.terminal_text import Stream
from blueque.system.plain_files import open_plain, tail

STREAMS = ("stdout", "stderr")
FILES = (*((name, name) for name in STREAMS), (STACK, OURS))  # and the stream of their lines
HEAD = 64 * 1024  # bytes of the first lines, which are always kept
LOOKS = 3600  # reads that wait for Redis; older ones are written to `times` anyway
LEAST = 16  # bytes that each line counts at least, also an empty one
MAX_NOTE = 1000  # bytes of a line of `times`
HELD = 2**19  # bytes of lines that wait to be taken


class Tail:
    """Reads what an attempt prints to the files in the directory `path`.

    It continues where an earlier reader stopped.
    kept: the largest size of a file on the disk; the middle of a larger file is removed.
    """

    def __init__(self, path: str, kept: int = LOG_LIMIT) -> None:
        self._path, self._kept = path, kept
        self._number, *places = _resume(path)
        self._streams = [
            Stream(f"{path}/{name}", place) for (name, _), place in zip(FILES, places, strict=True)
        ]
        self._head = HEAD - max(sum(places), LEAST * self._number)  # bytes that are left
        self._first: list[Line] = []
        self._last: deque[tuple[int, float, str, bytes]] = deque()
        self._held = 0  # bytes of these lines
        self._own: Line | None = None  # the listener's own last line
        self._has_said = False
        self._looks: list[tuple[float, int, list[int]]] = []  # not in the file `times` yet

    @property
    def has_news(self) -> bool:
        """Whether there are lines that are not `done`."""
        return bool(self._first or self._last or self._own)

    @property
    def has_read(self) -> bool:
        """Whether the attempt has printed any line."""
        return self._number > 0

    def look(self, now: float, is_over: bool = False) -> None:
        """Read what is new.

        is_over: the task has ended: text without a newline is a line, too.
        """
        before = self._number
        for stream in self._streams:
            stream.ended.clear()
        for (_, name), stream in zip(FILES, self._streams, strict=True):
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

    def drawn(self) -> list[str]:
        """Return the redrawn lines as they are now, those on standard error first."""
        return [_readable(text) for stream in reversed(self._streams) for text in stream.drawn]

    def ended(self) -> list[str]:
        """Return the redrawn lines that have ended in the last read, the outermost last."""
        return [_readable(text) for stream in self._streams for text in stream.ended]

    def news(self) -> list[Line]:
        """Return the lines that are not `done`, in order; of very many, only the first and last."""
        last = [Line(number, at, name, _readable(text)) for number, at, name, text in self._last]
        return [*self._first, *last, *([self._own] if self._own else [])]

    def say(self, now: float, text: str) -> None:
        """Add a last line, once. It is not in the files, so the next reader adds the same."""
        if not self._has_said:
            self._own = Line(self._number + 1, now, OURS, text, self._head > 0)
            self._has_said = True

    def done(self, number: int) -> None:
        """Forget the lines up to this number; the next reader begins after them."""
        self._first = [line for line in self._first if line.number > number]
        if self._own is not None and self._own.number <= number:
            self._own = None
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
    streams = [Stream(f"{path}/{name}", 0) for name, _ in FILES]
    number = 0
    for at, _, *ends in _times(path):
        for (_, name), stream, end in zip(FILES, streams, ends, strict=True):
            for text in stream.lines(end):
                number += 1
                yield Line(number, at, name, _readable(text))
    for (_, name), stream in zip(FILES, streams, strict=True):
        for text in stream.lines():
            number += 1
            yield Line(number, 0.0, name, _readable(text))


def _readable(text: bytes) -> str:
    return text.decode("utf-8", "replace")


def _note(path: str, now: float, number: int, places: list[int]) -> None:
    try:
        descriptor = open_plain(f"{path}/times", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    except OSError:  # a full disk, or the directory is gone: only times are lost
        return
    try:
        os.write(descriptor, b"%.3f %d %d %d %d\n" % (now, number, *places))
    except OSError:
        pass
    finally:
        os.close(descriptor)


def _times(path: str) -> Iterator[tuple[float, int, int, int, int]]:
    try:
        with open(open_plain(f"{path}/times"), "rb") as file:
            # A longer line is not ours: the task has written there.
            while (line := file.readline(MAX_NOTE)) and len(line) < MAX_NOTE:
                if (look := _look_of(line)) is not None:
                    yield look
    except OSError:
        return


def _look_of(line: bytes) -> tuple[float, int, int, int, int] | None:
    """Return the time and the offsets of a read; None: incomplete, or written by the task."""
    try:
        at, number, *places = line.split()
        look = (
            float(at),
            int(number),
            int(places[0]),
            int(places[1]),
            int(places[2]) if places[2:] else 0,
        )
    except (ValueError, IndexError):
        return None
    return look if all(0 <= value < 2**63 for value in look) else None


def _resume(path: str) -> tuple[int, int, int, int]:
    """Return the number of lines that were read, and the offset in each file."""
    try:
        lines = tail(f"{path}/times", 2 * MAX_NOTE).splitlines()
    except OSError:
        return 0, 0, 0, 0
    looks = [look for line in lines if (look := _look_of(line)) is not None]
    return looks[-1][1:] if looks else (0, 0, 0, 0)
