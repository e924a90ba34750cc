"""`blueque schedule`: recurring tasks. `ls` is here, the other verbs are in the modules beside it."""

from __future__ import annotations

import time
from collections.abc import Sequence

import click

from blueque.cli import printing
from blueque.cli.named import pattern_option, queues_matching
from blueque.cli.noun import Noun
from blueque.cli.options import Invocation, shared_options
from blueque.cli.recurring import COLUMNS, row
from blueque.cli.values import limit_option
from blueque.cli.verbs.schedule_control import pause, remove, resume, trigger
from blueque.cli.verbs.schedule_define import add
from blueque.cli.verbs.schedule_file import apply
from blueque.cli.verbs.schedule_show import history, show
from blueque.documents.schedules import of_schedules
from blueque.sentences.recurring import RECENT

MOST = 10_000


@click.group(cls=Noun)
def schedule() -> None:
    """Manage recurring tasks. Without a verb it is `blueque schedule ls`.

    \b
    blueque schedule add nightly -q reports --cron '30 2 * * 1-5'
    """


for _verb in (show, history, add, apply, trigger, pause, resume, remove):
    schedule.add_command(_verb)


@schedule.command("ls", short_help="List recurring tasks.")
@pattern_option
@limit_option(MOST)
@shared_options
def schedule_ls(invocation: Invocation, patterns: Sequence[str], limit: int) -> None:
    """List recurring tasks, the next one first.

    \b
    blueque schedule ls -q 'render.*'

    NEXT is the time of the next task, in the time zone of the rule, and LAST the outcome of the last one. NOTE says
    whether it is paused or overdue, and how many of the last tasks were skipped, missed or failed in a row. blueque ls
    --state scheduled lists tasks that are scheduled once.
    """
    from blueque.queries import schedules  # here: --help does not need it

    client = invocation.client()
    found = schedules.load_all(client.connections)
    if patterns:
        queues = queues_matching(client.get_inspector().queues(), patterns)
        found = [seen for seen in found if seen.record.get("queue") in queues]
    shown = found[:limit]
    if invocation.as_json:
        content = of_schedules(shown, len(found), time.time(), invocation.hider(False))
        printing.print_json("schedules", **content)
    elif shown:
        recent = schedules.recent(client.connections, [each.name for each in shown], RECENT)
        rows = [row(each, recent[each.name], invocation.is_utc) for each in shown]
        printing.print_table(COLUMNS, rows)
    else:
        printing.talk("no recurring tasks")
    if len(found) > limit:
        printing.talk(f"({len(found) - limit:,} more: --limit N shows up to {MOST:,})")
