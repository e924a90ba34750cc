"""`blueque cancel`: cancel waiting tasks and end running ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from blueque.cli.actions import Manner, Outcome, give, named_or_selected
from blueque.cli.end_wait import WithWait, ends_of, is_late, wait_option
from blueque.cli.failure import TIMED_OUT
from blueque.cli.named import pattern_option
from blueque.cli.options import (
    Invocation,
    dry_run_option,
    reason_option,
    shared_options,
    yes_option,
)
from blueque.cli.selection import selection_options
from blueque.cli.states import state_option

if TYPE_CHECKING:
    from blueque.model.task import Task
    from blueque.queries.selection import Selection

GOING = "cancelling"
UNFINISHED = ("blocked", "pending", "scheduled", "reserved", "started")


@click.command(cls=WithWait)
@click.argument("ids", nargs=-1, metavar="[ID... | -]")
@pattern_option
@state_option(UNFINISHED)
@selection_options
@reason_option
@wait_option
@dry_run_option
@yes_option
@shared_options
def cancel(
    invocation: Invocation,
    ids: Sequence[str],
    patterns: Sequence[str],
    states: Sequence[str],
    selection: Selection,
    reason: str | None,
    wait: float | None,
    dry_run: bool,
    is_sure: bool,
) -> int:
    """Cancel waiting tasks, and end running ones, on any host.

    \b
    blueque cancel 7c1f --reason 'wrong input' --wait 2m
    blueque cancel -q train.gpu --state pending
    blueque cancel --group night-1 --dry-run

    A waiting task is "cancelled" at once. A running task gets SIGTERM and, after its grace, SIGKILL; it is
    "cancelling" until it has ended. If it ends by itself first, that result counts; --wait says which of the two
    happened. It asks before it ends running tasks, or tasks that options select. A task that starts while it asks, or
    after --state was read, runs on. A cancelled task does not run again, even with a retry policy; `blueque requeue`
    runs it again. Tasks that wait for it stay blocked, or are cancelled too: see --broken of `blueque enqueue`.
    """
    from blueque.faces.orders import ORDERS, Given  # here: --help does not need it

    client = invocation.client()
    inspector = client.get_inspector()
    chosen = named_or_selected(inspector, ids, patterns, states, selection, UNFINISHED)
    given = Given(invocation.by, reason, states or UNFINISHED)
    ends = ends_of(inspector, GOING, _judge, wait, invocation.as_json)
    manner = Manner(is_sure, invocation.as_json, dry_run)
    outcomes, code = give(client, ORDERS["cancel"], chosen, given, manner, ends)
    return TIMED_OUT if is_late(outcomes, GOING, wait) else code


def _judge(task: Task) -> Outcome | None:
    """Say whether the task was cancelled or ended by itself first; None: it has not ended."""
    if task.status == "started" and task.cancel is not None:
        return None
    if task.status == "cancelled":
        return Outcome(task.id, task.queue, "cancelled")
    refusal = f"task {task.id} is no longer being cancelled"
    if task.status in ("complete", "failed"):
        word = {"complete": "completed", "failed": "failed"}[task.status]
        refusal = f"task {task.id} had {word} before it could be cancelled"
    return Outcome(task.id, task.queue, task.status, refusal)
