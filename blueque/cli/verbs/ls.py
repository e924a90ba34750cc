"""`blueque ls`: list tasks in a table."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import click

from blueque.cli import printing
from blueque.cli.named import pattern_option, queues_matching, require_groups
from blueque.cli.options import Invocation, shared_options
from blueque.cli.selection import say_what_was_searched, selection_options
from blueque.cli.states import state_option
from blueque.cli.task_columns import (
    COLUMNS,
    USUAL,
    USUAL_OF_PENDING,
    TaskColumn,
    chosen,
    contents_for,
    explained,
    left,
)
from blueque.cli.values import Value, limit_option
from blueque.documents.tasks import of_list
from blueque.errors import InvalidInput
from blueque.faces.task_list import UNFINISHED, Sorting, choice_of, load, usual_states
from blueque.model.states import FINISHED
from blueque.queries.listeners import names_of
from blueque.queries.listing import STATUSES, Listing
from blueque.queries.search import Choice
from blueque.sentences.start import Start, starts
from blueque.text.format import no_open_task

if TYPE_CHECKING:
    from blueque.client import Client
    from blueque.model.task import Task
    from blueque.queries.inspector import Inspector
    from blueque.queries.listeners import Node
    from blueque.queries.selection import Selection

HELD_UP = "held"  # a choice of --state: blocked tasks that cannot go on unless a person acts
ENDED = "finished"  # the same: complete, failed and cancelled
MOST = 10_000  # tasks in one list


def _read_columns(text: str) -> tuple[str, ...]:
    names = tuple(part.strip().lower() for part in text.split(","))
    for name in names:
        if name not in COLUMNS:
            raise InvalidInput(f"unknown column {name!r}; the columns are {', '.join(COLUMNS)}")
    return names


@click.command()
@pattern_option
@state_option((*STATUSES, HELD_UP, ENDED, "all"))
@click.option(
    "--node", metavar="NODE|HOST", help="Only tasks that run, or ran last, on this node or host."
)
@selection_options
@click.option(
    "--columns",
    type=Value("columns", _read_columns),
    metavar="NAMES",
    help="The columns to show: id,node,ran,error.",
)
@click.option("--sort", metavar="COLUMN", help="Sort by this column; -COLUMN: largest first.")
@limit_option(MOST, text="Show at most N tasks.")
@click.option("--ids", "only_ids", is_flag=True, help="Print only the full ids, one per line.")
@shared_options
def ls(
    invocation: Invocation,
    patterns: Sequence[str],
    states: Sequence[str],
    node: str | None,
    selection: Selection,
    columns: Sequence[str] | None,
    sort: str | None,
    limit: int,
    only_ids: bool,
) -> None:
    """List tasks; without options, those that are started, reserved or pending.

    \b
    blueque ls -q 'render.*' --state failed --since 24h --columns id,error
    blueque ls --key scene-17
    blueque ls --text 'disk full' --since 'yesterday 18:00' --until 08:00
    blueque ls --state finished --sort -ran --json
    blueque ls --state failed --ids --limit 1000 | blueque requeue -

    State finished means all tasks that have ended, all means every task. State held means the blocked tasks that
    cannot go on: they wait for a task that failed, was cancelled or is gone. NOTE names that task, and `blueque why`
    says what to do.

    Finished tasks are sorted by their end, newest first; pending and scheduled tasks by their turn. Others are sorted
    by FOR, the time in their state, longest first.

    With --key, --group, --tag, --schedule, --error-type or --text, and without --state, tasks in all states are
    listed.

    With --state pending alone, REASON says why each of the first 100 tasks waits, and START estimates when it can
    start. `blueque why` tells more.

    Columns: id, what, queue, state, for, node, note, pid, attempt, priority, ran (how long), progress, left, error,
    error_text, title, key, producer, group, parameters, result, reason, start, created, eta, started, finished,
    updated. To select or sort, and for state held, it searches up to 100,000 tasks, from the beginning of the list of
    each queue and state. If there are more, it says so. A key outside a group is always found.
    """
    client = invocation.client()
    inspector = client.get_inspector()
    queues = queues_matching(inspector.queues(), patterns)
    require_groups(inspector, selection.group)
    wanted = _wanted(states, usual_states(selection, node))
    is_left = "left" in (*(columns or ()), (sort or "").strip("- ").lower())
    nodes = inspector.nodes() if is_left else []
    choice = choice_of(queues, inspector, selection, node, _sorting(sort, nodes), printing.talk)
    held = _Held({}, False)
    if HELD_UP in wanted:
        held = _Held(inspector.broken_in(queues), "blocked" not in wanted)
        choice = held.narrowed(choice)
        wanted = [*{state if state != HELD_UP else "blocked": 0 for state in wanted}]
    hide, is_pending = invocation.hider(False), [*wanted] == ["pending"]
    usual = USUAL_OF_PENDING if is_pending else USUAL
    read = [] if only_ids else contents_for(["what"] if invocation.as_json else columns or usual)
    listing = load(inspector, queues, wanted, limit, choice, read)
    begins = _begins(
        inspector, listing, is_pending and (invocation.as_json or not columns), columns or ()
    )
    if invocation.as_json:
        printing.print_json("tasks", **of_list(listing, hide, held.by, begins))
    elif only_ids:
        for task in listing.tasks:
            click.echo(printing.clean(task.id))
    elif listing.tasks:
        columns_shown = chosen(columns or usual, hide, nodes)
        _print(
            [explained(held.explained(column), begins) for column in columns_shown],
            listing,
            invocation.is_utc,
        )
    else:
        is_all = wanted is UNFINISHED and not selection.is_any and node is None
        _say_nothing(client, node, queues if is_all else (), patterns)
    _say_more(listing, limit)
    if wanted is UNFINISHED and not (invocation.as_json or only_ids):
        _say_later(inspector, queues)


def _wanted(states: Sequence[str], usual: Sequence[str]) -> Sequence[str]:
    """Return the states that --state names; without it: the usual ones."""
    if "all" in states:
        return STATUSES
    if ENDED in states:
        return [state for state in (*states, *FINISHED) if state != ENDED]
    return states or usual


def _print(columns: Sequence[TaskColumn], listing: Listing, is_utc: bool) -> None:
    rows = [[one.cell(task, listing.now, is_utc) for one in columns] for task in listing.tasks]
    printing.print_table([one.column for one in columns], rows)


def _begins(
    inspector: Inspector, listing: Listing, is_usual: bool, columns: Sequence[str]
) -> dict[str, Start]:
    """Return why the pending tasks of a list wait, if that is shown."""
    if not is_usual and {"reason", "start"}.isdisjoint(columns):
        return {}
    return starts(inspector, [task for task in listing.tasks if task.status == "pending"])


class _Held(NamedTuple):
    """What holds up blocked tasks, by their ids. is_alone: other blocked tasks are not wanted."""

    holders: Mapping[str, Sequence[Task]]
    is_alone: bool

    def narrowed(self, choice: Choice | None) -> Choice:
        usual = choice or Choice(lambda task, now: True)

        def wants(task: Task, now: float) -> bool:
            is_left_out = self.is_alone and task.status == "blocked" and task.id not in self.holders
            return not is_left_out and usual.wants(task, now)

        return usual._replace(wants=wants)

    def by(self, task: Task) -> list[str] | None:
        return [one.id for one in self.holders[task.id]] if task.id in self.holders else None

    def explained(self, column: TaskColumn) -> TaskColumn:
        """Return the column NOTE with what holds up a task; other columns as they are."""
        if column.column.title != "NOTE" or not self.holders:
            return column

        def cell(task: Task, now: float, is_utc: bool) -> str:
            names = [printing.short_id(name) for name in self.by(task) or ()]
            more = f" and {len(names) - 1} more" if names[1:] else ""
            held = f"held by {names[0]}{more}" if names else ""
            return ", ".join(words for words in (held, column.cell(task, now, is_utc)) if words)

        return column._replace(cell=cell)


def _sorting(sort: str | None, nodes: Sequence[Node]) -> Sorting | None:
    """Return the order that --sort names; None: as they come. nodes: for LEFT."""
    if sort is None:
        return None
    name = sort.removeprefix("-").strip().lower()
    if name not in COLUMNS:
        raise click.UsageError(
            f"--sort {sort!r}: unknown column; the columns are {', '.join(COLUMNS)}"
        )
    rank = left(nodes).rank if name == "left" else COLUMNS[name].rank
    return Sorting(rank, sort.startswith("-"))


def _say_nothing(
    client: Client, node: str | None, queues: Sequence[str], patterns: Sequence[str]
) -> None:
    """Say why the list is empty. queues: those that the list covers."""
    from blueque.queries.queues import counts  # here: --help does not need it

    inspector, numbers = client.get_inspector(), counts(client.connections, queues)
    ended = sum(numbers[state] for state in FINISHED)
    if node is not None and not any(node in names_of(one.id) for one in inspector.nodes()):
        printing.talk(f"no tasks, and no listener {node} is known now: blueque host ls")
    elif ended and not (numbers["blocked"] or numbers["scheduled"]):
        words = ["blueque", "ls", *(word for one in patterns for word in ("-q", one))]
        printing.talk(f"{no_open_task(ended)}: {shlex.join(words)} --state finished")
    else:
        printing.talk("no tasks")


def _say_later(inspector: Inspector, queues: Sequence[str]) -> None:
    """Say how many tasks wait for others, or for their time: they are not in the list."""
    blocked, scheduled = inspector.count_later(queues)
    some = [f"{n} {state}" for n, state in ((blocked, "blocked"), (scheduled, "scheduled")) if n]
    if some:
        states = ",".join(each.rpartition(" ")[2] for each in some)
        printing.talk(f"({' and '.join(some)}: blueque ls --state {states})")


def _say_more(listing: Listing, limit: int) -> None:
    if listing.looked_at is not None:
        say_what_was_searched(listing)
    if listing.has_more and listing.more:
        everything = limit + listing.more
        how = f"--limit {everything}" if everything <= MOST else f"--limit N shows up to {MOST:,}"
        printing.talk(f"({listing.more:,} more: {how})")
    elif listing.has_more:
        printing.talk(f"Only the first {limit}: --limit N shows more.")
