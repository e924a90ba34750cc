"""A line on the terminal that shows progress and is redrawn in place."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable

from blueque.cli.printing import clean, pieces

PAUSE = 0.1  # seconds between two drawings


class Line:
    """The line. It is shown only if wanted and if standard error is a terminal."""

    def __init__(self, is_wanted: bool = True) -> None:
        self.is_shown = is_wanted and sys.stderr.isatty()
        self._drawn = 0.0

    def draw(self, text: Callable[[], str]) -> None:
        """Draw the text, unless the line was drawn just before."""
        if self.is_shown and time.monotonic() > self._drawn + PAUSE:
            self._drawn = time.monotonic()
            self._write(f"\r{_cut(text())}\x1b[K")

    def clear(self) -> None:
        """Remove the line, so that something else can be printed."""
        if self.is_shown and self._drawn:
            self._drawn = 0.0
            self._write("\r\x1b[K")

    def end(self, text: str) -> None:
        """Draw the text a last time and leave it."""
        if self.is_shown:
            self._write(f"\r{_cut(text)}\x1b[K\n")
            self._drawn = 0.0

    def _write(self, text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()


def _cut(text: str) -> str:
    try:
        columns = os.get_terminal_size(sys.stderr.fileno()).columns
    except OSError:
        columns = 0
    return pieces(clean(text), columns)[0] if columns else clean(text)
