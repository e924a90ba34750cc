"""`blueque timeline`: show what ran when on which host, a row for each attempt."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import click

from blueque.cli import printing
from blueque.cli.named import pattern_option, queues_matching
from blueque.cli.options import Invocation, shared_options
from blueque.cli.printing import Column
from blueque.cli.values import MOMENT, limit_option
from blueque.documents.numbers import of_timeline
from blueque.queries.timeline import MOST_RUNNING, Run, Timeline, silenced
from blueque.text.format import span
from blueque.text.what import what

LEAST = 60.0  # seconds that the bars cover at least, unless --since is less
TWO_DAYS = 2 * 86400.0  # seconds within which the time of the day says enough
MOST = 10_000  # attempts in one table
_WORDS = {None: "runs", "released": "handed back"}
_COLUMNS = [
    Column("HOST", can_shrink=True, yields=True),
    Column("QUEUE", can_shrink=True, yields=True),
    Column("TASK", can_shrink=True),
    Column("WHAT", can_shrink=True, is_name=True),
    Column("BEGAN"),
    Column("RAN", True),
    Column("OUTCOME", can_shrink=True),
]
_NARROW = 12  # columns that a host, a queue and WHAT have before the bar gets more than the least
_LEAST_BAR, _LEAST_BAR_OF_DAYS = 8, 6


@click.command()
@pattern_option
@click.option(
    "--since",
    type=MOMENT,
    default="12h",
    metavar="AGE|TIME",
    help="Start of the period: 24h, 08:00; default 12h.",
)
@click.option(
    "--by",
    type=click.Choice(("host", "queue")),
    default="host",
    show_default=True,
    help="Sort the rows by this, then by time.",
)
@limit_option(MOST, text="Show at most the last N attempts.")
@shared_options
def timeline(
    invocation: Invocation, patterns: Sequence[str], since: tuple[bool, float], by: str, limit: int
) -> None:
    """Show what ran when on which host.

    \b
    blueque timeline --since 24h
    blueque timeline -q render --by queue

    Each row is an attempt. The bar shows when it ran, from the first of these attempts until now. OUTCOME is runs,
    complete, failed, cancelled, handed back or lost. It is "not heard" if its listener sends no beats: the bar ends
    with the last one. The page shows the same as a picture.
    """
    is_age, seconds = since
    last = seconds if is_age else time.time() - seconds
    if last <= 0:
        raise click.UsageError("--since must be an age above 0, or a past time")
    client, inspector = invocation.client(), invocation.client().get_inspector()
    queues = queues_matching(inspector.queues(), patterns)
    found = silenced(client.get_timeline(queues, last), inspector.nodes())
    if invocation.as_json:
        printing.print_json("timeline", **of_timeline(found))
    elif found.runs:
        shown = _narrowed(found, limit)
        tasks = inspector.with_contents(inspector.tasks([run.task for run in shown.runs]))
        hide = invocation.hider(False)
        names = {task.id: what(task, hide) or "-" for task in tasks}
        _print(shown, names, by, invocation.is_utc)
        if len(found.runs) > limit:
            hidden = len(found.runs) - limit
            printing.talk(f"({hidden:,} earlier: --limit N shows up to {MOST:,})")
    else:
        printing.talk(f"nothing ran in the last {span(last)}")
    if found.has_more:
        printing.talk(
            f"only {MOST_RUNNING:,} of the running tasks are shown: -q QUEUE shows those of one queue"
        )
    for queue in found.cut:
        printing.talk(
            f"queue {queue} keeps only its last 10,000 events: the beginning is not complete"
        )


def _narrowed(found: Timeline, limit: int) -> Timeline:
    """Leave out all but the last attempts, and the time before them, except the last minute."""
    runs = found.runs[-limit:]
    first = min(min(run.began for run in runs), found.until - LEAST)
    return found._replace(runs=runs, since=max(found.since, first))


def _print(shown: Timeline, names: Mapping[str, str], by: str, is_utc: bool) -> None:
    """Print the table, with a bar at the end of each row. names: what tasks are, by their ids."""
    runs = sorted(shown.runs, key=lambda run: run.queue if by == "queue" else _host(run))
    is_brief = shown.until - shown.since <= TWO_DAYS
    form = "%H:%M:%S" if is_brief else "%d %b %H:%M"
    rows = [
        [
            _host(run),
            run.queue,
            printing.short_id(run.task),
            names.get(run.task, "-"),
            _clock(run.began, form, is_utc),
            span((shown.until if run.ended is None else run.ended) - run.began),
            _WORDS.get(run.outcome, run.outcome or ""),
        ]
        for run in runs
    ]
    wide = _room(rows, _LEAST_BAR if is_brief else _LEAST_BAR_OF_DAYS)
    begin = _clock(shown.since, form, is_utc)
    title = f"{begin}{'now':>{max(wide - len(begin), 3)}}"
    bars = Column(title if len(title) <= wide else f"{'now':>{wide}}")
    printing.print_table(
        [*_COLUMNS, bars],
        [[*row, _bar(run, shown, wide)] for row, run in zip(rows, runs, strict=True)],
    )


def _room(rows: Sequence[Sequence[str]], least: int) -> int:
    """Return how wide the bars are: what other columns leave, at most a quarter of the terminal."""
    if not printing.is_terminal():
        return 40
    wanted = [
        max(map(printing.width, [column.title, *cells]))
        for column, *cells in zip(_COLUMNS, *rows, strict=True)
    ]
    taken = sum(
        2 + (min(wide, _NARROW) if column.can_shrink else wide)
        for column, wide in zip(_COLUMNS, wanted, strict=True)
    )
    return max(min(printing.terminal_width() - taken, printing.terminal_width() // 4), least)


def _host(run: Run) -> str:
    return run.node.rpartition("_")[0] or run.node


def _bar(run: Run, shown: Timeline, wide: int) -> str:
    """Return a bar at the place of an attempt in the time that is shown."""
    scale = wide / (shown.until - shown.since)
    first = int((max(run.began, shown.since) - shown.since) * scale)
    end = shown.until if run.ended is None else run.ended
    last = int((end - shown.since) * scale)
    first = min(first, wide - 1)
    return " " * first + "=" * max(min(last, wide) - first, 1)


def _clock(seconds: float, form: str, is_utc: bool) -> str:
    moment = datetime.fromtimestamp(seconds, UTC)
    return (moment if is_utc else moment.astimezone()).strftime(form)
