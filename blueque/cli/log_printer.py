"""Print the lines of tasks, and say where lines are missing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from blueque.cli import printing
from blueque.cli.progress_line import Line
from blueque.documents.tasks import of_line
from blueque.sentences.pace import with_share

if TYPE_CHECKING:
    from blueque.queries.task_log import LogLine


class Printer:
    """Prints lines, and says where lines are missing."""

    def __init__(self, has_prefix: bool, has_times: bool, as_json: bool, is_utc: bool) -> None:
        self._has_prefix = has_prefix
        self._has_times = has_times
        self._as_json = as_json
        self.is_utc = is_utc
        # attempt and number of the last line of each task
        self._last: dict[str, tuple[int, int]] = {}
        # how far the task is, behind all that it has printed
        self._line = Line(is_wanted=not as_json)

    def now(self, told: str) -> None:
        """Print the progress of the task."""
        if not self._as_json:
            printing.talk(f"-- now: {told} --")

    def draw(self, told: str | None) -> None:
        """Show the progress on a terminal, in place, until more is printed."""
        if told is not None:
            self._line.draw(lambda: f"-- now: {with_share(told)} --")

    def clear(self) -> None:
        self._line.clear()

    def print(self, lines: Iterable[LogLine]) -> None:
        for line in lines:
            self._last[line.task] = line.attempt, line.number
            self.clear()
            if self._as_json:
                printing.print_json_line("log", **of_line(line))
                continue
            click.echo(self._before(line.task, line.at) + printing.harmless(line.text))

    def follow(self, lines: Iterable[LogLine]) -> None:
        """Print lines of several tasks, as they come."""
        for line in lines:
            attempt, number = self._last.get(line.task, (line.attempt, line.number - 1))
            self.clear()
            if line.attempt > attempt and not self._as_json:
                printing.talk(f"--- attempt {line.attempt} of {printing.short_id(line.task)} ---")
            if attempt == line.attempt:
                self.gap(line.task, line.number - number - 1)
            self.print([line])

    def gap(self, task_id: str, missing: int) -> None:
        """Say that lines are missing here. In JSON, their numbers say so."""
        if not self._as_json and missing > 0:
            left_out = printing.count(missing, "line")
            click.echo(f"{self._before(task_id, 0.0)}... ({left_out} left out)")

    def _before(self, task_id: str, at: float) -> str:
        before = f"{printing.short_id(task_id)} | " if self._has_prefix else ""
        return (
            f"{before}{printing.stamp(at or None, self.is_utc)} | " if self._has_times else before
        )
