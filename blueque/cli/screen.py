"""Draw on the whole terminal, and restore it at the end."""

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
from blueque.errors import RedisAway
from blueque.system.signals import Interruptions, of_terminal

# The alternate screen, no cursor, long lines cut; and the reverse.
_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l\x1b[?7l", "\x1b[?7h\x1b[?25h\x1b[?1049l"
_QUITS = (b"q", b"Q", b"\x04", b"")  # the last: the terminal is closed


class Screen:
    """The terminal of this process, which is restored even when a signal stops or ends the process."""

    def __enter__(self) -> Screen:
        self._output = sys.stdout  # it is redirected while a page is made
        self._output.flush()
        self._before = termios.tcgetattr(sys.stdin)
        self._is_entered = False
        self._lines: Sequence[str] = ()
        self._signals = of_terminal()
        self._interruptions = Interruptions(self._leave, self._enter)
        self._enter()
        return self

    def __exit__(self, *_: object) -> None:
        self._leave()
        self._interruptions.restore()
        self._leave()  # if a stop has come in between
        self._signals.restore()

    def draw(self, lines: Sequence[str]) -> None:
        """Show the lines that fit."""
        self._lines = lines
        rows = height()
        # Each row is erased before it is written: behind a line that fills it, the cursor stands on
        # its last character.
        shown = "\n".join(f"\x1b[K{line}" for line in lines[:rows])
        self._write(f"\x1b[H{shown}" + ("\n\x1b[J" if len(lines) < rows else ""))

    def wait(self, seconds: float) -> bool:
        """Wait, or until the size of the terminal changes; return whether the user quits."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            ready, _, _ = select.select([sys.stdin, self._signals.fileno()], [], [], left)
            if sys.stdin in ready and os.read(sys.stdin.fileno(), 1) in _QUITS:
                return True
            if self._signals.take():
                self.draw(self._lines)  # the next page may take a while
                break
        return False

    def _enter(self) -> None:
        while True:
            try:
                tty.setcbreak(sys.stdin)  # Ctrl-C still works
                break
            except termios.error as error:
                # in the background it stops this process; SIGCONT interrupts it
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
        # Not through its buffer: a signal may come while the buffer is in use.
        left = text.encode(self._output.encoding, self._output.errors or "strict")
        while left:
            left = left[os.write(self._output.fileno(), left) :]


class _Page(io.StringIO):
    """Text that is printed for the terminal and not shown yet."""

    encoding = property(lambda _: sys.__stdout__.encoding if sys.__stdout__ else "ascii")

    def isatty(self) -> bool:
        return True


def height() -> int:
    """Return the number of lines of the terminal."""
    return os.get_terminal_size(sys.__stdout__.fileno() if sys.__stdout__ else 1).lines


def watch(look: Callable[[], object], seconds: float) -> None:
    """Show what `look` prints, again at each interval, until q or Ctrl-C; wait while Redis is away.

    Raises RedisAway if Redis is away at first.
    """
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
                    title = printing.clean(f"{error}, for {span}; the last status:")
                    lines = [printing.paint(title, "failed", bold=True), *lines[1:]]
    except KeyboardInterrupt:
        return


def _printed(look: Callable[[], object]) -> list[str]:
    page = _Page()
    with redirect_stdout(page):
        look()
    return page.getvalue().splitlines()


def repeat(look: Callable[[], object], seconds: float) -> None:
    """Print it at each interval, without a terminal; wait while Redis is away.

    Raises RedisAway if Redis is away at first.
    """
    look()
    is_away = False
    while True:
        click.echo()
        time.sleep(seconds)
        try:
            look()
            is_away = False
        except RedisAway as error:
            if not is_away:
                printing.talk(f"{error}; waiting")
            is_away = True
