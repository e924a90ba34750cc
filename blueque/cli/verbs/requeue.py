"""`blueque requeue`: put failed or cancelled tasks in line again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from blueque.cli import printing
from blueque.cli.actions import Outcome, act_on, choose, finish, foretell
from blueque.cli.consent import require_consent
from blueque.cli.named import pattern_option
from blueque.cli.options import Invocation, dry_run_option, json_option, shared_options, yes_option
from blueque.cli.printing import Column
from blueque.cli.requeueing import say_what_is_gone, say_what_they_wait_for
from blueque.cli.selection import is_of_groups, require_one_way, selected, selection_options
from blueque.cli.states import state_option
from blueque.errors import WrongState
from blueque.model.states import LOST
from blueque.queries import groups
from blueque.sentences import consent

if TYPE_CHECKING:
    from blueque.client import Client
    from blueque.model.task import Task
    from blueque.queries.selection import Selection

_QUEUES = [Column("QUEUE", can_shrink=True), Column("TASKS", True)]


@click.command()
@click.argument("ids", nargs=-1, metavar="[ID... | -]")
@pattern_option("All failed tasks of these queues: a name, or a pattern such as 'render.*'.")
@state_option(("failed", "cancelled"), "Only tasks in these states; default failed.")
@selection_options
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="At most so many tasks.")
@dry_run_option("Only show what would be requeued.")
@yes_option
@json_option
@shared_options
def requeue(
    invocation: Invocation,
    ids: Sequence[str],
    patterns: Sequence[str],
    states: Sequence[str],
    selection: Selection,
    limit: int | None,
    dry_run: bool,
    is_sure: bool,
    as_json: bool,
) -> int:
    """Put failed or cancelled tasks in line again, with the same parameters.

    \b
    blueque requeue 7c1f
    blueque requeue -q video.encode --error-type lost --dry-run
    blueque requeue --group night-1 --text 'disk full' --until 1h
    blueque ls --state cancelled --ids | blueque requeue - --yes

    With this you allow the work to start a second time. What the task has done before is still there. A retry policy counts
    failures from 0 again. The numbers of the attempts go on: after attempt 2 comes attempt 3. If a task was lost, its old
    process may still run; its result no longer counts and stays in its files, and `blueque show` says where. What waits for a
    task that failed goes on when that task completes.

    A task that waits for others still waits for those that may yet end as it needs, and no longer for those that cannot.
    If it was cancelled because of another task, requeue both: it waits for that one again.

    Options select failed tasks, the oldest failures first; --state also selects cancelled ones. For more than one task it
    asks first. ID may be the beginning of an id; - reads ids from standard input. The exit code is 5 if a task could not
    be put in line, for example because not all tasks of its workflow were made, 6 if the answer is not yes, and 75 if more
    than 10,000 are selected and only the first were put in line, or if there are more than 100,000 tasks and only these
    were searched.
    """
    selects = require_one_way(ids, patterns, states, selection)
    client = invocation.client()
    inspector = client.get_inspector()
    if selects:
        tasks, code = selected(inspector, patterns, states or ("failed",), selection, limit, True)
    elif limit is not None:
        raise click.UsageError("--limit is for tasks that options select, not for an ID")
    else:
        tasks, code = choose(inspector, ids)
    for name in selection.group if is_of_groups(patterns, selection) else ():
        say_what_is_gone(name, groups.count_gone(client.connections, name, only_bad=True))
    refusals = _refusals(client, tasks)
    if dry_run:
        outcomes = [
            Outcome(task.id, task.queue, task.status, refusals.get(task.id)) for task in tasks
        ]
        return foretell("requeue", outcomes, code, as_json, "put in line again")
    _ask([task for task in tasks if task.id not in refusals], is_sure, "-" in ids)
    outcomes = act_on(tasks, lambda task: _requeue(client, task), as_json)
    if not as_json:
        say_what_they_wait_for(inspector, tasks, outcomes)
    return finish("requeue", outcomes, code, as_json, dry_run=False)


def _refusals(client: Client, tasks: Sequence[Task]) -> dict[str, str]:
    """Return why tasks cannot be put in line, by their ids."""
    able = [task.id for task in tasks if task.status in ("failed", "cancelled")]
    unable = {
        task.id: WrongState(task.id, task.status, "requeue")
        for task in tasks
        if task.id not in able
    }
    refused = {**unable, **groups.not_whole(client.connections, able)}
    return {task: str(error) for task, error in refused.items()}


def _ask(able: Sequence[Task], is_sure: bool, has_ids: bool) -> None:
    lost = [task for task in able if task.error_type in LOST and task.status == "failed"]
    if len(able) > 1:
        facts = consent.of_requeue(able)
        queues = Counter(task.queue or "-" for task in able)
        rows = [[queue, str(number)] for queue, number in queues.items()]
        details = printing.table(_QUEUES, rows) if len(queues) > 1 else []
        require_consent(is_sure, facts, "Put them in line again?", details, has_ids=has_ids)
    elif lost:
        where = f" Its result stays in {lost[0].files}" if lost[0].files else ""
        printing.talk(
            f"It was lost with {lost[0].node}: if its old process still runs, there will be two.{where}"
        )


def _requeue(client: Client, task: Task) -> str:
    return client.get_queue(task.queue or "").requeue(task.id)
