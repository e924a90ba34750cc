"""`blueque schedule`: recurring tasks, and tasks that are scheduled once: list both, run the latter
now. The other verbs are in the modules beside this one.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from blueque.cli import printing
from blueque.cli.actions import act_on, choose, finish
from blueque.cli.failure import MISSING, USAGE, Failure
from blueque.cli.named import pattern_option, queues_matching
from blueque.cli.options import Invocation, json_option, shared_options
from blueque.cli.printing import Column
from blueque.cli.recurring import COLUMNS, row
from blueque.cli.task_columns import note
from blueque.cli.verbs.schedule_control import backfill, pause, remove, resume, trigger
from blueque.cli.verbs.schedule_define import add, preview, set_schedule
from blueque.cli.verbs.schedule_file import apply, check
from blueque.cli.verbs.schedule_show import history, show
from blueque.documents.schedules import of_schedule as content_of
from blueque.sentences.recurring import RECENT
from blueque.text.hints import of_schedule
from blueque.text.what import what

if TYPE_CHECKING:
    from blueque.client import Client
    from blueque.model.task import Task
    from blueque.queries.listing import Listing
    from blueque.queries.schedules import ScheduleSeen

MOST = 10_000

_COLUMNS = [
    Column("ID", can_shrink=True),
    Column("WHAT", can_shrink=True, yields=True),
    Column("QUEUE", can_shrink=True),
    Column("DUE", True),
    Column("AT"),
    Column("NOTE", can_shrink=True),
]


@click.group(subcommand_metavar="VERB [ARGS]...")
def schedule() -> None:
    """Manage recurring tasks, and list or run tasks that are scheduled once.

    \b
    blueque schedule add nightly -q reports --cron '30 2 * * 1-5'
    """


for _verb in (
    *(add, set_schedule, preview, show, history),
    *(pause, resume, trigger, backfill, remove, apply, check),
):
    schedule.add_command(_verb)


@schedule.command("ls", short_help="List recurring and scheduled tasks.")
@pattern_option("Only these queues: a name, or a pattern such as 'render.*'.")
@click.option("--recurring", "is_recurring", is_flag=True, help="Only recurring tasks.")
@click.option("--tasks", "is_tasks", is_flag=True, help="Only scheduled tasks.")
@click.option(
    "--limit",
    type=click.IntRange(1, MOST),
    metavar="N",
    default=50,
    show_default=True,
    help="At most so many of each.",
)
@json_option
@shared_options
def schedule_ls(
    invocation: Invocation,
    patterns: Sequence[str],
    is_recurring: bool,
    is_tasks: bool,
    limit: int,
    as_json: bool,
) -> None:
    """List recurring tasks, then scheduled tasks and tasks that wait for a retry; the next one first.

    \b
    blueque schedule ls -q 'render.*'

    Of a recurring task, NEXT is when its next task comes, in its own time zone, and LAST what became of the last one. NOTE
    says that it is paused or overdue, and how many of the last in a row were skipped, missed or have failed.
    Of a scheduled task, DUE is the time until then, AT the moment. A scheduler or a listener of the queue puts a due task in
    line. If neither runs, blueque status says so.
    """
    if is_recurring and is_tasks:
        raise click.UsageError("give --recurring or --tasks, not both")
    client = invocation.client()
    inspector = client.get_inspector()
    queues = queues_matching(inspector.queues(), patterns)
    seen = [] if is_tasks else _recurring(client, queues if patterns else None)
    listing = None if is_recurring else inspector.listing(queues, ["scheduled"], limit)
    if listing is not None:
        listing = listing._replace(tasks=inspector.with_contents(listing.tasks))
    if as_json:
        now = time.time() if listing is None else listing.now
        found = content_of(seen[:limit], listing, now, invocation.hider(False))
        printing.print_json("schedule", **found)
    else:
        _print_recurring(client, seen[:limit], invocation.is_utc)
        _print_tasks(invocation, listing, bool(seen))
        if not seen and (listing is None or not listing.tasks):
            printing.talk("no recurring tasks" if is_recurring else "nothing is scheduled")
    if len(seen) > limit:
        printing.talk(f"({len(seen) - limit} more recurring: --limit N shows up to {MOST})")
    if listing is not None and listing.has_more:
        printing.talk(f"({listing.more} more: --limit N shows up to {MOST})")


def _recurring(client: Client, queues: Sequence[str] | None) -> list[ScheduleSeen]:
    from blueque.queries import schedules  # here: --help does without

    found = schedules.load_all(client.connections)
    return (
        found if queues is None else [seen for seen in found if seen.record.get("queue") in queues]
    )


def _print_recurring(client: Client, seen: Sequence[ScheduleSeen], is_utc: bool) -> None:
    from blueque.queries import schedules  # here: --help does without

    if seen:
        recent = schedules.recent(client.connections, [each.name for each in seen], RECENT)
        rows = [row(each, recent[each.name], is_utc) for each in seen]
        printing.print_table(COLUMNS, rows)


def _print_tasks(invocation: Invocation, listing: Listing | None, is_second: bool) -> None:
    if listing is not None and listing.tasks:
        if is_second:
            click.echo()
        hide = invocation.hider(False)
        rows = [
            [printing.short_id(task.id), what(task, hide) or "-"]
            + _row(task, listing.now, invocation.is_utc)
            for task in listing.tasks
        ]
        printing.print_table(_COLUMNS, rows)


@schedule.command("run", short_help="Put scheduled tasks in line now.")
@click.argument("ids", nargs=-1, required=True, metavar="ID... | -")
@json_option
@shared_options
def schedule_run(invocation: Invocation, ids: Sequence[str], as_json: bool) -> int:
    """Put scheduled tasks in line now, also tasks that wait for a retry.

    \b
    blueque schedule run 7c1f
    blueque ls --state scheduled --ids | blueque schedule run -

    Other due tasks of their queues are put in line, too, as by a scheduler. ID may be the beginning of an id; - reads ids
    from standard input. The exit code is 5 if a task was not scheduled.
    """
    client = invocation.client()
    tasks, code = _chosen(client, ids)
    outcomes = act_on(tasks, lambda task: _run(client, task), as_json)
    return finish("schedule_run", outcomes, code, as_json)


def _chosen(client: Client, ids: Sequence[str]) -> tuple[list[Task], int]:
    """Return what `choose` does; the name of a recurring task is refused with the right command."""
    from blueque.queries import schedules  # here: --help does without

    inspector = client.get_inspector()
    try:
        return choose(inspector, ids)
    except Failure as failure:
        for word in ids if failure.exit_code in (MISSING, USAGE) else ():
            if schedules.load(client.connections, word) is not None:
                advice = f"To make a task of it now: {of_schedule('trigger', word)}"
                raise Failure(USAGE, f"{word!r} is a recurring task", advice) from failure
        raise


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
        task.queue or "-",
        due,
        printing.stamp(eta, is_utc),
        ", ".join(["retry"] * is_retry + others),
    ]
