"""`blueque delete`: delete finished tasks for good."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from blueque.cli.actions import Outcome, act_on, choose, finish, foretell
from blueque.cli.consent import require_consent
from blueque.cli.named import pattern_option
from blueque.cli.options import Invocation, dry_run_option, json_option, shared_options, yes_option
from blueque.cli.selection import require_one_way, selected, selection_options
from blueque.cli.states import state_option
from blueque.errors import HasDependents, InvalidInput, WrongState
from blueque.model.states import FINISHED
from blueque.sentences import consent

if TYPE_CHECKING:
    from blueque.client import Client
    from blueque.model.task import Task
    from blueque.queries.selection import Selection


@click.command()
@click.argument("ids", nargs=-1, metavar="[ID... | -]")
@pattern_option("All finished tasks of these queues: a name, or a pattern such as 'render.*'.")
@state_option(FINISHED, "Only tasks in these states: failed,cancelled.")
@selection_options
@click.option(
    "--force",
    "is_forced",
    is_flag=True,
    help="Also tasks for which others wait; they cannot go on.",
)
@click.option("--by", metavar="NAME", help="Who deletes them; default USER@HOST.")
@dry_run_option("Only show what would be deleted.")
@yes_option
@json_option
@shared_options
def delete(
    invocation: Invocation,
    ids: Sequence[str],
    patterns: Sequence[str],
    states: Sequence[str],
    selection: Selection,
    is_forced: bool,
    by: str | None,
    dry_run: bool,
    is_sure: bool,
    as_json: bool,
) -> int:
    """Delete finished tasks for good, with their results, errors and logs.

    \b
    blueque delete 7c1f
    blueque delete -q video.encode --state failed --text 'disk full' --dry-run
    blueque ls -q video.encode --state failed --ids | blueque delete - --yes

    It asks first. The files of an attempt stay in the spool of its host for as long as the spool keeps them. The key of a
    task stays in use as long as its --keep says. A task that has not ended is not deleted: cancel it first. Nor is a task
    for which others wait: they would stay blocked for ever, or are cancelled if they were made so. --force deletes it.

    ID may be the beginning of an id; - reads ids from standard input. The exit code is 5 if a task could not be deleted,
    6 if the answer is not yes, and 75 if more than 10,000 are selected and only the first were deleted, or if there are
    more than 100,000 tasks and only these were searched.
    """
    selects = require_one_way(ids, patterns, states, selection)
    client = invocation.client()
    inspector = client.get_inspector()
    tasks, code = (
        selected(inspector, patterns, states or FINISHED, selection, is_oldest_first=True)
        if selects
        else choose(inspector, ids)
    )
    able = [task for task in tasks if task.status in FINISHED]
    if dry_run:
        outcomes = [_foresee(task, is_forced) for task in tasks]
        return foretell("delete", outcomes, code, as_json, "deleted")
    if able:
        facts = consent.of_delete(able)
        require_consent(is_sure, facts, "Delete?", number=len(able), has_ids="-" in ids)
    outcomes = act_on(tasks, lambda task: _delete(client, task, is_forced, by), as_json)
    return finish("delete", outcomes, code, as_json, dry_run=False)


def _foresee(task: Task, is_forced: bool) -> Outcome:
    refusal = None if task.status in FINISHED else str(WrongState(task.id, task.status, "delete"))
    if refusal is None and "dependents" in task.fields and not is_forced:
        refusal = _refusal(HasDependents(task.id))
    return Outcome(task.id, task.queue, task.status, refusal)


def _delete(client: Client, task: Task, is_forced: bool, by: str | None) -> str:
    try:
        client.get_queue(task.queue or "").delete_task(task, force=is_forced, by=by)
    except HasDependents as error:
        raise InvalidInput(_refusal(error)) from error
    return "deleted"


def _refusal(error: HasDependents) -> str:
    if error.is_group:  # --force does not delete it either
        return str(error)
    task = error.task_id
    return f"{error}. See: blueque graph {task}; nevertheless: blueque delete --force {task}"
