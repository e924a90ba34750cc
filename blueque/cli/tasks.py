"""`blueque ls` and `blueque show`: some tasks in a table, one task in full."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any

import click

from blueque import commands
from blueque.cli import show
from blueque.cli.facts import contents, facts
from blueque.cli.failure import MISSING, USAGE, Failure
from blueque.cli.options import Invocation, json_option, pass_invocation, shared_options
from blueque.cli.show import Column
from blueque.inspector import Inspector
from blueque.places import FINISHED
from blueque.survey import MAX_FOUND, MIN_PREFIX, STATUSES, entered
from blueque.task import Task

_COLUMNS = [
    Column("ID", can_shrink=True), Column("QUEUE", can_shrink=True), Column("STATE"), Column("FOR", True),
    Column("NODE", can_shrink=True), Column("NOTE", can_shrink=True),
]
_MAX_LINES = 12                                        # of a long value, on a terminal
_LABEL = 12


@click.command()
@click.option("-q", "--queue", "patterns", multiple=True, metavar="PATTERN", help="Only these: a name, or as 'render.*'.")
@click.option("--state", "states", multiple=True, type=click.Choice(STATUSES), help="Only these; may be repeated.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="How many at most.")
@click.option("--ids", "--quiet", "only_ids", is_flag=True, help="Print the ids only, whole, one per line.")
@json_option
@shared_options
@pass_invocation
def ls(
    invocation: Invocation,
    patterns: Sequence[str],
    states: Sequence[str],
    limit: int,
    only_ids: bool,
    as_json: bool,
) -> None:
    """List tasks; without options those that are started, reserved or pending.

    \b
    blueque ls -q 'render.*' --state failed
    blueque ls --state complete --limit 1000 --json

    FOR is the time in that state. First come the started, then the reserved, pending, scheduled, failed, cancelled and
    complete ones; of finished tasks the newest first, of pending and scheduled ones those whose turn comes first, of others
    the longest in their state.
    """
    inspector = invocation.client().get_inspector()
    queues = _matching(inspector.queues(), patterns)
    listing = inspector.listing(queues, states or ("started", "reserved", "pending"), limit)
    if as_json:
        items = [as_item(task, listing.now) for task in listing.tasks]
        show.print_json("tasks", **show.times(now=listing.now), items=items, has_more=listing.has_more)
    elif only_ids:
        for task in listing.tasks:
            click.echo(show.clean(task.id))
    elif listing.tasks:
        click.echo("\n".join(show.table(_COLUMNS, [_row(task, listing.now) for task in listing.tasks])))
    else:
        show.talk("no such tasks")
    if listing.has_more:
        show.talk(f"The first {limit} only: --limit N shows more.")


@click.command("show")
@click.argument("prefix", metavar="ID")
@json_option
@shared_options
@pass_invocation
def show_task(invocation: Invocation, prefix: str, as_json: bool) -> None:
    """Show everything about the task ID.

    ID may be its beginning, of 4 characters at least, if no other task begins so.
    """
    inspector = invocation.client().get_inspector()
    task, now = inspector.task(find_one(inspector, prefix)), inspector.now()
    if as_json:
        show.print_json("task", **show.times(now=now), item=as_item(task, now) | contents(task))
        return
    for label, value in facts(task, now, invocation.is_utc):
        _print_fact(label, value)


def find_one(inspector: Inspector, prefix: str) -> str:
    """Return the only id that begins so; end the program when there is none or more than one."""
    found = inspector.find(prefix)
    if len(found) == 1:
        return found[0]
    if found:
        count = f"{MAX_FOUND} tasks or more" if len(found) == MAX_FOUND else f"{len(found)} tasks"
        some = ", ".join(found[:3]) + (", ..." if len(found) > 3 else "")
        raise Failure(USAGE, f"{count} begin with {prefix!r}: {some}", "Give more of the id.")
    if len(prefix) < MIN_PREFIX:
        raise Failure(USAGE, f"{prefix!r} is too short: give at least {MIN_PREFIX} characters of the id")
    advice = "It may have been deleted, or be too old to be found by a part of its id: give the whole."
    raise Failure(MISSING, f"no task {prefix!r}", advice)


def as_item(task: Task, now: float) -> dict[str, Any]:
    """Return what is shown of a task everywhere, for JSON."""
    since = entered(task)
    return {
        "id": task.id, "status": task.status, "queue": task.queue, "node": task.node, "pid": task.pid,
        "attempt": task.attempt, "for_seconds": None if since is None else finite(now - since),
        **show.times(
            created=task.created, started=task.started, finished=task.finished, updated=task.updated, eta=task.eta
        ),
        "error_type": task.error_type, "exit_code": task.exit_code, "signal": task.signal, "failures": task.failures,
        "last_error_type": task.last_error_type, "progress": task.fields.get("progress"), "cancelled_by": task.cancelled_by,
        "priority": task.fields.get("priority"), "needs": task.fields.get("needs"), "devices": task.fields.get("devices"),
    }


def _matching(queues: Sequence[str], patterns: Sequence[str]) -> list[str]:
    """Return the queues that match any of the patterns; every one must match at least one queue."""
    if not patterns:
        return list(queues)
    matching: set[str] = set()
    for pattern in patterns:
        # A name stands for itself first: it may hold what means something else in a pattern.
        found = [pattern] if pattern in queues else [queue for queue in queues if fnmatchcase(queue, pattern)]
        if not found:
            raise Failure(MISSING, f"no queue {pattern!r}", "See the names: blueque status")
        matching.update(found)
    return sorted(matching)


def _row(task: Task, now: float) -> list[str]:
    since = entered(task)
    in_state = "-" if since is None or task.status == "scheduled" else show.span(now - since)
    node = show.short_node(task.node or "-")
    return [show.short_id(task.id), task.queue or "-", task.status or "-", in_state, node, _note(task, now)]


def _note(task: Task, now: float) -> str:
    """Return what is remarkable about the task, the most important first."""
    notes = []
    if task.status == "scheduled" and task.eta is not None:
        notes.append(f"{'retry ' if task.last_error_type else ''}{show.due(task.eta, now)}")
    if task.status in ("pending", "scheduled") and task.fields.get("priority"):
        notes.append(f"priority {task.fields['priority']}")
    if task.status in ("pending", "scheduled") and task.fields.get("needs"):
        notes.append(f"needs {commands.words_of(task.fields['needs'])}")
    if task.status == "pending" and task.last_error_type:
        notes.append("to run again")
    if task.status == "started" and "cancel" in task.fields:
        notes.append("cancelling")
    if "cancelled_by" in task.fields and task.status in ("started", "cancelled"):
        notes.append(f"{'asked ' if task.status == 'started' else ''}by {task.cancelled_by}")
    if task.status == "failed":
        reason = task.signal or (task.exit_code is not None and f"exit {task.exit_code}")
        notes += [str(part) for part in (task.error_type, reason) if part]
    elif task.last_error_type and task.status != "complete":
        notes.append(f"after {task.last_error_type}")
    if task.status in FINISHED and task.started and task.finished:
        notes.append(f"ran {show.span(task.finished - task.started)}")
    if (task.attempt or 0) > 1:
        notes.append(f"attempt {task.attempt}")
    return ", ".join(notes)


def _print_fact(label: str, value: str) -> None:
    """Print a value beside its label; one of several lines, or a long one, in a block."""
    lines = [show.clean(line) for line in value.split("\n")]
    if show.is_terminal():
        lines = [piece for line in lines for piece in show.pieces(line, show.terminal_width() - _LABEL)]
        hidden = len(lines) - _MAX_LINES
        if hidden > 0:
            lines[_MAX_LINES:] = [f"... ({hidden} more lines: --json shows all)"]
    title = show.clean(label)
    if len(title) >= _LABEL:
        lines.insert(0, "")
    for n, line in enumerate(lines):
        click.echo(f"{title if n == 0 else '':<{_LABEL}}{line}" if line else title if n == 0 else "")


def finite(number: float | None) -> float | None:
    """Return the number if JSON can say it."""
    return number if number is not None and math.isfinite(number) else None
