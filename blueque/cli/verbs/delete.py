"""`blueque delete`: delete tasks for good."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from blueque.cli import printing
from blueque.cli.actions import Manner, give, named_or_selected
from blueque.cli.named import pattern_option
from blueque.cli.options import Invocation, dry_run_option, shared_options, yes_option
from blueque.cli.selection import selection_options
from blueque.cli.states import state_option
from blueque.model.states import FINISHED, WAITING

if TYPE_CHECKING:
    from blueque.queries.selection import Selection

_WAITS = (*WAITING, "blocked")


@click.command()
@click.argument("ids", nargs=-1, metavar="[ID... | -]")
@pattern_option
@state_option((*FINISHED, *_WAITS))
@selection_options
@click.option(
    "--kept-too-long",
    "is_overdue",
    is_flag=True,
    help="Only tasks that are past the retention of their queue.",
)
@click.option(
    "--force",
    "is_forced",
    is_flag=True,
    help="Also tasks that others wait for; these cannot go on.",
)
@dry_run_option
@yes_option
@shared_options
def delete(
    invocation: Invocation,
    ids: Sequence[str],
    patterns: Sequence[str],
    states: Sequence[str],
    selection: Selection,
    is_overdue: bool,
    is_forced: bool,
    dry_run: bool,
    is_sure: bool,
) -> int:
    """Delete finished tasks for good, with their results, errors and logs, or the waiting tasks of a queue.

    \b
    blueque delete 7c1f
    blueque delete -q video.encode --state failed --text 'disk full' --dry-run
    blueque delete -q video.encode --state pending,scheduled,blocked
    blueque delete --kept-too-long

    It asks first. The files of attempts stay in the spool of their host, and keys stay in use, as long as the settings
    say. A task that others wait for is deleted only with --force: the others then stay blocked, or are cancelled (see
    --broken of `blueque enqueue`).

    A task that has not ended is not deleted: cancel it first. But -q with --state pending, scheduled or blocked
    deletes all such tasks of a queue. Running tasks run on, and tasks enqueued meanwhile stay. If listeners serve the
    queue, pause it first.

    --kept-too-long applies the retention of the queues now, as listeners and schedulers do from time to time.

    The exit code is 75 if tasks are left because a listener has just taken them, others wait for them, or they are
    being archived.
    """
    from blueque.faces.orders import ORDERS, Given  # here: --help does not need it

    manner = Manner(is_sure, invocation.as_json, dry_run)
    if is_overdue or {*states} & {*_WAITS}:
        if ids or selection.is_any or not (patterns or is_overdue):
            what = "--kept-too-long goes" if is_overdue else "A waiting state goes"
            raise click.UsageError(f"{what} with --queue and --state alone")
        return _delete_many(invocation, patterns, states, is_overdue, is_forced, manner)
    client = invocation.client()
    inspector = client.get_inspector()
    chosen = named_or_selected(inspector, ids, patterns, states, selection, FINISHED)
    given = Given(invocation.by, is_forced=is_forced)
    outcomes, code = give(client, ORDERS["delete"], chosen, given, manner)
    refused = {outcome.id for outcome in outcomes if outcome.refusal is not None}
    waiting = [task for task in chosen.tasks if task.id in refused and task.status in _WAITS]
    if waiting and not invocation.as_json:
        ids, queue = shlex.quote(waiting[0].id), shlex.quote(waiting[0].queue or "")
        states = f"--state {waiting[0].status}"
        printing.talk(
            f"To cancel it: blueque cancel {ids}. To delete all waiting tasks there: blueque delete -q {queue} {states}"
        )
    return code


def _delete_many(
    invocation: Invocation,
    patterns: Sequence[str],
    states: Sequence[str],
    is_overdue: bool,
    is_forced: bool,
    manner: Manner,
) -> int:
    from blueque.cli import bulk_deletion  # here: most uses need none

    if not is_overdue:
        return bulk_deletion.empty(invocation, patterns, states, is_forced, manner)
    if {*states} & {*_WAITS}:
        raise click.UsageError("--kept-too-long is for tasks that have ended")
    return bulk_deletion.apply_retention(invocation, patterns, states or FINISHED, manner)
