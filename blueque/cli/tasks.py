"""`blueque ls` and `blueque show`: some tasks in a table, one task in full."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any

import click

from blueque.cli import show
from blueque.cli.failure import MISSING, USAGE, Failure
from blueque.cli.options import Invocation, json_option, pass_invocation, shared_options
from blueque.cli.show import Column
from blueque.inspector import Inspector
from blueque.survey import MAX_FOUND, MIN_PREFIX, STATUSES, entered
from blueque.task import FIELDS, Task

_COLUMNS = [
    Column("ID", can_shrink=True), Column("QUEUE", can_shrink=True), Column("STATE"), Column("FOR", True),
    Column("NODE", can_shrink=True), Column("NOTE", can_shrink=True),
]
_MAX_LINES = 12                                        # of a long value, on a terminal
_LABEL = 12
_MORE = [                                              # what few tasks have
    "retry", "time_limit", "stall_limit", "memory_limit", "grace", "lead", "failures", "interruptions", "last_error",
    "last_error_type", "memory_peak", "cpu_seconds", "leaked", "lost_node", "cancelled_by", "cancel_reason",
    "requeued",
]


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

    FOR is the time in that state. First come the started, then the reserved, pending, scheduled, failed and complete
    ones; of finished tasks the newest first, of others the longest in their state (of scheduled ones the next due).
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
        show.print_json("task", **show.times(now=now), item=as_item(task, now) | _contents(task))
        return
    for label, value in _facts(task, now, invocation.is_utc):
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
        "attempt": task.attempt, "for_seconds": None if since is None else _finite(now - since),
        **show.times(
            created=task.created, started=task.started, finished=task.finished, updated=task.updated, eta=task.eta
        ),
        "error_type": task.error_type, "exit_code": task.exit_code, "signal": task.signal,
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
    notes = []
    if task.status == "scheduled" and task.eta is not None:
        notes.append(_due(task.eta, now))
    if task.status == "failed":
        reason = task.signal or (task.exit_code is not None and f"exit {task.exit_code}")
        notes += [str(part) for part in (task.error_type, reason) if part]
    if task.status in ("complete", "failed") and task.started and task.finished:
        notes.append(f"ran {show.span(task.finished - task.started)}")
    if (task.attempt or 0) > 1:
        notes.append(f"attempt {task.attempt}")
    return ", ".join(notes)


def _due(eta: float, now: float) -> str:
    return f"due in {show.span(eta - now)}" if eta > now else f"due since {show.span(now - eta)}"


def _contents(task: Task) -> dict[str, Any]:
    """Return the large values of a task, and the fields that other programs have added, for JSON.

    Not its token: whoever presents that owns the attempt.
    """
    contents: dict[str, Any] = {name: task.fields.get(name) for name in ("error", "traceback")}
    contents |= {name: _value(task, name) for name in ("parameters", "result")}
    contents |= {name: text for name in _MORE if (text := task.fields.get(name)) is not None}
    contents |= show.times(progress_at=task.progress_at, cancel=task.cancel, last_seen=task.last_seen)
    others = {name: text for name, text in task.fields.items() if name not in FIELDS}
    return contents | ({"other": others} if others else {})


def _value(task: Task, name: str) -> Any:
    """Return parameters or result as they were given; as text what JSON could not say again."""
    try:
        value = getattr(task, name)
        json.dumps(value, allow_nan=False)
    except (ValueError, RecursionError):               # NaN or a bottomless pit, made by another program
        return task.fields.get(name)
    return value


def _facts(task: Task, now: float, is_utc: bool) -> list[tuple[str, str]]:
    attempt = f", attempt {task.attempt}" if task.attempt else ""
    facts = [("task", task.id), ("queue", task.queue), ("state", f"{task.status}{attempt}"), ("node", task.node)]
    facts += [("pid", task.fields.get("pid"))]
    for name in ("created", "eta", "started", "progress_at", "cancel", "last_seen", "finished", "updated"):
        seconds: float | None = getattr(task, name)
        if seconds is not None:
            facts.append((name, f"{show.stamp(seconds, is_utc)}  ({_relative(name, seconds, task, now)})"))
    for name in (
        "reclaimed_node", *_MORE, "error_type", "exit_code", "signal", "error", "traceback", "parameters", "result"
    ):
        facts.append((name, task.fields.get(name)))
    facts += [(name, text) for name, text in sorted(task.fields.items()) if name not in FIELDS]
    return [(name, text) for name, text in facts if text is not None]


def _relative(name: str, seconds: float, task: Task, now: float) -> str:
    if name == "eta":
        return _due(seconds, now) if task.status == "scheduled" else "was due"
    ago = f"{show.span(now - seconds)} ago"
    if name == "finished" and task.started is not None:
        return f"{ago}, ran {show.span(seconds - task.started)}"
    return ago


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


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None
