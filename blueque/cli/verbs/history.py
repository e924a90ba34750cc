"""`blueque history`: show what has happened to a task, or follow what happens in queues."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from blueque.cli import printing
from blueque.cli.failure import MISSING, Failure
from blueque.cli.named import pattern_option, queues_matching
from blueque.cli.options import Invocation, json_option, pass_invocation, shared_options
from blueque.cli.printing import Column
from blueque.cli.verbs.show import find_one
from blueque.errors import RedisAway
from blueque.sentences.events import facts, who, word
from blueque.system.outage import Outage
from blueque.text.format import span

if TYPE_CHECKING:
    from blueque.client import Client
    from blueque.queries.history import Event

_COLUMNS = [
    Column("WHEN"),
    Column("AFTER", True),
    Column("ATTEMPT", True),
    Column("EVENT"),
    Column("BY", can_shrink=True),
    Column("FACTS", can_shrink=True),
]
ROOM, OTHERS, INDENT = 30, 100, " " * 4  # columns for FACTS at least, and of the other columns


@click.command()
@click.argument("prefix", required=False, metavar="[ID]")
@pattern_option("Follow what happens in these queues from now on.", "queues")
@json_option
@shared_options
@pass_invocation
def history(
    invocation: Invocation, prefix: str | None, queues: Sequence[str], as_json: bool
) -> None:
    """Show what has happened to a task, or follow what happens in queues.

    \b
    blueque history 4f1e2c80
    blueque history -q render -q ingest

    A task keeps its first 20 events and its last 80; a queue keeps about 10,000 events of all its tasks. AFTER is the time
    since the event before. With -q it goes on until Ctrl-C, with one event on each line; with --json each is an object.
    """
    if (prefix is None) == (not queues):
        raise click.UsageError("give the ID of a task, or --queue QUEUE")
    client = invocation.client()
    if prefix is None:
        _follow(
            client,
            queues_matching(client.get_inspector().queues(), queues),
            as_json,
            invocation.is_utc,
        )
        return
    task_id = find_one(client.get_inspector(), prefix)
    found = client.get_history(task_id)
    if found is None:
        raise Failure(MISSING, f"task {task_id} no longer exists")
    if as_json:
        items = [_as_json(event) for event in found.events]
        printing.print_json("history", items=items, task=task_id, missing=found.missing)
        return
    rows = list(_rows(found.events, invocation.is_utc))
    if found.missing:
        rows.insert(found.early, ("...", "", "", f"{found.missing} left out", "", ""))
    _print(rows)


def _print(rows: Sequence[Sequence[str]]) -> None:
    """Print the table; on a terminal, facts that are too long for their column go below their row."""
    room = max(ROOM, printing.terminal_width() - OTHERS) if printing.is_terminal() else None
    below = [
        printing.clean(facts) if room is not None and printing.width(facts) > room else ""
        for *_, facts in rows
    ]
    cells = [(*row[:-1], "" if long else row[-1]) for row, long in zip(rows, below, strict=True)]
    title, *lines = printing.table(_COLUMNS, cells)
    click.echo(title)
    for line, more in zip(lines, below, strict=True):
        click.echo(line)
        if more:
            printing.print_wrapped(more, INDENT)


def _rows(events: Sequence[Event], is_utc: bool) -> Iterator[Sequence[str]]:
    before: float | None = None
    for event in events:
        after = "" if before is None else span(event.at - before)
        before = event.at
        yield (
            printing.stamp(event.at, is_utc),
            after,
            str(event.attempt or ""),
            word(event),
            who(event),
            facts(event),
        )


def _follow(client: Client, queues: Sequence[str], as_json: bool, is_utc: bool) -> None:
    places = client.get_event_places(*queues)
    outage = Outage("Redis answers again")
    while True:
        try:
            for event in client.events(*queues, after=places):
                queue = event.queue or ""
                places[queue] = event.place or ""
                outage.note(None)
                if as_json:
                    printing.print_json_line("event", queue=queue, **_as_json(event))
                else:
                    what = f"{printing.stamp(event.at, is_utc)}  {printing.short_id(event.task) or '-'}  {word(event)}"
                    click.echo(
                        printing.clean(
                            "  ".join(filter(None, [what, queue, who(event), facts(event)]))
                        )
                    )
        except RedisAway as error:
            outage.note(str(error), "waiting")
            time.sleep(outage.pause())


def _as_json(event: Event) -> dict[str, Any]:
    return {
        "task": event.task or None,
        "event": event.event,
        "attempt": event.attempt,
        "by": event.by,
        "facts": dict(event.facts),
        **printing.times(at=event.at),
    }
