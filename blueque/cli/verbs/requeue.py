"""`blueque requeue`: put failed or cancelled tasks in line again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from blueque.cli import printing
from blueque.cli.actions import Manner, give, named_or_selected
from blueque.cli.named import pattern_option
from blueque.cli.options import Invocation, dry_run_option, shared_options, yes_option
from blueque.cli.requeueing import say_what_is_gone, say_what_they_wait_for
from blueque.cli.selection import is_of_groups, selection_options
from blueque.cli.states import state_option
from blueque.model.states import LOST

if TYPE_CHECKING:
    from blueque.model.task import Task
    from blueque.queries.selection import Selection


@click.command()
@click.argument("ids", nargs=-1, metavar="[ID... | -]")
@pattern_option
@state_option(("failed", "cancelled"))
@selection_options
@dry_run_option
@yes_option
@shared_options
def requeue(
    invocation: Invocation,
    ids: Sequence[str],
    patterns: Sequence[str],
    states: Sequence[str],
    selection: Selection,
    dry_run: bool,
    is_sure: bool,
) -> int:
    """Put failed or cancelled tasks in line again, with the same parameters.

    \b
    blueque requeue 7c1f
    blueque requeue -q video.encode --error-type lost --dry-run
    blueque requeue --group night-1 --text 'disk full' --until 1h

    This lets the work start a second time. What the task did before is still there. A retry policy counts failures
    from 0 again; the numbers of attempts continue. If a task was lost, its old process may still run: its result no
    longer counts, and `blueque show` says where its files are. Tasks that wait for a failed task go on when that task
    completes.

    A requeued task still waits for tasks that can meet its conditions, and no longer for those that cannot. If it was
    cancelled because of another task, requeue both: it waits for that task again.

    Options select failed tasks, the oldest failures first; --state also selects cancelled ones. For more than one task it
    asks first.
    """
    from blueque.faces.orders import ORDERS, Given  # here: --help does not need it
    from blueque.queries import groups

    client = invocation.client()
    inspector = client.get_inspector()
    chosen = named_or_selected(inspector, ids, patterns, states, selection, ("failed",))
    for name in selection.group if is_of_groups(patterns, selection) else ():
        say_what_is_gone(name, groups.count_gone(client.connections, name, only_bad=True))
    if len(chosen.tasks) == 1 and not dry_run:
        _say_if_lost(chosen.tasks[0])
    manner = Manner(is_sure, invocation.as_json, dry_run)
    outcomes, code = give(client, ORDERS["requeue"], chosen, Given(invocation.by), manner)
    if not (invocation.as_json or dry_run):
        say_what_they_wait_for(inspector, chosen.tasks, outcomes)
    return code


def _say_if_lost(task: Task) -> None:
    if task.error_type in LOST and task.status == "failed":
        where = f" Its result stays in {task.files}" if task.files else ""
        printing.talk(
            f"It was lost with {task.node}: if its old process still runs, two will run.{where}"
        )
