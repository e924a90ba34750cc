"""`blueque cancel`: cancel waiting tasks and end running ones."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import click

from blueque.cli import printing
from blueque.cli.actions import Outcome, choose, finish, foretell
from blueque.cli.consent import require_consent
from blueque.cli.end_wait import WithWait, act_and_wait, wait_option
from blueque.cli.failure import TIMED_OUT
from blueque.cli.named import pattern_option
from blueque.cli.options import Invocation, dry_run_option, json_option, shared_options, yes_option
from blueque.cli.printing import Column, text_columns
from blueque.cli.selection import require_one_way, selected, selection_options
from blueque.cli.states import state_option
from blueque.errors import WrongState
from blueque.model.states import FINISHED
from blueque.queries.listing import entered
from blueque.sentences import consent
from blueque.text.eta import readable

if TYPE_CHECKING:
    from blueque.client import Client
    from blueque.model.task import Task
    from blueque.queries.inspector import Inspector
    from blueque.queries.selection import Selection

GOING = "cancelling"
UNFINISHED = ("blocked", "pending", "scheduled", "reserved", "started")
IN_A_ROW = 7  # ids in 80 columns
SHOWN = 20  # ids shown before it asks

_RUNNING = [
    *text_columns("TASK", "QUEUE", "NODE"),
    Column("RUNNING", True),
    Column("PROGRESS", can_shrink=True),
]


@click.command(cls=WithWait)
@click.argument("ids", nargs=-1, metavar="[ID... | -]")
@pattern_option("All tasks of these queues: a name, or a pattern such as 'render.*'.")
@state_option(UNFINISHED, "Only tasks in these states: pending,scheduled.")
@selection_options
@click.option("--reason", metavar="TEXT", help="Why; it is kept with the task.")
@click.option("--by", metavar="NAME", help="Who cancels it; default USER@HOST.")
@wait_option
@dry_run_option("Only show what would be cancelled.")
@yes_option
@json_option
@shared_options
def cancel(
    invocation: Invocation,
    ids: Sequence[str],
    patterns: Sequence[str],
    states: Sequence[str],
    selection: Selection,
    reason: str | None,
    by: str | None,
    wait: float | None,
    dry_run: bool,
    is_sure: bool,
    as_json: bool,
) -> int:
    """Cancel waiting tasks, and end running ones, on any host.

    \b
    blueque cancel 7c1f --reason 'wrong input' --wait 2m
    blueque cancel -q train.gpu --state pending
    blueque cancel --group night-1 --dry-run
    blueque ls --state pending --ids | blueque cancel -

    A waiting task is "cancelled" at once. A running task gets SIGTERM and, after its grace, SIGKILL; it is "cancelling"
    until it has ended. If it ends by itself first, that result counts; --wait tells which of the two happened. It asks
    before it ends running tasks, or tasks that it selects itself. A task that starts while it asks, or after --state was read,
    runs on. A cancelled task does not run again, even with a retry policy; `blueque requeue` runs it again. Tasks that
    wait for it stay blocked, or are cancelled if they were made so. A word behind --wait that is a duration, such as 3600
    or 2m, is not an ID.

    ID may be the beginning of an id; - reads ids from standard input. The exit code is 5 if a task could not be
    cancelled, 6 if the answer is not yes, 75 if more than 10,000 are selected and only the first were cancelled, or if
    there are more than 100,000 tasks and only these were searched, and 124 if the time of --wait was over first.
    """
    selects = require_one_way(ids, patterns, states, selection)
    client = invocation.client()
    inspector = client.get_inspector()
    tasks, code = (
        selected(inspector, patterns, states or UNFINISHED, selection)
        if selects
        else choose(inspector, ids)
    )
    if dry_run:
        return foretell("cancel", [*map(_foreseen, tasks)], code, as_json, "cancelled")
    _ask(inspector, tasks, is_sure, selects, "-" in ids)

    def allowed(task: Task) -> set[str]:
        """Return the states in which it may be cancelled: running only with consent."""
        wanted = set(states or UNFINISHED)
        return wanted if is_sure or task.status == "started" else wanted - {"started"}

    def cancel_one(task: Task) -> str:
        return _cancel(client, task, by, reason, allowed(task), invocation.is_utc)

    outcomes = act_and_wait(inspector, tasks, cancel_one, GOING, _judge, wait, as_json)
    code = finish("cancel", outcomes, code, as_json, dry_run=False)
    is_late = wait is not None and any(outcome.status == GOING for outcome in outcomes)
    return TIMED_OUT if is_late else code


def _foreseen(task: Task) -> Outcome:
    """Return what would become of a task."""
    is_able = task.status in UNFINISHED
    refusal = None if is_able else f"task {task.id} cannot be cancelled: it is {task.status}"
    return Outcome(task.id, task.queue, task.status, refusal)


def _ask(
    inspector: Inspector, tasks: Sequence[Task], is_sure: bool, are_all: bool, has_ids: bool
) -> None:
    """Ask before running tasks are ended. are_all: all tasks of queues: ask for waiting ones, too."""
    running = consent.running_of(tasks)
    if is_sure or not (running or (are_all and tasks)):
        return
    now = inspector.now() if running else 0.0
    facts = consent.of_cancel(tasks, now)
    if not running:
        require_consent(False, facts, "Cancel?", _some(tasks), len(tasks))
        return
    question = "Cancel it?" if len(tasks) == 1 else f"Cancel all {len(tasks)}?"
    number = len(tasks) if are_all else None
    require_consent(False, facts, question, table_of_running(running, now), number, has_ids)


def table_of_running(tasks: Sequence[Task], now: float) -> list[str]:
    """Return a table of the first of these running tasks."""
    rows = [
        [
            printing.short_id(task.id),
            task.queue or "-",
            printing.short_node(task.node or "-"),
            printing.span(None if task.started is None else now - task.started),
            readable(task.fields.get("progress", "-")),
        ]
        for task in tasks
    ]
    more = [f"and {len(rows) - SHOWN} more"] if len(rows) > SHOWN else []
    return [*printing.table(_RUNNING, rows[:SHOWN]), *more]


def _some(tasks: Sequence[Task]) -> list[str]:
    """Return lines with the ids of the first tasks."""
    ids = [printing.clean(printing.short_id(task.id)) for task in tasks[:SHOWN]]
    rows = [
        f"  {'  '.join(ids[place : place + IN_A_ROW])}" for place in range(0, len(ids), IN_A_ROW)
    ]
    return [*rows, f"  and {len(tasks) - SHOWN} more"] if len(tasks) > SHOWN else rows


def _cancel(
    client: Client,
    task: Task,
    by: str | None,
    reason: str | None,
    allowed: Collection[str],
    is_utc: bool,
) -> str:
    try:
        return client.get_queue(task.queue or "").cancel(task.id, by, reason, only=allowed)
    except WrongState as error:
        if error.status not in FINISHED:
            raise
        ended = entered(client.get_task(task.id))
        since = f", since {printing.stamp(ended, is_utc)}" if ended is not None else ""
        raise WrongState(task.id, error.status, "cancel", f"{error.why}{since}") from error


def _judge(task: Task) -> Outcome | None:
    """Say whether the task was cancelled or ended by itself first; None: it has not ended."""
    if task.status == "started" and task.cancel is not None:
        return None
    if task.status == "cancelled":
        return Outcome(task.id, task.queue, "cancelled")
    if task.status in ("complete", "failed"):
        word = {"complete": "completed", "failed": "failed"}[task.status]
        return Outcome(
            task.id,
            task.queue,
            task.status,
            f"task {task.id} had {word} before it could be cancelled",
        )
    return Outcome(task.id, task.queue, task.status, f"task {task.id} is no longer being cancelled")
