"""`blueque interrupt`: take running tasks off their listeners, to run again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from blueque.cli.actions import Outcome, choose, finish
from blueque.cli.consent import require_consent
from blueque.cli.end_wait import WithWait, act_and_wait, wait_option
from blueque.cli.failure import TIMED_OUT
from blueque.cli.options import Invocation, json_option, shared_options, yes_option
from blueque.cli.verbs.cancel import table_of_running
from blueque.errors import WrongState
from blueque.sentences import consent

if TYPE_CHECKING:
    from blueque.model.task import Task
    from blueque.queries.inspector import Inspector

GOING = "interrupting"


@click.command(cls=WithWait)
@click.argument("ids", nargs=-1, required=True, metavar="ID... | -")
@click.option("--reason", metavar="TEXT", help="Why; it is kept with the task.")
@click.option("--by", metavar="NAME", help="Who interrupts it; default USER@HOST.")
@wait_option
@yes_option
@json_option
@shared_options
def interrupt(
    invocation: Invocation,
    ids: Sequence[str],
    reason: str | None,
    by: str | None,
    wait: float | None,
    is_sure: bool,
    as_json: bool,
) -> int:
    """Take running tasks off their listeners, and put them first in line.

    \b
    blueque interrupt 7c1f --reason 'the host needs a reboot' --wait 2m
    blueque node pause gpu-1
    blueque ls --node gpu-1 --state started --ids | blueque interrupt -

    The task gets SIGTERM and, after its grace, SIGKILL. Then it is the next of its line and runs again, on any
    listener, also on the same one: pause that first. This uses up nothing: no attempt of its retry policy, and not its
    checkpoint. If it ends by itself first, that result counts; --wait tells which of the two happened. If it is
    cancelled meanwhile, it is cancelled. A task without a retry policy would otherwise start once only, so it asks. If
    the host is dead, recovery handles the task as usual. A word behind --wait that is a duration, such as 3600 or 2m, is
    not an ID.

    ID may be the beginning of an id; - reads ids from standard input. The exit code is 5 if a task could not be
    interrupted, as one that does not run, 6 if the answer is not yes, and 124 if the time of --wait was over first.
    """
    client = invocation.client()
    inspector = client.get_inspector()
    chosen, code = choose(inspector, ids)
    # With all fields: a list has neither the policy nor the token.
    tasks = [inspector.task(task.id) if task.status == "started" else task for task in chosen]
    _ask(inspector, tasks, is_sure, "-" in ids)

    def order(task: Task) -> str:
        if task.status != "started" and not is_sure:  # no consent was asked for it
            raise WrongState(
                task.id,
                task.status,
                "interrupt",
                f"it is {task.status or 'gone'}, so it does not run",
            )
        client.get_queue(task.queue or "").interrupt(task.id, by, reason)
        return GOING

    attempts = {task.id: task.attempt for task in tasks}

    def judge(task: Task) -> Outcome | None:
        return _judge(inspector.task(task.id), attempts[task.id])

    outcomes = act_and_wait(inspector, tasks, order, GOING, judge, wait, as_json)
    code = finish("interrupt", outcomes, code, as_json)
    is_late = wait is not None and any(outcome.status == GOING for outcome in outcomes)
    return TIMED_OUT if is_late else code


def _ask(inspector: Inspector, tasks: Sequence[Task], is_sure: bool, has_ids: bool) -> None:
    """Ask before tasks are started a second time that have no retry policy."""
    facts = consent.of_interrupt(tasks)
    if is_sure or facts is None:
        return
    question = "Interrupt it?" if len(tasks) == 1 else f"Interrupt all {len(tasks)}?"
    single = consent.unpolicied(tasks)
    require_consent(
        False, facts, question, table_of_running(single, inspector.now()), has_ids=has_ids
    )


def _judge(task: Task, attempt: int | None) -> Outcome | None:
    """Say whether the task was handed back or ended by itself first; None: it has not ended."""
    if task.is_interrupted:
        return None
    if task.status not in ("complete", "failed", "cancelled") or task.attempt != attempt:
        return Outcome(task.id, task.queue, "interrupted")
    ended = {"complete": "completed", "failed": "failed", "cancelled": "been cancelled"}
    refusal = f"task {task.id} had {ended[task.status]} before it could be interrupted"
    return Outcome(task.id, task.queue, task.status, refusal)
