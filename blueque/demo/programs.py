"""What the demo and its pipeline share: programs that are started and ended, and a line of progress."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

from blueque.cli.progress_line import Line
from blueque.system import process
from blueque.text.terminal import cut

STUCK_AFTER = 120.0  # seconds without any task that ends, after which the demo gives up
WIDTH = 79  # columns of a line


class WentWrong(Exception):
    """The demo did not do what it promises."""


class Program:
    """A child in its own process group: Ctrl-C on the terminal reaches only the demo.

    is_shown: its output goes to ours, not into its log.
    """

    def __init__(
        self, name: str, arguments: Sequence[str], directory: Path, is_shown: bool = False
    ) -> None:
        self._name, self._log = name, directory / f"{name}.log"
        environ = {
            key: value for key, value in os.environ.items() if not key.startswith("BLUEQUE_")
        }
        environ["PYTHONSAFEPATH"] = "1"  # no imports from the directory where the demo is started
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=None if is_shown else log,
                stderr=log,
                env=environ,
                cwd=directory,
                process_group=0,
            )
        self.pid = self._process.pid

    def said(self) -> str:
        """Return its log."""
        return self._log.read_text(errors="replace")

    def last_lines(self) -> str:
        """Return the end of its log, to be shown below a sentence."""
        return "".join(f"\n    {line}" for line in self.said().strip().splitlines()[-5:])

    def code(self) -> int | None:
        """Return the exit code, or None while it runs."""
        return self._process.poll()

    def require_running(self) -> None:
        """Raise WentWrong, with its last output, if it has ended."""
        code = self._process.poll()
        if code is not None:
            raise WentWrong(
                f"{self._name} has ended by itself ({process.describe(code)}):{self.last_lines()}"
            )


def end_all() -> None:
    """Kill all programs below this one. As a subreaper, it becomes the parent of what they leave."""
    this = psutil.Process()
    while children := this.children(recursive=True):
        for child in children:  # a parent comes before its children
            with contextlib.suppress(psutil.NoSuchProcess):  # it has ended meanwhile
                child.kill()
        # One that has come to us since then was not killed yet: the next round does.
        for child in set(children).intersection(this.children()):
            process.reap(child.pid)


class Progress:
    """A line that is redrawn on a terminal; a new line every few seconds elsewhere.

    count: of the tasks. It gives up when none has ended for a long time.
    """

    def __init__(self, count: int) -> None:
        self._count, self._line = count, Line()
        self._began = self._moved = time.monotonic()
        self._done, self._next = 0, 2.0

    def show(self, done: int, running: Sequence[str] = ()) -> None:
        """Show how many tasks have ended, and which run. Raises WentWrong."""
        now = time.monotonic()
        if done > self._done:
            self._done, self._moved = done, now
        elif now > self._moved + STUCK_AFTER:
            raise WentWrong(
                f"{done} of {self._count} tasks have ended, and none in the last {STUCK_AFTER:.0f} s"
            )
        seconds = now - self._began
        text = f"{done:3d} of {self._count} done, {seconds:3.0f} s"
        if running:
            text += f", at work on {' and '.join(running)}"
        bar = "#" * (20 * done // self._count)
        self._line.draw(lambda: f"  [{bar:.<20}] {text}")
        if not self._line.is_shown and (seconds >= self._next or done == self._count):
            self._next = seconds + 2.0
            print(cut(f"  {text}", WIDTH), flush=True)

    def say(self, line: str) -> None:
        """Print a line that stays."""
        self._line.clear()
        print(f"  {line}", flush=True)

    def leave(self) -> None:
        """Clear the line for other output."""
        self._line.clear()
