"""The options that select tasks by what they are, the same for every verb that takes many tasks."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from blueque.cli import printing
from blueque.cli.failure import ATTENTION
from blueque.cli.labels import tag_option
from blueque.cli.named import queues_matching
from blueque.cli.options import PAST_TIME, RenamedOption
from blueque.errors import InvalidInput
from blueque.model.ids import id_of_key, ids_of_run_keys
from blueque.model.states import FINISHED
from blueque.model.units import parse_duration
from blueque.queries.listing import entered
from blueque.queries.search import Choice

if TYPE_CHECKING:
    from blueque.cli.options import Decorated
    from blueque.model.task import Task
    from blueque.queries.inspector import Inspector
    from blueque.queries.listing import Listing

DECADE = 10 * 365 * 86400.0  # a larger number is a time, not an age
MOST = 10_000  # tasks that one call changes


class Moment(click.ParamType):  # type: ignore[type-arg]  # generic in newer click only
    """A time, written as an age such as 24h, or as for `Time`: (whether it is an age, seconds)."""

    name = "time"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[bool, float]:
        if not isinstance(value, str):
            return value
        try:
            age = parse_duration(value)
        except InvalidInput:
            return False, PAST_TIME.convert(value, param, ctx)
        return age < DECADE, age


class Selection(NamedTuple):
    """What the options name. Several values of an option select the tasks that have one of them."""

    key: Sequence[str] = ()
    run: Sequence[str] = ()
    error_type: Sequence[str] = ()
    text: str | None = None
    since: tuple[bool, float] | None = None
    until: tuple[bool, float] | None = None
    schedule: Sequence[str] = ()
    tags: Sequence[str] = ()

    @property
    def is_named(self) -> bool:
        """Whether it says what the tasks are, not only when they entered their state."""
        return any(self[:4]) or bool(self.tags)

    @property
    def is_any(self) -> bool:
        """Whether any option was given."""
        times = (self.since, self.until)
        return self.is_named or bool(self.schedule) or times != (None, None)

    def wants(self, task: Task, now: float) -> bool:
        """Tell whether a task is selected, as far as the fields in `listing.SHOWN` say so."""
        fields = task.fields
        return (
            (not self.key or fields.get("key") in self.key)
            and (not self.run or fields.get("run") in self.run)
            and {*self.tags} <= {*(task.tags or ())}
            and (not self.schedule or fields.get("schedule") in self.schedule)
            and (not self.error_type or _error_type(task) in self.error_type)
            and self._is_in_time(task, now)
        )

    def inside(self, task: Task) -> bool:
        """Tell whether a text of the task has the words that are looked for."""
        words = (self.text or "").casefold()
        return any(words in task.fields.get(name, "").casefold() for name in _TEXTS)

    def choice(self, queues: Sequence[str], inspector: Inspector) -> Choice:
        """Return what to search for in these queues. The tasks of keys, of tags and of runs with a
        group are found by their ids.
        """
        if self.tags:
            ids, has_more = inspector.tagged(self.tags)
            if has_more:
                printing.talk("Of each tag, only the first 10,000 tasks were searched.")
            inside = None if self.text is None else self.inside
            return Choice(self.wants, inside=inside, ids=ids, is_indexed=True)
        runs = [(queue, run) for queue in queues for run in self.run]
        members = inspector.run_members(runs) if runs and not self.key else None
        if members is not None:
            inside = None if self.text is None else self.inside
            return Choice(self.wants, inside=inside, ids=members, is_indexed=True)
        ids = [id_of_key(queue, key) for queue in queues for key in self.key]
        keys = [key.encode() for key in self.key]
        ids += [one.decode() for pair in runs for one in ids_of_run_keys(*pair, keys)]
        return Choice(self.wants, inside=None if self.text is None else self.inside, ids=ids)

    def _is_in_time(self, task: Task, now: float) -> bool:
        if self.since is None and self.until is None:
            return True
        moment = (task.created if task.status == "scheduled" else entered(task)) or 0.0
        first, last = _moment(self.since, now), _moment(self.until, now)
        return (first is None or moment >= first) and (last is None or moment <= last)


_TEXTS = ("title", "key", "parameters", "error", "last_error", "progress")


def _error_type(task: Task) -> str | None:
    """Return the type of its error; of a task that will run again, of its last error."""
    if task.error_type is not None or task.status in FINISHED:
        return task.error_type
    return task.last_error_type


def _moment(given: tuple[bool, float] | None, now: float) -> float | None:
    if given is None:
        return None
    is_age, seconds = given
    return now - seconds if is_age else seconds


_OPTIONS = (
    click.option("--key", multiple=True, metavar="KEY", help="Only the task with this key."),
    click.option("--run", multiple=True, metavar="NAME", help="Only tasks of this run."),
    tag_option("Only tasks with this tag; several times: with all of them."),
    click.option(
        "--schedule", multiple=True, metavar="SCHEDULE", help="Only tasks of this recurring task."
    ),
    click.option(
        "--error-type",
        multiple=True,
        metavar="TYPE",
        help="Only tasks with this error type: lost, signal, ValueError.",
    ),
    click.option(
        "--text",
        metavar="WORDS",
        help="Only tasks with these words in title, key, parameters, error or progress.",
    ),
    click.option(
        "--since",
        type=Moment(),
        metavar="AGE|TIME",
        help="Only tasks that entered their state since then: 24h, 08:00.",
    ),
    click.option(
        "--until",
        cls=RenamedOption,
        formerly=("--older-than",),
        type=Moment(),
        metavar="AGE|TIME",
        help="Only tasks that entered their state before then: 2h, 'yesterday 18:00'.",
    ),
)


def selection_options(command: Decorated) -> Decorated:
    """Add the options, as the parameter `selection`."""

    @functools.wraps(command)
    def collected(*arguments: Any, **options: Any) -> Any:
        given = {name: options.pop(name) for name in Selection._fields}
        return command(*arguments, selection=Selection(**given), **options)

    wrapped: Any = collected
    for option in reversed(_OPTIONS):
        wrapped = option(wrapped)
    return wrapped


def selected(
    inspector: Inspector,
    patterns: Sequence[str],
    states: Sequence[str],
    selection: Selection,
    limit: int | None = None,
    is_oldest_first: bool = False,
) -> tuple[list[Task], int]:
    """Return the tasks in these queues and states that are selected, and an exit code: ATTENTION if
    there are more, or may be.

    limit: None: at most MOST.
    """
    queues = queues_matching(inspector.queues(), patterns)
    choice = selection.choice(queues, inspector) if selection.is_any or is_oldest_first else None
    if choice is not None and is_oldest_first:
        choice = choice._replace(is_oldest_first=True)
    listing = inspector.listing(queues, states, limit or MOST, choice)
    has_more = listing.has_more and limit is None
    if has_more:
        printing.talk(f"These are the first {MOST}; there are more: run it again for the rest.")
    elif listing.looked_at is not None:
        say_what_was_searched(listing)
    return listing.tasks, ATTENTION if has_more or listing.looked_at is not None else 0


def require_one_way(
    ids: Sequence[str], patterns: Sequence[str], states: Sequence[str], selection: Selection
) -> bool:
    """Tell whether options select the tasks, and not ids. Ends the program if both do, or neither."""
    if ids and (patterns or states or selection.is_any):
        raise click.UsageError("name the tasks by ID, or select them by options, not both")
    if not ids and not patterns and not selection.is_any:
        needs = "--state needs more: " if states else ""
        raise click.UsageError(
            f"{needs}name the tasks: ID..., or --queue QUEUE, --key KEY, --run NAME"
        )
    return not ids


def say_what_was_searched(listing: Listing) -> None:
    """Say that not all tasks were searched."""
    printing.talk(
        f"Only the first {listing.looked_at} tasks of each queue and state were searched."
    )
