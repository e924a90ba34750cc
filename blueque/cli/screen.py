"""Screen: the whole terminal, drawn again and again; when it is left, what was there before is there again."""

from __future__ import annotations

import io
import os
import select
import sys
import termios
import time
import tty
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout

import click

from blueque.cli import show
from blueque.cli.failure import USAGE, Failure
from blueque.errors import RedisAway
from blueque.signals import RESIZED, Signals

# The other screen, no cursor, and lines that are too long are cut; and all of it back.
_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l\x1b[?7l", "\x1b[?7h\x1b[?25h\x1b[?1049l"
_QUITS = (b"q", b"Q", b"\x04", b"")                    # the last: there is nobody at the terminal any more


class Screen:
    """The terminal of this process."""

    def __enter__(self) -> Screen:
        self._before = termios.tcgetattr(sys.stdin)
        self._signals = Signals([RESIZED])
        tty.setcbreak(sys.stdin)                       # Ctrl-C still is one
        self._write(_ENTER)
        return self

    def __exit__(self, *_: object) -> None:
        self._write(_LEAVE)
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, self._before)
        self._signals.restore()

    def draw(self, lines: Sequence[str]) -> None:
        """Show these lines, those that there is room for."""
        self._write("\x1b[H" + "\x1b[K\n".join(lines[: height()]) + "\x1b[K\x1b[J")

    def wait(self, seconds: float) -> bool:
        """Wait so long, or until the terminal has another size; tell whether somebody wants to leave."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            ready, _, _ = select.select([sys.stdin, self._signals.fileno()], [], [], left)
            if sys.stdin in ready and os.read(sys.stdin.fileno(), 1) in _QUITS:
                return True
            if self._signals.take():
                break
        return False

    def _write(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()


class _Page(io.StringIO):
    """What is printed for the terminal, and not yet shown."""

    encoding = property(lambda _: sys.__stdout__.encoding if sys.__stdout__ else "ascii")

    def isatty(self) -> bool:
        return True


def height() -> int:
    """Return how many lines the terminal has."""
    return os.get_terminal_size(sys.__stdout__.fileno() if sys.__stdout__ else 1).lines


def watch(look: Callable[[], object], seconds: float, otherwise: str) -> None:
    """Show what `look` prints, again every so many seconds, until somebody presses q or Ctrl-C; Redis may go and come.

    otherwise: what to use where there is no terminal. Raises RedisAway when Redis is not there at first.
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
                    span = show.span(time.monotonic() - away_since)
                    title = show.clean(f"{error}, for {span}; this was before:")
                    lines = [show.paint(title, "failed", bold=True), *lines[1:]]
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
