"""`blueque status`: show what needs attention, queues, running tasks and listeners on one screen."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from blueque.cli import feed_rows, printing
from blueque.cli.failure import ATTENTION
from blueque.cli.options import Invocation, shared_options
from blueque.cli.printing import Column, number_columns
from blueque.cli.values import DURATION
from blueque.connection.address import hide_password
from blueque.documents.status import of_overview, server_version
from blueque.faces.overview import load, running_task
from blueque.model.parts import grouped
from blueque.queries.listeners import youngest_beat
from blueque.sentences import attention
from blueque.sentences.pace import progress_cell
from blueque.sentences.queue_concerns import pause_words
from blueque.version import __version__

if TYPE_CHECKING:
    from blueque.model.task import Task
    from blueque.queries.listeners import Node
    from blueque.queries.overview import Overview
    from blueque.queries.queue_overview import QueueOverview
    from blueque.sentences.concern import Concern
    from blueque.text.redaction import Hide

MAX_ROWS = 10  # of running tasks, and of hosts
MAX_QUEUES = 20  # on a terminal
MAX_CONCERNS = 20  # on a terminal
MAX_PIPED = 1000  # of either, elsewhere

_QUEUES = [
    Column("QUEUE", can_shrink=True),
    *number_columns("SCHED", "PEND", "RESV", "RUN", "DONE", "FAIL", "CANC", "OLDEST", "LISTENERS"),
]
_BLOCKED = Column("BLOCKED", True)  # only where there are any
_BOUNDED = [
    Column("QUEUE", can_shrink=True),
    Column("MAY RUN", True),
    Column("RUN", True),
    Column("PAUSED", can_shrink=True),
]
_RUNNING = [
    Column("TASK", can_shrink=True),
    Column("WHAT", can_shrink=True, is_name=True),
    Column("QUEUE", can_shrink=True),
    Column("NODE", can_shrink=True, yields=True),
    Column("ELAPSED", True),
    Column("PROGRESS", can_shrink=True),
    Column("LEFT", True, can_shrink=True),
    Column("SIGN", True),
]
_HOSTS = [
    Column("HOST", can_shrink=True),
    *number_columns("LISTENERS", "BUSY", "SEEN"),
    Column("STATE"),
]


@click.command()
@click.option(
    "--check", "is_check", is_flag=True, help="Exit with 75 if something needs attention."
)
@click.option(
    "--watch",
    "pause",
    type=DURATION,
    is_flag=False,
    flag_value="2",
    metavar="[DURATION]",
    help="Repeat, every 2 s or at this interval, until you press q.",
)
@click.option(
    "-a", "--all", "shows_all", is_flag=True, help="Show every queue, running task and host."
)
@shared_options
def status(invocation: Invocation, is_check: bool, pause: float | None, shows_all: bool) -> int:
    """Show what needs attention, queues, running tasks and listeners on one screen.

    A line that begins with ! needs attention; the command below it shows more or helps. OLDEST is how long the next
    task in line has waited, and MAY RUN the limit of running tasks of a queue. LEFT is the estimated time until a task
    ends, and SIGN the time since it last reported progress or printed something. SEEN is the time since the last beat
    of a listener. blueque help listeners explains the states of listeners. Feeds are those that have not finished.
    """
    if pause is not None:
        if is_check:
            raise click.UsageError("--check looks once: do not combine it with --watch")
        from blueque.cli import screen  # here: the others do not need it

        is_page = not invocation.as_json and printing.is_terminal() and sys.stdin.isatty()
        (screen.watch if is_page else screen.repeat)(
            lambda: print_status(
                invocation, invocation.as_json, shows_all, screen.height() if is_page else None
            ),
            max(pause, 0.2),
        )
        return 0
    concerns = print_status(invocation, invocation.as_json, shows_all)
    return ATTENTION if is_check and (concerns or invocation.wrong_types) else 0


def print_status(
    invocation: Invocation, as_json: bool, shows_all: bool = False, height: int | None = None
) -> list[Concern]:
    """Read Redis once, print the status, and return what needs attention.

    height: so many lines have room for the running tasks, too; None: there is no end of lines.
    """
    most = None if as_json or shows_all else MAX_ROWS
    overview = load(invocation.client().get_inspector(), most=most)
    concerns = attention.concerns(overview, invocation.serve)
    if as_json:
        address, hide = _address(invocation), invocation.hider(False)
        printing.print_json("status", **of_overview(overview, concerns, address, hide))
    else:
        _print_text(invocation, overview, concerns, shows_all, height)
    return concerns


def _print_text(
    invocation: Invocation,
    overview: Overview,
    concerns: Sequence[Concern],
    shows_all: bool,
    height: int | None,
) -> None:
    url, origin = _address(invocation)
    click.echo(printing.within(printing.clean(f"blueque {__version__} at {url} ({origin})")))
    stamp = printing.stamp(overview.now, invocation.is_utc)
    click.echo(printing.within(printing.clean(f"Redis {server_version(overview) or '?'}, {stamp}")))
    most, most_queues = _most(shows_all, height)
    _print_concerns(concerns, most)
    if not concerns and overview.lines:
        failed = any(line.failures.today for line in overview.lines)
        heading = attention.heading(concerns, overview.lines)
        printing.print_wrapped(f"{heading}{' (blueque failures)' if failed else ''}")
    click.echo()
    if not overview.lines:
        click.echo("No queues yet. The first task creates one:  blueque enqueue QUEUE JSON")
        return
    _print_queues(overview, most_queues)
    most = sys.maxsize if shows_all else MAX_ROWS
    hide, running = invocation.hider(False), overview.running
    feeds = [feed_rows.row(record, overview.now) for record in overview.feeds[:most]]
    tasks = [_task_row(task, overview, hide) for task in running[:most]]
    hosts = _host_rows(overview.nodes)
    _print_first(feed_rows.COLUMNS, feeds, len(overview.feeds), "blueque group ls")
    _print_first(_RUNNING, tasks, len(running), "blueque ls --state started")
    _print_first(_HOSTS, hosts[:most], len(hosts), "blueque host ls")


def _print_first(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], count: int, command: str
) -> None:
    """Print the first rows of a table, and the command that prints all; nothing, if there are none."""
    if rows:
        click.echo()
        printing.print_table(columns, rows)
        _print_rest(count, len(rows), command)


def _most(shows_all: bool, height: int | None) -> tuple[int, int]:
    """Return how many concerns and how many queues are shown at most."""
    if shows_all:
        return sys.maxsize, sys.maxsize
    if not printing.is_terminal():
        return MAX_PIPED, MAX_PIPED
    if height is None:
        return MAX_CONCERNS, MAX_QUEUES
    return min(max(height // 8, 1), MAX_CONCERNS), min(max(height // 5, 3), MAX_QUEUES)


def _print_queues(overview: Overview, most: int) -> None:
    """Print the queues; if there are too many, those with the most waiting and running tasks."""
    lines = overview.lines
    if len(lines) > most:
        busiest = sorted(lines, key=lambda line: -line.counts.started - line.counts.pending)[:most]
        lines = sorted(busiest, key=lambda line: line.queue)
    has_blocked = any(line.counts.blocked for line in lines)
    columns = [*_QUEUES[:1], *([_BLOCKED] if has_blocked else []), *_QUEUES[1:]]
    printing.print_table(columns, [_queue_row(line, has_blocked) for line in lines])
    _print_rest(len(overview.lines), len(lines), "blueque status --all")
    bounded = [
        line
        for line in lines
        if line.settings.pause is not None or line.settings.max_running is not None
    ]
    if bounded:
        click.echo()
        printing.print_table(_BOUNDED, [_bounded_row(line, overview.now) for line in bounded])


def _print_concerns(concerns: Sequence[Concern], most: int) -> None:
    for concern in concerns[:most]:
        _print_concern(concern)
    _print_rest(len(concerns), most, "blueque status --all")


def _print_concern(concern: Concern) -> None:
    """Print a concern, and below it the whole command, to be copied."""
    name = printing.within(printing.clean(concern.about), printing.terminal_width() // 2)
    text = f"! {name}: {printing.clean(concern.sentence)}"
    lines = (
        printing.wrapped(text, printing.terminal_width() - 2) if printing.is_terminal() else [text]
    )
    for number, line in enumerate(lines):
        click.echo(printing.paint(f"  {line}" if number else line, "", bold=True))
    if concern.command:
        click.echo(f"  {printing.short_ids(printing.clean(concern.command))}")


def _print_rest(count: int, shown: int, command: str) -> None:
    if count > shown:
        click.echo(f"({count - shown:,} more: {command})")


def _queue_row(line: QueueOverview, has_blocked: bool) -> list[str]:
    counts = (
        *((line.counts.blocked,) if has_blocked else ()),
        line.counts.scheduled,
        line.counts.pending,
        line.counts.reserved,
        line.counts.started,
        line.counts.complete,
        line.counts.failed,
        line.counts.cancelled,
    )
    return [
        line.queue,
        *map(str, counts),
        printing.span(line.waiting.oldest_for),
        str(line.listeners),
    ]


def _bounded_row(line: QueueOverview, now: float) -> list[str]:
    return [
        line.queue,
        "-" if line.settings.max_running is None else str(line.settings.max_running),
        str(line.running),
        pause_words(line, now),
    ]


def _task_row(task: Task, overview: Overview, hide: Hide) -> list[str]:
    """Return the cells of a running task, see _RUNNING."""
    row, now = running_task(task, overview, hide), overview.now
    return [
        printing.short_id(task.id),
        row.what or "-",
        task.queue or "-",
        printing.short_node(task.node or "-"),
        printing.span(None if row.since is None else now - row.since),
        progress_cell(row.progress),
        row.left or "-",
        printing.span(None if row.sign is None else now - row.sign),
    ]


def _host_rows(nodes: Sequence[Node]) -> list[list[str]]:
    """Return a row for each host and state."""
    groups = grouped(nodes, lambda node: (node.host, node.state))
    rows = []
    for (host, state), members in sorted(groups.items()):
        ids, busy = {node.id for node in members}, {node.id for node in members if node.held}
        rows.append(
            [host, str(len(ids)), str(len(busy)), printing.span(youngest_beat(members)), state]
        )
    return rows


def _address(invocation: Invocation) -> tuple[str, str]:
    url, origin = invocation.address()
    return hide_password(url), origin
