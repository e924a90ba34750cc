"""`blueque schedule show` and `history`: everything about one recurring task, and what came of it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from blueque.cli import printing
from blueque.cli.fact_lines import print_fact
from blueque.cli.options import Invocation, reveal_option, shared_options
from blueque.cli.printing import Column
from blueque.cli.recurring import find_schedule
from blueque.cli.values import WholeRange, limit_option
from blueque.documents.schedules import of_history, of_recurring
from blueque.errors import InvalidInput
from blueque.faces import recurring
from blueque.sentences.recurring import (
    NEXT,
    RECENT,
    coming,
    have_seconds,
    in_a_row,
    latest,
    moment_of,
    planned,
    whole,
    why_not,
    why_nothing,
    zone_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import tzinfo

    from blueque.model.schedule import Occurrence
    from blueque.producer.schedules import Schedule
    from blueque.queries.schedules import ScheduleSeen
    from blueque.sentences.reason import Reason
    from blueque.text.redaction import Hide

_COLUMNS = [
    Column("PLANNED"),
    Column("WHAT"),
    Column("TASK"),
    Column("STATE"),
    Column("WHY", can_shrink=True),
]


@click.command(short_help="Show everything about a recurring task.")
@click.argument("name", metavar="SCHEDULE")
@click.option(
    "--next",
    "number",
    type=WholeRange(1, 1000),
    metavar="N",
    default=NEXT,
    show_default=True,
    help="Number of planned times.",
)
@reveal_option
@shared_options
def show(invocation: Invocation, name: str, number: int, reveals: bool) -> None:
    """Show everything about a recurring task, its next times, or why there are none.

    \b
    blueque schedule show nightly --next 10

    Times of a cron rule are in its time zone, others are local, unless you pass --utc. The planned times are
    without jitter.

    """
    client = invocation.client()
    schedule, hide = find_schedule(client, name), invocation.hider(reveals)
    seen, recent = schedule.seen, schedule.history(RECENT)
    reasons = why_nothing(seen, recent, client.get_inspector(), invocation.is_utc)
    if invocation.as_json:
        printing.print_json(
            "recurring", **of_recurring(seen, planned(schedule, number), reasons, hide)
        )
        return
    for label, value in _facts(schedule, seen, recent, number, hide, invocation.is_utc):
        print_fact(label, value)
    for reason in reasons:
        click.echo()
        _print_reason(reason)


@click.command(short_help="Show the outcome of the last planned times.")
@click.argument("name", metavar="SCHEDULE")
@limit_option(100, default=20)
@shared_options
def history(invocation: Invocation, name: str, limit: int) -> None:
    """Show the outcome of the last planned times of a recurring task, the newest first; 100 are kept.

    \b
    blueque schedule history nightly

    STATE is the state of the task now. Planned times that were missed in a row are one line. blueque history -q QUEUE
    shows who changed the recurring task.
    """
    from blueque.queries import schedules  # here: --help does not need it

    client = invocation.client()
    schedule = find_schedule(client, name)
    seen, found = schedule.seen, schedule.history(limit)
    states = schedules.statuses(client.connections, found)
    if invocation.as_json:
        printing.print_json("schedule_history", **of_history(seen, found, states))
        return
    if found:
        zone, is_exact = zone_of(seen, invocation.is_utc), have_seconds(_moments(found))
        rows = [_row(each, states, zone, is_exact) for each in found]
        printing.print_table(_COLUMNS, rows)
    else:
        printing.talk(f"It has made no task yet. Next: {coming(seen, invocation.is_utc)}.")


def _moments(found: list[Occurrence]) -> Iterator[float]:
    for each in found:
        yield from (each.planned, each.until or each.planned)


def _row(
    each: Occurrence, states: dict[str, str | None], zone: tzinfo | None, is_exact: bool
) -> list[str]:
    """is_exact: all times have seconds."""
    task = each.task if each.what in ("made", "triggered") else None
    times = f" {each.times}" if each.times else ""
    until = "" if each.until is None else f"until {_end(each, zone, is_exact)}"
    return [
        whole(each.planned, zone, to_the_second=is_exact),
        f"{each.what}{times}",
        "-" if task is None else printing.short_id(task),
        "-" if task is None else states[task] or "gone",
        printing.short_ids(", ".join(filter(None, (why_not(each), until)))),
    ]


def _end(each: Occurrence, zone: tzinfo | None, is_exact: bool) -> str:
    """Return the last of several planned times, on the same day without the date."""
    end, begin = (moment_of(moment or 0, zone) for moment in (each.until, each.planned))
    if end.date() == begin.date():
        return end.strftime("%H:%M:%S" if is_exact else "%H:%M")
    return whole(each.until or 0, zone, to_the_second=is_exact)


def _facts(
    schedule: Schedule,
    seen: ScheduleSeen,
    recent: list[Occurrence],
    number: int,
    hide: Hide,
    is_utc: bool,
) -> Iterator[tuple[str, str]]:
    record, zone = seen.record, zone_of(seen, is_utc)
    yield "name", seen.name
    yield "queue", record.get("queue", "-")
    try:
        yield "rule", schedule.rule.text()
    except InvalidInput:
        pass  # a reason says so
    for bound in ("start", "until"):
        if bound in record:
            yield bound, whole(record[bound], zone)
    yield "next", coming(seen, is_utc)
    if later := [whole(each, zone) for each in planned(schedule, number)]:
        yield "planned", "\n".join(later)
    yield "last", _last(seen, recent)
    yield from recurring.facts(seen, hide)
    for when in ("created", "updated"):
        yield when, printing.stamp(record.get(when), is_utc)
    parameters = hide(seen.template.parameters)
    yield (
        "parameters",
        parameters if isinstance(parameters, str) else json.dumps(parameters, ensure_ascii=False),
    )


def _last(seen: ScheduleSeen, recent: list[Occurrence]) -> str:
    if "current" not in seen.record:
        return "-"
    what, times = in_a_row(recent)
    more = f"; then {what} {times}" if what in ("skipped", "missed") else ""
    return f"{latest(seen)}, task {seen.record['current']}{more}"


def _print_reason(reason: Reason) -> None:
    printing.print_wrapped(printing.clean(printing.short_ids(reason.sentence)))
    if reason.command is not None:
        click.echo(f"  {printing.clean(reason.command)}")
