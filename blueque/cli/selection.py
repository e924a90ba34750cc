"""The options that select tasks by what they are, the same for every verb that takes many tasks."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from blueque.cli import printing
from blueque.cli.failure import ATTENTION
from blueque.cli.named import queues_matching, require_groups
from blueque.cli.options import together
from blueque.cli.task_options import tag_option
from blueque.cli.values import MOMENT
from blueque.queries.selection import Selection

if TYPE_CHECKING:
    from blueque.cli.options import Decorated
    from blueque.model.task import Task
    from blueque.queries.inspector import Inspector
    from blueque.queries.listing import Listing

MOST = 10_000  # tasks that one call changes


_OPTIONS = {
    "key": click.option("--key", multiple=True, metavar="KEY", help="Only the task with this key."),
    "group": click.option(
        "--group", multiple=True, metavar="NAME", help="Only tasks of this group."
    ),
    "tags": tag_option("Only tasks with this tag; if repeated, with all of the tags."),
    "schedule": click.option(
        "--schedule", multiple=True, metavar="SCHEDULE", help="Only tasks of this recurring task."
    ),
    "error_type": click.option(
        "--error-type",
        multiple=True,
        metavar="TYPE",
        help="Only tasks with this error type: lost, signal, ValueError.",
    ),
    "text": click.option(
        "--text",
        metavar="WORDS",
        help="Only tasks with these words in title, key, parameters, error or progress.",
    ),
    "since": click.option(
        "--since",
        type=MOMENT,
        metavar="AGE|TIME",
        help="Only tasks that entered their state after this time: 24h, 08:00.",
    ),
    "until": click.option(
        "--until",
        type=MOMENT,
        metavar="AGE|TIME",
        help="Only tasks that entered their state before this time: 2h, 'yesterday 18:00'.",
    ),
}


def selection_of(*names: str) -> Callable[[Decorated], Decorated]:
    """Return a decorator that adds these options, as the parameter `selection`."""

    def add(command: Decorated) -> Decorated:
        @functools.wraps(command)
        def collected(*arguments: Any, **options: Any) -> Any:
            given = {name: options.pop(name) for name in names}
            return command(*arguments, selection=Selection(**given), **options)

        wrapped: Any = collected
        options: Any = together(*(_OPTIONS[name] for name in names))
        found: Decorated = options(wrapped)
        return found

    return add


selection_options = selection_of(*_OPTIONS)


def selected(
    inspector: Inspector,
    patterns: Sequence[str],
    states: Sequence[str],
    selection: Selection,
    is_oldest_first: bool = False,
) -> tuple[list[Task], int]:
    """Return the selected tasks in these queues and states, and an exit code.

    ATTENTION: there may be more, because it takes at most MOST.
    """
    queues = queues_matching(inspector.queues(), patterns)
    require_groups(inspector, selection.group)
    choice = (
        selection.choice(queues, inspector, printing.talk)
        if selection.is_any or is_oldest_first
        else None
    )
    if choice is not None and is_oldest_first:
        choice = choice._replace(is_oldest_first=True)
    listing = inspector.listing(queues, states, MOST, choice)
    if listing.has_more:
        printing.talk(f"These are the first {MOST:,}; there are more: run it again for the rest.")
    elif listing.looked_at is not None:
        say_what_was_searched(listing)
    return listing.tasks, ATTENTION if listing.has_more or listing.looked_at is not None else 0


def require_one_way(
    ids: Sequence[str], patterns: Sequence[str], states: Sequence[str], selection: Selection
) -> bool:
    """Return whether options select the tasks, and not ids. Ends the program if both do, or neither."""
    if ids and (patterns or states or selection.is_any):
        raise click.UsageError("name the tasks by ID, or select them by options, not both")
    if not ids and not patterns and not selection.is_any:
        needs = "--state needs more: " if states else ""
        raise click.UsageError(
            f"{needs}name the tasks: ID..., or --queue QUEUE, --key KEY, --group NAME"
        )
    return not ids


def is_of_groups(patterns: Sequence[str], selection: Selection) -> bool:
    """Return whether options name groups, and nothing else."""
    is_alone = selection == Selection(group=selection.group) and not patterns
    return bool(selection.group) and is_alone


def say_what_was_searched(listing: Listing) -> None:
    """Say that not all tasks were searched."""
    printing.talk(
        f"Only the first {listing.looked_at} tasks of each queue and state were searched."
    )
