"""Screen: the whole terminal, drawn again and again; when it is left, what was there before is
there again.
"""

from __future__ import annotations

import errno
import io
import os
import select
import sys
import termios
import time
import tty
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout, suppress

import click

from blueque.cli import printing
from blueque.cli.failure import USAGE, Failure
from blueque.errors import RedisAway
from blueque.system.signals import CONTINUED, RESIZED, Interruptions, Signals

# The other screen, no cursor, and lines that are too long are cut; and all of it back.
_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l\x1b[?7l", "\x1b[?7h\x1b[?25h\x1b[?1049l"
_QUITS = (b"q", b"Q", b"\x04", b"")  # the last: there is nobody at the terminal any more


class Screen:
    """The terminal of this process; it is left, too, when a signal stops or ends us."""

    def __enter__(self) -> Screen:
        self._output = sys.stdout  # a look has another one
        self._output.flush()
        self._before = termios.tcgetattr(sys.stdin)
        self._is_entered = False
        self._lines: Sequence[str] = ()
        self._signals = Signals([RESIZED, CONTINUED])
        self._interruptions = Interruptions(self._leave, self._enter)
        self._enter()
        return self

    def __exit__(self, *_: object) -> None:
        self._leave()
        self._interruptions.restore()
        self._leave()  # should a stop have come in between
        self._signals.restore()

    def draw(self, lines: Sequence[str]) -> None:
        """Show these lines, those that there is room for."""
        self._lines = lines
        rows = height()
        # Each row is erased before it is written: behind a line that fills it, the cursor stands on
        # its last character.
        shown = "\n".join(f"\x1b[K{line}" for line in lines[:rows])
        self._write(f"\x1b[H{shown}" + ("\n\x1b[J" if len(lines) < rows else ""))

    def wait(self, seconds: float) -> bool:
        """Wait so long, or until the terminal is another; tell whether somebody wants to leave."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            ready, _, _ = select.select([sys.stdin, self._signals.fileno()], [], [], left)
            if sys.stdin in ready and os.read(sys.stdin.fileno(), 1) in _QUITS:
                return True
            if self._signals.take():
                self.draw(self._lines)  # the next look may take its time
                break
        return False

    def _enter(self) -> None:
        while True:
            try:
                tty.setcbreak(sys.stdin)  # Ctrl-C still is one
                break
            except termios.error as error:
                # in the background it stops us, and a SIGCONT interrupts it
                if error.args[0] != errno.EINTR:
                    raise
        if not self._is_entered:
            self._is_entered = True
            self._write(_ENTER)

    def _leave(self) -> None:
        if self._is_entered:
            self._is_entered = False
            with suppress(OSError, termios.error):  # the terminal may be gone
                self._write(_LEAVE)
                termios.tcsetattr(sys.stdin, termios.TCSADRAIN, self._before)

    def _write(self, text: str) -> None:
        # Past its buffer, which cannot be used in the middle of its own use: a signal may come
        # there.
        left = text.encode(self._output.encoding, self._output.errors or "strict")
        while left:
            left = left[os.write(self._output.fileno(), left) :]


class _Page(io.StringIO):
    """What is printed for the terminal, and not yet shown."""

    encoding = property(lambda _: sys.__stdout__.encoding if sys.__stdout__ else "ascii")

    def isatty(self) -> bool:
        return True


def height() -> int:
    """Return how many lines the terminal has."""
    return os.get_terminal_size(sys.__stdout__.fileno() if sys.__stdout__ else 1).lines


def watch(look: Callable[[], object], seconds: float, otherwise: str) -> None:
    """Show what `look` prints, again every so many seconds, until somebody presses q or Ctrl-C;
    Redis may go and come.

    otherwise: what to use where there is no terminal. Raises RedisAway when Redis is not there at
        first.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise Failure(USAGE, "this needs a terminal", f"Without one: {otherwise}")
    lines, away_since = _printed(look), None
    try:
        with Screen() as screen:
            while True:
                screen.draw(lines)
                if screen.wait(seconds):
                    return
                try:
                    lines, away_since = _printed(look), None
                except RedisAway as error:
                    away_since = away_since or time.monotonic()
                    span = printing.span(time.monotonic() - away_since)
                    title = printing.clean(f"{error}, for {span}; this was before:")
                    lines = [printing.paint(title, "failed", bold=True), *lines[1:]]
    except KeyboardInterrupt:
        return


def _printed(look: Callable[[], object]) -> list[str]:
    page = _Page()
    with redirect_stdout(page):
        look()
    return page.getvalue().splitlines()


def repeat(look: Callable[[], object], seconds: float) -> None:
    """Print it again and again, for those who have no terminal."""
    while True:
        look()
        click.echo()
        time.sleep(seconds)
