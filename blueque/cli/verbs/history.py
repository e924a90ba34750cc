"""`blueque history`: show what has happened to a task, or follow what happens in queues."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from blueque.cli import printing
from blueque.cli.event_program import PlaceFile, call
from blueque.cli.failure import MISSING, Failure
from blueque.cli.named import pattern_option, queues_matching
from blueque.cli.named_tasks import find_one
from blueque.cli.options import Invocation, shared_options
from blueque.cli.printing import Column, number_columns, text_columns
from blueque.cli.values import COMMAND, MOMENT
from blueque.documents.tasks import event_item, of_history
from blueque.errors import RedisAway
from blueque.model.parts import in_parts
from blueque.sentences.events import BY_PEOPLE, facts, is_wanted, who, word
from blueque.system.outage import Outage
from blueque.text.format import span

if TYPE_CHECKING:
    from blueque.client import Client
    from blueque.queries.history import Event

_OF_TASK = [
    Column("WHEN"),
    *number_columns("AFTER", "ATTEMPT"),
    Column("EVENT"),
    *text_columns("BY", "FACTS"),
]
_OF_QUEUES = [
    Column("WHEN"),
    Column("TASK"),
    Column("EVENT"),
    *text_columns("QUEUE", "BY", "FACTS"),
]
DAY_AGO = True, 86400.0
MOST, QUEUES_AT_ONCE = 20_000, 20  # events of a queue that are read, and queues in one request
WIDE, INDENT = 16, " " * 4  # columns that a column has before FACTS gets some


@click.command()
@click.argument("prefix", required=False, metavar="[ID]")
@pattern_option
@click.option(
    "-f",
    "--follow",
    "is_followed",
    is_flag=True,
    help="Show events from now on, or since --since, until Ctrl-C.",
)
@click.option(
    "--since",
    type=MOMENT,
    metavar="AGE|TIME",
    help="Only events since this time: 2h, 08:00; default 24h, with --follow now.",
)
@click.option(
    "--until",
    "end",
    type=MOMENT,
    metavar="AGE|TIME",
    help="Only events until this time: 2h, 08:00.",
)
@click.option(
    "--by",
    metavar="TEXT",
    help="Only events by a person or listener with TEXT in its name: --by ann.",
)
@click.option(
    "--on",
    "wanted",
    multiple=True,
    metavar="EVENT",
    help="Only these events: --on failed; --on people: what people did.",
)
@click.option(
    "--exec",
    "program",
    type=COMMAND,
    metavar="COMMAND",
    help="Run this program for each event, with the event as JSON on its standard input.",
)
@click.option(
    "--place", metavar="FILE", help="Remember the last event in FILE, and continue after it."
)
@shared_options
def history(
    invocation: Invocation,
    prefix: str | None,
    patterns: Sequence[str],
    is_followed: bool,
    since: tuple[bool, float] | None,
    end: tuple[bool, float] | None,
    by: str | None,
    wanted: Sequence[str],
    program: list[str] | None,
    place: str | None,
) -> None:
    """Show the events of a task or of queues, or follow the events of queues.

    \b
    blueque history 4f1e2c80
    blueque history -q '*' --since 20:00 --until 08:00 --on people
    blueque history -f -q render -q ingest
    blueque history -f -q render --on failed --exec ./page.sh --place pager.json

    A task keeps its first 20 events and its last 80; a queue keeps about 10,000 events of all its tasks. AFTER is the time
    since the event before. With -q and --json each event is an object on a line of its own. All other options need -q;
    --exec and --place need -f, too.

    --exec runs the program once for each event, without a shell. If its exit code is not 0, it runs again for the same
    event, and later events wait. With --place it gets each event that the queue still keeps at least once, even if
    this command is restarted.
    """
    options = (is_followed, since, end, by, wanted, program, place)
    if (prefix is None) == (not patterns) or (prefix is not None and any(options)):
        raise click.UsageError("give the ID of a task, or --queue QUEUE and its options")
    if not is_followed and (program or place):
        raise click.UsageError("--exec and --place go with --follow")
    if is_followed and end:
        raise click.UsageError("give --until or --follow, not both")
    client = invocation.client()
    if prefix is not None:
        _print_task(invocation, client, prefix)
        return
    names = queues_matching(client.get_inspector().queues(), patterns)
    kinds = {*wanted} | (BY_PEOPLE if "people" in wanted else set())
    wants = functools.partial(_wants, kinds, (by or "").lower())
    if not is_followed:
        _print_past(invocation, client, names, since or DAY_AGO, end, wants)
        return
    show = functools.partial(_show, invocation)
    handle = show if program is None else functools.partial(_hand, program)
    file = None if place is None else PlaceFile(place)
    places = _places(client, names, since)
    places |= {} if file is None else file.read(names)
    _follow(client, places, wants, handle, file)


def _print_task(invocation: Invocation, client: Client, prefix: str) -> None:
    task_id = find_one(client.get_inspector(), prefix)
    found = client.get_history(task_id)
    if found is None:
        raise Failure(MISSING, f"task {task_id} no longer exists")
    if invocation.as_json:
        printing.print_json("history", **of_history(task_id, found))
        return
    rows = list(_rows(found.events, invocation.is_utc))
    if found.missing:
        rows.insert(found.early, ("...", "", "", f"{found.missing:,} left out", "", ""))
    _print(_OF_TASK, rows)


def _print(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
    """Print the table; on a terminal, facts that are too long for their column go below their row."""
    room = _room_for_facts(columns, rows) if printing.is_terminal() else None
    below = [
        printing.clean(facts) if room is not None and printing.width(facts) > room else ""
        for *_, facts in rows
    ]
    cells = [(*row[:-1], "" if long else row[-1]) for row, long in zip(rows, below, strict=True)]
    title, *lines = printing.table(columns, cells)
    click.echo(title)
    for line, more in zip(lines, below, strict=True):
        click.echo(line)
        if more:
            printing.print_wrapped(more, INDENT)


def _room_for_facts(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> int:
    """Return how wide FACTS, the last column, can be."""
    taken = 0
    for column, *cells in zip(columns[:-1], *(row[:-1] for row in rows), strict=True):
        wide = max(map(printing.width, [column.title, *cells]))
        taken += 2 + (min(wide, WIDE) if column.can_shrink else wide)
    return printing.terminal_width() - taken


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


def _places(
    client: Client, queues: Sequence[str], since: tuple[bool, float] | None
) -> dict[str, str]:
    """Return where to begin, by queue."""
    if since is None:
        return client.get_event_places(*queues)
    from blueque.queries.history import entry_at  # here: --help does not need it

    first = max(entry_at(_at(since)), 1)
    return dict.fromkeys(queues, f"{first - 1}-{2**64 - 1}")  # behind all before that millisecond


def _at(moment: tuple[bool, float]) -> float:
    is_age, seconds = moment
    return time.time() - seconds if is_age else seconds


def _wants(kinds: Collection[str], by: str, event: Event) -> bool:
    return is_wanted(event, kinds) and by in who(event).lower()


def _print_past(
    invocation: Invocation,
    client: Client,
    queues: Sequence[str],
    since: tuple[bool, float],
    end: tuple[bool, float] | None,
    wants: Callable[[Event], bool],
) -> None:
    """Print the events of a time that are wanted, the oldest first."""
    from blueque.queries.history import newest  # here: --help does not need it

    first, last = _at(since), None if end is None else _at(end)
    if last is not None and last < first:
        raise click.UsageError("--until is earlier than --since")
    found: list[Event] = []
    for some in in_parts(queues, QUEUES_AT_ONCE):
        found += filter(wants, newest(client.connections, some, MOST, first, last))
    found.reverse()  # `newest` has the last first, also of events of one instant
    found.sort(key=lambda each: each.at)
    if invocation.as_json:
        for event in found:
            _show(invocation, event)
    elif found:
        _print(_OF_QUEUES, [_cells(event, invocation.is_utc) for event in found])
    if not found:
        printing.talk("no such event" if last is None else "no such events in that time")


def _follow(
    client: Client,
    places: dict[str, str],
    wants: Callable[[Event], bool],
    handle: Callable[[Event], object],
    file: PlaceFile | None,
) -> None:
    """Handle wanted events after these places, without end; note in the file what is done."""
    outage = Outage("Redis answers again")
    while True:
        try:
            for event in client.events(*places, after=places):
                outage.note(None)
                is_wanted = wants(event)
                if is_wanted:
                    handle(event)
                places[event.queue or ""] = event.place or ""
                if file is not None and is_wanted:
                    file.write(places)
        except RedisAway as error:
            outage.note(str(error), "waiting")
            time.sleep(outage.pause())


def _hand(program: Sequence[str], event: Event) -> None:
    call(program, f"{printing.json_line(_whole(event))}\n")


def _cells(event: Event, is_utc: bool) -> Sequence[str]:
    """Return an event as a row of _OF_QUEUES."""
    when, task = printing.stamp(event.at, is_utc), printing.short_id(event.task) or "-"
    return when, task, word(event), event.queue or "-", who(event), facts(event)


def _show(invocation: Invocation, event: Event) -> None:
    """Print an event as it comes."""
    if invocation.as_json:
        click.echo(printing.json_line(_whole(event)))
        return
    text = printing.clean("  ".join(filter(None, _cells(event, invocation.is_utc))))
    if printing.is_terminal() and printing.width(text) > printing.terminal_width():
        room = printing.terminal_width() - len(INDENT)
        text = f"\n{INDENT}".join(line.strip() for line in printing.lines(text, room))
    click.echo(text)


def _whole(event: Event) -> dict[str, Any]:
    return {"blueque": 2, "kind": "event", "queue": event.queue or "", **event_item(event)}
