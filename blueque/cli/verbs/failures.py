"""`blueque failures`: show failures, grouped by their error."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

import click

from blueque.cli import printing
from blueque.cli.named import days_option, queues_matching, queues_options
from blueque.cli.options import Invocation, shared_options
from blueque.cli.printing import Column, number_columns, text_columns
from blueque.documents.numbers import of_failures
from blueque.queries.failures import UNKNOWN, Kind

MAX_COMMANDS = 5  # kinds whose commands are printed

_COLUMNS = [
    *text_columns("ERROR TYPE", "QUEUE"),
    *number_columns("ATTEMPTS", "FAILED"),
    Column("NEWEST", can_shrink=True),
    Column("AGO", True),
    Column("ERROR", can_shrink=True),
]


@click.command()
@queues_options
@days_option
@shared_options
def failures(
    invocation: Invocation, patterns: Sequence[str], named: Sequence[str], days: int
) -> None:
    """Show the errors of tasks, how often each occurs, and the newest of each kind.

    \b
    blueque failures render.4k --since 1d --json

    ATTEMPTS counts the attempts that failed on these days, in UTC, including retried ones. It counts neither
    RetryLater and HandBack nor listeners of 1.0.0. FAILED counts all tasks that are failed now; it reads the newest
    1,000 of each queue, fewer if there are many queues.
    """
    inspector = invocation.client().get_inspector()
    queues = queues_matching(inspector.queues(), [*patterns, *named])
    found = inspector.failures(queues, days)
    now = inspector.now()
    if invocation.as_json:
        printing.print_json("failures", **of_failures(found, days))
        return
    if not found.kinds:
        printing.talk(f"no failures in {printing.count(days, 'day')}")
        return
    printing.print_table(_COLUMNS, [_row(kind, now) for kind in found.kinds])
    _print_commands([kind for kind in found.kinds if kind.newest is not None])
    if found.has_more:
        printing.talk(
            f"Only the newest {found.looked_at:,} failed tasks were read: {', '.join(found.has_more)}"
        )


def _row(kind: Kind, now: float) -> list[str]:
    newest = "-" if kind.newest is None else printing.short_id(kind.newest)
    return [
        kind.error_type,
        kind.queue,
        str(kind.attempts),
        str(kind.failed),
        newest,
        printing.span(None if kind.at is None else max(now - kind.at, 0.0)),
        _short(kind),
    ]


def _short(kind: Kind) -> str:
    """Return the error without its type; for a program, also the last line that it printed."""
    first, *more = (kind.error or "-").strip().split("\n")
    said = (
        next((line.strip() for line in reversed(more) if line.strip()), "")
        if first.endswith(":")
        else ""
    )
    text = f"{first} {said}" if said else first.removesuffix(":")
    for name in (kind.error_type, kind.error_type.rpartition(".")[2]):
        text = text.removeprefix(f"{name}: ")
    return text


def _print_commands(kinds: Sequence[Kind]) -> None:
    """Print the commands that show the newest task of each kind, and run all of a kind again."""
    if not printing.is_terminal():
        return
    for kind in kinds[:MAX_COMMANDS]:
        printing.talk("")
        printing.talk(f"{kind.error_type} in {kind.queue}")
        printing.talk(f"  blueque show {printing.short_id(kind.newest or '')}")
        again = f"blueque requeue -q {shlex.quote(kind.queue)}"
        printing.talk(
            f"  {again}"
            + (
                ""
                if kind.error_type == UNKNOWN
                else f" --error-type {shlex.quote(kind.error_type)}"
            )
        )
    if kinds[MAX_COMMANDS:]:
        printing.talk("")
        printing.talk(
            f"(and likewise for {printing.count(len(kinds) - MAX_COMMANDS, 'more kind')})"
        )
