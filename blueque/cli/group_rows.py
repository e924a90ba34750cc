"""Groups and feeds as rows of a table, and what to do about a group."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import click

from blueque.cli import printing
from blueque.cli.printing import Column, number_columns
from blueque.cli.task_columns import TaskColumn, chosen
from blueque.model.group import MAKING, is_held, shown_state
from blueque.queries.feeds import state_of
from blueque.text import hints

if TYPE_CHECKING:
    from blueque.model.task import Task
    from blueque.queries.groups import GroupSeen
    from blueque.text.redaction import Hide

_COLUMNS = [
    Column("GROUP", can_shrink=True, is_name=True),
    Column("KIND", can_shrink=True, yields=True),
    Column("STATE"),
    *number_columns("AGE", "TASKS", "COMPLETE", "BAD", "OPEN", "WAITING"),
]
_OF_BAD = ("id", "what", "queue", "state", "for", "error")


def print_groups(
    found: Sequence[GroupSeen], now: float, feeds: Sequence[Mapping[str, str]] = ()
) -> None:
    """Print groups and feeds, and when the last task of an incomplete workflow was added."""
    rows = [_row(seen, now) for seen in found] + [_row_of_feed(record, now) for record in feeds]
    printing.print_table(_COLUMNS, rows)
    for seen in found:
        at = seen.record.get("updated")
        if seen.state == MAKING and at is not None:
            ago = printing.span(max(now - at, 0.0))
            printing.talk(f"{seen.name} is being made: its last tasks were added {ago} ago")


def print_bad(tasks: Sequence[Task], now: float, hide: Hide) -> None:
    """Print tasks of a group that failed, were cancelled or are gone, below its row."""
    shown = chosen(_OF_BAD, hide)
    rows = [[_cell(one, task, now) for one in shown] for task in tasks]
    click.echo("\n" + "\n".join(printing.table([one.column for one in shown], rows)))


def _cell(column: TaskColumn, task: Task, now: float) -> str:
    if column.column.title == "STATE" and task.status is None:
        return "gone"
    return column.cell(task, now, False)


def _row(seen: GroupSeen, now: float) -> list[str]:
    created = seen.record.get("created")
    age = "-" if created is None else printing.span(now - created)
    state = shown_state(seen.state, "cancel" in seen.record, seen.open)
    numbers_of = (seen.members, seen.complete, seen.bad, seen.open, seen.waiting)
    return [seen.name, seen.kind, state, age, *map(str, numbers_of)]


def _row_of_feed(record: Mapping[str, str], now: float) -> list[str]:
    state, since = state_of(record)
    age = "-" if since is None else printing.span(now - since)
    tasks, skipped = record.get("tasks", "-"), record.get("skipped", "-")
    return [record["feed"], "feed", state, age, tasks, "-", skipped, "-", "-"]


def remarks(seen: GroupSeen, can_run: bool, now: float, is_utc: bool) -> Iterator[str]:
    """Yield who has cancelled a group, how long its results are kept, and what to do next.

    can_run: whether any of its tasks can be put in line again.
    """
    record, name = seen.record, seen.name
    if "cancel" in record:
        reason = f": {record['cancel_reason']}" if record.get("cancel_reason") else ""
        ago = printing.span(max(now - record["cancel"], 0.0))
        yield f"It was cancelled {ago} ago by {record.get('cancelled_by', 'unknown')}{reason}."
    elif seen.state == "open":
        yield f"It is open: more tasks can join it. When all have joined: {hints.of_group('close', name)}"
    elif seen.state == MAKING:
        yield f"None of its tasks runs until all are there. To give it up: {hints.of_group('cancel', name)}"
    if is_kept(seen, now):
        until = printing.stamp(record["hold"], is_utc)
        yield f"Its tasks are kept until its results are collected, at most until {until}."
    if can_run and seen.is_whole and not seen.is_cancelling:
        yield f"To run the BAD tasks again: {hints.of_group('requeue', name)}"
    if seen.waiting and seen.bad and seen.has_ended:
        them = "The task that waits" if seen.waiting == 1 else "The tasks that wait"
        yield f"{them} for it: {hints.of_queue('graph', name)}"


def is_kept(seen: GroupSeen, now: float) -> bool:
    """Return whether the results of a group are kept until they are collected."""
    hold, collected = seen.record.get("hold"), seen.record.get("collected")
    return is_held(
        None if hold is None else str(hold), None if collected is None else str(collected), now
    )
