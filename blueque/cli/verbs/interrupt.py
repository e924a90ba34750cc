"""`blueque interrupt`: take running tasks off their listeners, to run again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from blueque.cli.actions import Manner, Outcome, give, named
from blueque.cli.end_wait import WithWait, ends_of, is_late, wait_option
from blueque.cli.failure import TIMED_OUT
from blueque.cli.options import Invocation, reason_option, shared_options, yes_option

if TYPE_CHECKING:
    from blueque.model.task import Task

GOING = "interrupting"


@click.command(cls=WithWait)
@click.argument("ids", nargs=-1, required=True, metavar="ID... | -")
@reason_option
@wait_option
@yes_option
@shared_options
def interrupt(
    invocation: Invocation,
    ids: Sequence[str],
    reason: str | None,
    wait: float | None,
    is_sure: bool,
) -> int:
    """Stop running tasks and put them first in line.

    \b
    blueque interrupt 7c1f --reason 'the host needs a reboot' --wait 2m
    blueque host pause gpu-1
    blueque ls --node gpu-1 --state started --ids | blueque interrupt -

    A task gets SIGTERM and, after its grace, SIGKILL. Then it is first in line and runs again, on any listener. To
    move it to another host, pause its host first. It keeps its checkpoint, and its retry policy does not count this.
    If it ends by itself first, that result counts; --wait says which of the two happened. The command asks first if a
    task has no retry policy, as it starts a second time.
    """
    from blueque.faces.orders import ORDERS, Given  # here: --help does not need it

    client = invocation.client()
    inspector = client.get_inspector()
    chosen = named(inspector, ids)
    attempts = {task.id: task.attempt for task in chosen.tasks}

    def judge(task: Task) -> Outcome | None:
        return _judge(inspector.task(task.id), attempts[task.id])

    given = Given(invocation.by, reason, {"started"})
    ends = ends_of(inspector, GOING, judge, wait, invocation.as_json)
    outcomes, code = give(
        client, ORDERS["interrupt"], chosen, given, Manner(is_sure, invocation.as_json), ends
    )
    return TIMED_OUT if is_late(outcomes, GOING, wait) else code


def _judge(task: Task, attempt: int | None) -> Outcome | None:
    """Say whether the task was handed back or ended by itself first; None: it has not ended."""
    if task.is_interrupted:
        return None
    if task.status not in ("complete", "failed", "cancelled") or task.attempt != attempt:
        return Outcome(task.id, task.queue, "interrupted")
    ended = {"complete": "completed", "failed": "failed", "cancelled": "been cancelled"}
    refusal = f"task {task.id} had {ended[task.status]} before it could be interrupted"
    return Outcome(task.id, task.queue, task.status, refusal)
