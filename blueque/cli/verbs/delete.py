"""`blueque delete` and `prune`: finished tasks go for good."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import click

from blueque.cli import printing
from blueque.cli.actions import Outcome, act_on, choose, code_of, print_outcome, print_outcomes
from blueque.cli.consent import require_consent
from blueque.cli.named import queues_matching
from blueque.cli.options import (
    DURATION,
    Invocation,
    json_option,
    pass_invocation,
    shared_options,
    yes_option,
)
from blueque.cli.printing import Column, count
from blueque.cli.states import state_option
from blueque.errors import NotFinished
from blueque.model.states import FINISHED, Place
from blueque.model.units import Keep

if TYPE_CHECKING:
    from blueque.client import Client
    from blueque.model.task import Task

_COLUMNS = [Column("QUEUE", can_shrink=True), Column("STATE"), Column("TASKS", True)]
dry_run_option = click.option("--dry-run", is_flag=True, help="Only say which it would be.")


@click.command()
@click.argument("ids", nargs=-1, required=True, metavar="ID... | -")
@dry_run_option
@yes_option
@json_option
@shared_options
@pass_invocation
def delete(
    invocation: Invocation, ids: Sequence[str], dry_run: bool, is_sure: bool, as_json: bool
) -> int:
    """Delete finished tasks for good, with their results, errors and logs.

    \b
    blueque delete 7c1f
    blueque ls -q video.encode --state failed --ids | blueque delete - --yes

    It asks. Files of an attempt stay in the spool of its node for as long as that keeps them. A task with a key stays known
    by it as long as its --keep said. What has not ended is not deleted: cancel it first.

    ID may be a beginning, as for show; - reads ids from standard input. The exit code is 5 when a task could not be
    deleted, 6 when nobody said yes.
    """
    client = invocation.client()
    tasks, code = choose(client.get_inspector(), ids)
    able = [task for task in tasks if task.status in FINISHED]
    if dry_run:
        outcomes = [_foresee(task) for task in tasks]
    else:
        if able:
            facts = f"{count(len(able), 'task')} would be gone for good, with results, errors and logs: {_sorts(able)}"
            require_consent(is_sure, facts, "Delete?", number=len(able), has_ids="-" in ids)
        outcomes = act_on(tasks, lambda task: _delete(client, task), as_json)
    if as_json:
        print_outcomes("delete", outcomes, dry_run=dry_run)
    elif dry_run:
        for outcome in outcomes:
            print_outcome(outcome)
    if dry_run:
        printing.talk(f"{count(len(able), 'task')} would be deleted.")
    elif not outcomes:
        printing.talk("no such tasks")
    return code_of(outcomes, code)


@click.command()
@click.option(
    "-q",
    "--queue",
    "patterns",
    multiple=True,
    metavar="PATTERN",
    help="Only these: a name, or as 'render.*'.",
)
@state_option(FINISHED, "Only tasks in this state, or these: failed,cancelled.")
@click.option(
    "--older", type=DURATION, metavar="AGE", help="Those that ended so long ago: 12h, 7d."
)
@click.option(
    "--keep",
    type=click.IntRange(min=0),
    metavar="N",
    help="But not the newest N of each queue and state.",
)
@dry_run_option
@yes_option
@json_option
@shared_options
@pass_invocation
def prune(
    invocation: Invocation,
    patterns: Sequence[str],
    states: Sequence[str],
    older: float | None,
    keep: int | None,
    dry_run: bool,
    is_sure: bool,
    as_json: bool,
) -> None:
    """Delete the finished tasks that have been kept long enough.

    \b
    blueque prune --dry-run
    blueque prune -q 'render.*' --state failed --older 30d --keep 1000

    With --older and --keep both must hold: it is older, and not among the newest. --keep also counts for what is young.
    Without either it goes by the retention in blueque.toml, or its defaults, as listeners and schedulers do by themselves, a
    few at a time: of what ended within a day none then goes for being too many. It leaves a queue alone of which
    `blueque archive` has a batch in hand. It asks; the exit code is 6 when nobody said yes.
    """
    queues = queues_matching(invocation.client().get_inspector().queues(), patterns)
    client = invocation.client(patience=30.0)  # from here on: what is begun is worth waiting for
    chosen = states or FINISHED
    if older is None and keep is None:
        known = client.retention_rules(queues)
        rules = {queue: {state: known[queue][state] for state in chosen} for queue in queues}
    else:
        rule = Keep(older, None, keep or 0) if older is not None else Keep(None, keep)
        rules = {queue: dict.fromkeys(chosen, rule) for queue in queues}
    retention = client.get_retention(rules)
    for record in client.get_inspector().archiving(queues) if queues else ():
        if record:
            printing.talk(
                f"queue {record.get('queue')} is left alone: a batch of it is on its way into an archive"
            )
    found = retention.count()
    if not dry_run and found:
        facts = (
            f"{count(found.total(), 'task')} would be gone for good, with results, errors and logs"
        )
        require_consent(
            is_sure, facts, "Delete?", printing.table(_COLUMNS, _rows(found)), number=found.total()
        )
        try:
            retention.delete_all()
        except BaseException:
            printing.talk(
                f"{retention.deleted.total()} of {found.total()} deleted, then it stopped:"
            )
            raise
        found = +retention.deleted
    _print(found, dry_run, as_json)


def _print(found: Counter[Place], dry_run: bool, as_json: bool) -> None:
    if as_json:
        items = [
            {"queue": place.queue, "status": place.kind, "tasks": number}
            for place, number in _sorted(found)
        ]
        printing.print_json("prune", dry_run=dry_run, items=items)
        return
    if found:
        click.echo("\n".join(printing.table(_COLUMNS, _rows(found))))
    printing.talk(f"{count(found.total(), 'task')} {'would be ' if dry_run else ''}deleted.")


def _rows(found: Counter[Place]) -> list[list[str]]:
    return [[place.queue, place.kind, str(number)] for place, number in _sorted(found)]


def _sorted(found: Counter[Place]) -> list[tuple[Place, int]]:
    return sorted(found.items())


def _foresee(task: Task) -> Outcome:
    refusal = None if task.status in FINISHED else str(NotFinished(task.id, task.status))
    return Outcome(task.id, task.queue, task.status, refusal)


def _delete(client: Client, task: Task) -> str:
    client.get_queue(task.queue or "").delete_task(task)
    return "deleted"


def _sorts(tasks: Iterable[Task]) -> str:
    """Return how many there are of each status: 2 complete, 1 failed."""
    found = Counter(task.status or "" for task in tasks)
    return ", ".join(f"{found[status]} {status}" for status in FINISHED if found[status])
