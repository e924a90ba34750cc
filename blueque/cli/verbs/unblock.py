"""`blueque unblock`: have blocked tasks no longer wait for others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from blueque.cli.actions import act_on, choose, finish
from blueque.cli.consent import require_consent
from blueque.cli.options import Invocation, json_option, shared_options, yes_option
from blueque.errors import InvalidInput
from blueque.model.group import group_of
from blueque.model.ids import is_uuid
from blueque.queries.listing import MIN_PREFIX

if TYPE_CHECKING:
    from blueque.client import Client
    from blueque.model.task import Task
    from blueque.queries.inspector import Inspector


@click.command()
@click.argument("ids", nargs=-1, required=True, metavar="ID... | -")
@click.option(
    "--from", "parents", multiple=True, metavar="PARENT", help="Only this task; may be repeated."
)
@yes_option
@json_option
@shared_options
def unblock(
    invocation: Invocation, ids: Sequence[str], parents: Sequence[str], is_sure: bool, as_json: bool
) -> int:
    """Have blocked tasks no longer wait for other tasks, or for those after --from.

    \b
    blueque unblock 7c1f
    blueque unblock 7c1f --from 0a4e

    A task that has nothing left to wait for is put in line, or is scheduled if its time is still to come. You allow it to
    run although another task has failed, is gone, or has not ended; what that would have made may be missing. `blueque why`
    says what a task waits for, and `blueque requeue` runs a failed task again.

    For more than one task it asks first. PARENT may also be the name of a group. ID and PARENT may be the beginning of an
    id; - reads ids from standard input. The exit code is 5 if a task is not blocked, does not wait for PARENT, or might run
    before all tasks of its workflow are made, and 6 if the answer is not yes.
    """
    client = invocation.client()
    inspector = client.get_inspector()
    tasks, code = choose(inspector, ids)
    if len(tasks) > 1:
        facts = f"{len(tasks)} tasks would no longer wait for {'these' if parents else 'any'} tasks"
        require_consent(is_sure, facts, "Unblock them?", has_ids="-" in ids)
    outcomes = act_on(tasks, lambda task: _unblock(client, inspector, task, parents), as_json)
    return finish("unblock", outcomes, code, as_json)


def _unblock(client: Client, inspector: Inspector, task: Task, words: Sequence[str]) -> str:
    wanted = None if not words else [_parent(inspector, task, word) for word in words]
    return client.get_queue(task.queue or "").unblock(task.id, wanted)


def _parent(inspector: Inspector, task: Task, word: str) -> str:
    """Return the id of the task that it waits for, and that begins with the word."""
    kinds = {each.task.id: each.kind for each in inspector.dependencies(task).conditions}
    ids = [*kinds]
    found = [one for one in ids if word in (one, group_of(one))] or [
        one for one in ids if one.startswith(word) and len(word) >= MIN_PREFIX and is_uuid(one)
    ]
    if len(found) > 1:
        raise InvalidInput(f"task {task.id} waits for {len(found)} tasks that begin with {word!r}")
    if not found:
        raise InvalidInput(f"task {task.id} does not wait for a task {word!r}")
    if kinds[found[0]].startswith("+"):
        raise InvalidInput(f"task {task.id} does not wait for {found[0]} any more")
    return found[0]
