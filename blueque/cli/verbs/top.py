"""`blueque top`: show live what runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from blueque.cli import printing
from blueque.cli.options import Invocation, shared_options
from blueque.cli.printing import Column, number_columns
from blueque.cli.screen import height, watch
from blueque.cli.values import DURATION
from blueque.cli.verbs.status import RUNNING, running_row
from blueque.connection.address import hide_password
from blueque.sentences import attention
from blueque.sentences.pace import unheard
from blueque.text.eta import LATE, Pace, read_progress, time_left
from blueque.text.what import what
from blueque.version import __version__

if TYPE_CHECKING:
    from blueque.model.task import Task
    from blueque.queries.inspector import Inspector
    from blueque.queries.overview import Overview

_QUEUES = [
    Column("QUEUE", can_shrink=True),
    *number_columns("PEND", "RUN", "FAIL", "OLDEST", "LISTENERS"),
]
_BLOCKED = Column("BLOCKED", True)  # only where there are any


@click.command()
@click.option("--every", type=DURATION, default=1.0, help="Refresh at this interval; default 1s.")
@shared_options
def top(invocation: Invocation, every: float) -> None:
    """Show live what runs, until you press q.

    First come the queues with running or waiting tasks, then the running tasks, longest first. BLOCKED
    tasks wait for other tasks. WHAT is the title or key of a task, or the beginning of its parameters. LEFT is
    the estimated time until the end, from the speed of the last minutes: "late" if it takes longer, -
    until the task has run for 30 s and has reported its progress twice or 2 % of it. SIGN is the time
    since it last reported progress or printed something. If Redis goes away, the last picture stays
    until it is back. For programs: blueque status --json.
    """
    watch(_Top(invocation).look, max(every, 0.2), "blueque status, or blueque status --json")


class _Top:
    def __init__(self, invocation: Invocation) -> None:
        self._where = hide_password(invocation.address()[0])
        self._inspector: Inspector = invocation.client().get_inspector()
        self._is_utc, self._hide = invocation.is_utc, invocation.hider(False)
        self._names: dict[str, str] = {}  # what the shown tasks are
        self._paces: dict[tuple[str, int | None], Pace] = {}  # of each attempt

    def look(self) -> None:
        """Read Redis and print what fits on the terminal."""
        overview = self._inspector.overview()
        concerns = sum(1 for _ in attention.concerns(overview))
        needs = f", {printing.count(concerns, 'warning')}: blueque status" if concerns else ""
        click.echo(
            printing.paint(
                printing.clean(f"blueque {__version__}, {self._where} (q quits)"), "", bold=True
            )
        )
        running = printing.count(len(overview.running), "task")
        click.echo(f"{printing.stamp(overview.now, self._is_utc)}, {running} running{needs}")
        room = height() - 5  # these two lines, two empty ones, and the titles of the tasks
        self._print_queues(overview, max(room // 3, 3))
        click.echo()
        keys = {(task.id, task.attempt): task for task in overview.running}
        self._paces = {key: self._paces.get(key, Pace()) for key in keys}
        shown = overview.running[: max(room, 1)]
        self._name(shown)
        rows = [self._row(task, overview) for task in shown]
        click.echo("\n".join(printing.table(RUNNING, rows)) if rows else "Nothing runs.")

    def _print_queues(self, overview: Overview, room: int) -> None:
        busiest = sorted(
            overview.lines,
            key=lambda line: (not line.started, not line.pending, not line.blocked, line.queue),
        )
        has_blocked = any(line.blocked for line in busiest[:room])
        columns = [*_QUEUES[:1], *([_BLOCKED] if has_blocked else []), *_QUEUES[1:]]
        rows = [
            [
                line.queue,
                *([str(line.blocked)] if has_blocked else []),
                str(line.pending),
                str(line.started),
                str(line.failed),
                printing.span(line.oldest),
                str(line.listeners),
            ]
            for line in busiest[:room]
        ]
        click.echo()
        click.echo("\n".join(printing.table(columns, rows)) if rows else "No queues yet.")
        if overview.lines[room:]:
            click.echo(f"({len(overview.lines) - room} more: blueque status --all)")

    def _name(self, tasks: Sequence[Task]) -> None:
        """Remember what these tasks are; that does not change."""
        new = [task for task in tasks if task.id not in self._names]
        told = self._inspector.with_contents(new) if new else []
        self._names |= {task.id: what(task, self._hide) or "-" for task in told}
        self._names = {task.id: self._names[task.id] for task in tasks}

    def _row(self, task: Task, overview: Overview) -> list[str]:
        now = overview.now
        progress = read_progress(task.fields.get("progress", ""))
        left = None
        if progress.share is not None and task.progress_at is not None and task.started is not None:
            pace = self._paces[task.id, task.attempt]
            pace.see(progress.share, task.progress_at)
            if task.node not in unheard(overview.nodes):
                left = time_left(progress.share, now - task.started, now - task.progress_at, pace)
        return running_row(task, overview, self._names[task.id], _brief(left))


def _brief(left: str | None) -> str:
    return "late" if left == LATE else left or "-"
