"""`blueque schedule`: recurring tasks. `ls` is here, the other verbs are in the modules beside it."""

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
from blueque.cli.recurring import COLUMNS, row
from blueque.cli.verbs.schedule_control import pause, remove, resume, trigger
from blueque.cli.verbs.schedule_define import add
from blueque.cli.verbs.schedule_file import apply
from blueque.cli.verbs.schedule_show import history, show
from blueque.documents.schedules import of_schedules
from blueque.sentences.recurring import RECENT
from blueque.text.hints import of_schedule

if TYPE_CHECKING:
    from blueque.client import Client
    from blueque.model.task import Task

MOST = 10_000


@click.group(subcommand_metavar="VERB [ARGS]...")
def schedule() -> None:
    """Manage recurring tasks.

    \b
    blueque schedule add nightly -q reports --cron '30 2 * * 1-5'
    """


for _verb in (show, history, add, apply, trigger, pause, resume, remove):
    schedule.add_command(_verb)


@schedule.command("ls", short_help="List recurring tasks.")
@pattern_option("Only these queues: a name, or a pattern such as 'render.*'.")
@click.option(
    "--limit",
    type=click.IntRange(1, MOST),
    metavar="N",
    default=50,
    show_default=True,
    help="At most so many.",
)
@json_option
@shared_options
def schedule_ls(invocation: Invocation, patterns: Sequence[str], limit: int, as_json: bool) -> None:
    """List recurring tasks, the next one first.

    \b
    blueque schedule ls -q 'render.*'

    NEXT is when the next task comes, in the time zone of the rule, and LAST what became of the last one. NOTE says that it is
    paused or overdue, and how many of the last in a row were skipped, missed or have failed. Tasks that are scheduled once
    are in blueque ls --state scheduled.
    """
    from blueque.queries import schedules  # here: --help does without

    client = invocation.client()
    found = schedules.load_all(client.connections)
    if patterns:
        queues = queues_matching(client.get_inspector().queues(), patterns)
        found = [seen for seen in found if seen.record.get("queue") in queues]
    shown = found[:limit]
    if as_json:
        content = of_schedules(shown, len(found), time.time(), invocation.hider(False))
        printing.print_json("schedules", **content)
    elif shown:
        recent = schedules.recent(client.connections, [each.name for each in shown], RECENT)
        rows = [row(each, recent[each.name], invocation.is_utc) for each in shown]
        printing.print_table(COLUMNS, rows)
    else:
        printing.talk("no recurring tasks")
    if len(found) > limit:
        printing.talk(f"({len(found) - limit} more: --limit N shows up to {MOST})")


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
