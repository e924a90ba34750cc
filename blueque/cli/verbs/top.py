"""`blueque top`: what runs, live."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from blueque.cli import attention, printing
from blueque.cli.options import DURATION, Invocation, pass_invocation, shared_options
from blueque.cli.pace import progress_cell, unheard
from blueque.cli.printing import Column
from blueque.cli.screen import height, watch
from blueque.connection.address import hide_password
from blueque.queries.listing import entered
from blueque.text.eta import LATE, Pace, read_progress, time_left
from blueque.version import __version__

if TYPE_CHECKING:
    from blueque.model.task import Task
    from blueque.queries.inspector import Inspector
    from blueque.queries.overview import Overview

_QUEUES = [
    Column("QUEUE", can_shrink=True),
    Column("PEND", True),
    Column("RUN", True),
    Column("FAIL", True),
    Column("OLDEST", True),
    Column("LISTENERS", True),
]
_TASKS = [
    Column("TASK", can_shrink=True),
    Column("QUEUE", can_shrink=True),
    Column("NODE", can_shrink=True),
    Column("ELAPSED", True),
    Column("PROGRESS", can_shrink=True),
    Column("LEFT", True),
    Column("SIGN", True),
]


@click.command()
@click.option(
    "--every",
    type=DURATION,
    default=1.0,
    metavar="DURATION",
    help="Look so often; else each second.",
)
@shared_options
@pass_invocation
def top(invocation: Invocation, every: float) -> None:
    """Show what runs, live, until you press q.

    Queues come first, those where something runs or waits, then the running tasks, the longest
    first: how far each is, about how long it will take yet, by its speed of the last minutes
    ("late" once it takes longer; - until it has run for 30 s, and told its progress twice or 2 % of
    it), and SIGN, how long ago it has told or printed something. Redis may go away and come back
    meanwhile. For programs: blueque status --json.
    """
    watch(_Top(invocation).look, max(every, 0.2), "blueque status, or blueque status --json")


class _Top:
    def __init__(self, invocation: Invocation) -> None:
        self._where = hide_password(invocation.address()[0])
        self._inspector: Inspector = invocation.client().get_inspector()
        self._is_utc = invocation.is_utc
        self._paces: dict[tuple[str, int | None], Pace] = {}  # of each attempt

    def look(self) -> None:
        """Look at Redis, and print as much as there is room for."""
        its = self._inspector.overview()
        concerns = sum(1 for _ in attention.concerns(its))
        needs = (
            f", {printing.count(concerns, 'thing')} to look at: blueque status" if concerns else ""
        )
        click.echo(
            printing.paint(
                printing.clean(f"blueque {__version__}, {self._where} (q leaves)"), "", bold=True
            )
        )
        running = printing.count(len(its.running), "task")
        click.echo(f"{printing.stamp(its.now, self._is_utc)}, {running} running{needs}")
        room = height() - 5  # these two lines, two empty ones, and the titles of the tasks
        self._print_queues(its, max(room // 3, 3))
        click.echo()
        keys = {(task.id, task.attempt): task for task in its.running}
        self._paces = {key: self._paces.get(key, Pace()) for key in keys}
        rows = [self._row(task, its) for task in its.running[: max(room, 1)]]
        click.echo("\n".join(printing.table(_TASKS, rows)) if rows else "Nothing runs.")

    def _print_queues(self, its: Overview, room: int) -> None:
        busiest = sorted(
            its.lines, key=lambda line: (not line.started, not line.pending, line.queue)
        )
        rows = [
            [
                line.queue,
                str(line.pending),
                str(line.started),
                str(line.failed),
                printing.span(line.oldest),
                str(line.listeners),
            ]
            for line in busiest[:room]
        ]
        click.echo()
        click.echo("\n".join(printing.table(_QUEUES, rows)) if rows else "No queues yet.")
        if its.lines[room:]:
            click.echo(f"({len(its.lines) - room} more: blueque status --all)")

    def _row(self, task: Task, its: Overview) -> list[str]:
        now = its.now
        since = entered(task)
        progress = read_progress(task.fields.get("progress", ""))
        left = None
        if progress.share is not None and task.progress_at is not None and task.started is not None:
            pace = self._paces[task.id, task.attempt]
            pace.see(progress.share, task.progress_at)
            if task.node not in unheard(its.nodes):
                left = time_left(progress.share, now - task.started, now - task.progress_at, pace)
        signs = [at for at in (task.progress_at, its.printed.get(task.id)) if at is not None]
        return [
            printing.short_id(task.id),
            task.queue or "-",
            printing.short_node(task.node or "-"),
            printing.span(None if since is None else now - since),
            progress_cell(progress),
            _brief(left),
            printing.span(now - max(signs) if signs else None),
        ]


def _brief(left: str | None) -> str:
    return "late" if left == LATE else left or "-"
