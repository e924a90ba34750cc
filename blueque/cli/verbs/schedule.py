"""`blueque schedule`: list scheduled tasks, or put them in line now."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from blueque.cli import printing
from blueque.cli.actions import act_on, choose, code_of, print_outcomes
from blueque.cli.named import pattern_option, queues_matching
from blueque.cli.options import Invocation, json_option, pass_invocation, shared_options
from blueque.cli.printing import Column
from blueque.cli.task_columns import note
from blueque.cli.verbs.show import as_item

if TYPE_CHECKING:
    from blueque.client import Client
    from blueque.model.task import Task

MOST = 10_000

_COLUMNS = [
    Column("ID", can_shrink=True),
    Column("QUEUE", can_shrink=True),
    Column("DUE", True),
    Column("AT"),
    Column("NOTE", can_shrink=True),
]


@click.group(subcommand_metavar="VERB [ARGS]...")
def schedule() -> None:
    """List scheduled tasks, or put them in line now."""


@schedule.command("ls", short_help="List scheduled tasks, the next one first.")
@pattern_option("Only these queues: a name, or a pattern such as 'render.*'.")
@click.option(
    "--limit",
    type=click.IntRange(1, MOST),
    default=50,
    show_default=True,
    help="At most so many tasks.",
)
@json_option
@shared_options
@pass_invocation
def schedule_ls(invocation: Invocation, patterns: Sequence[str], limit: int, as_json: bool) -> None:
    """List scheduled tasks, the next one first, and tasks that wait for a retry.

    \b
    blueque schedule ls -q 'render.*'

    DUE is the time until then, AT the moment. A scheduler or a listener of the queue puts a due task in line. If neither
    runs, blueque status says so.
    """
    inspector = invocation.client().get_inspector()
    listing = inspector.listing(queues_matching(inspector.queues(), patterns), ["scheduled"], limit)
    if as_json:
        items = [as_item(task, listing.now) for task in listing.tasks]
        now = printing.times(now=listing.now)
        printing.print_json(
            "schedule", **now, items=items, has_more=listing.has_more, more=listing.more
        )
    elif listing.tasks:
        rows = [_row(task, listing.now, invocation.is_utc) for task in listing.tasks]
        click.echo("\n".join(printing.table(_COLUMNS, rows)))
    else:
        printing.talk("nothing is scheduled")
    if listing.has_more:
        printing.talk(f"({listing.more} more: --limit N shows up to {MOST})")


@schedule.command("run", short_help="Put scheduled tasks in line now.")
@click.argument("ids", nargs=-1, required=True, metavar="ID... | -")
@json_option
@shared_options
@pass_invocation
def schedule_run(invocation: Invocation, ids: Sequence[str], as_json: bool) -> int:
    """Put scheduled tasks in line now, also tasks that wait for a retry.

    \b
    blueque schedule run 7c1f
    blueque ls --state scheduled --ids | blueque schedule run -

    Other due tasks of their queues are put in line, too, as by a scheduler. ID may be the beginning of an id; - reads ids
    from standard input. The exit code is 5 if a task was not scheduled.
    """
    client = invocation.client()
    tasks, code = choose(client.get_inspector(), ids)
    outcomes = act_on(tasks, lambda task: _run(client, task), as_json)
    if as_json:
        print_outcomes("schedule_run", outcomes)
    elif not outcomes:
        printing.talk("no tasks")
    return code_of(outcomes, code)


def _run(client: Client, task: Task) -> str:
    client.get_queue(task.queue or "").bring_forward(task.id)
    return "pending"


def _row(task: Task, now: float, is_utc: bool) -> list[str]:
    eta = task.eta
    due = (
        "-"
        if eta is None
        else f"in {printing.span(eta - now)}"
        if eta > now
        else f"since {printing.span(now - eta)}"
    )
    others = [
        words
        for words in note(task, now).split(", ")
        if not words.startswith(("due ", "retry due "))
    ]
    is_retry = task.last_error_type is not None
    return [
        printing.short_id(task.id),
        task.queue or "-",
        due,
        printing.stamp(eta, is_utc),
        ", ".join(["retry"] * is_retry + others),
    ]
