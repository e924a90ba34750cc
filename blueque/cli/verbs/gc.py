"""`blueque gc`: remove what interrupted producers have left."""

from __future__ import annotations

import time
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import click

from blueque.cli import printing
from blueque.cli.failure import ATTENTION
from blueque.cli.options import Invocation, dry_run_option, json_option, shared_options
from blueque.cli.printing import count
from blueque.cli.values import DURATION
from blueque.errors import NoSuchGroup, WrongGroup
from blueque.system import process

if TYPE_CHECKING:
    from blueque.client import Client
    from blueque.queries.half_made import Unfinished

_UNFINISHED = "its producer has not made all tasks of the workflow"


@click.command()
@click.option(
    "--older-than",
    type=DURATION,
    default=None,
    help="Only what has not changed for so long; default 1d.",
)
@dry_run_option("Only show what would be done.")
@json_option
@shared_options
def gc(invocation: Invocation, older_than: float | None, dry_run: bool, as_json: bool) -> int:
    """Clean up after producers that were interrupted and have not gone on.

    \b
    blueque gc --dry-run
    blueque gc --older-than 2d

    A workflow whose producer died before all of its tasks were there can never run: it is cancelled. Once such a workflow
    has been cancelled for as long as it is to be kept, it is removed with its tasks, none of which has run. The exit code is
    75 if something could not be done, or the producer has gone on.

    A group that nobody has closed is left alone, for its tasks run: blueque status names it, and you close or cancel it.
    """
    from blueque.queries import half_made  # here: --help does without

    client = invocation.client()
    long_ago = half_made.FORGOTTEN if older_than is None else older_than
    found = [
        *half_made.workflows(client.connections, long_ago),
        *half_made.removable(client.connections, long_ago),
    ]
    done: list[bool] = [] if dry_run else [_give_up(client, workflow) for workflow in found]
    if as_json:
        items = [_item(workflow) for workflow in found]
        for item, is_done in zip(items, done, strict=False):
            item["done"] = is_done
        printing.print_json("gc", dry_run=dry_run, items=items)
    else:
        for workflow, is_done in zip_longest(found, done):
            click.echo(f"{printing.clean(_sentence(workflow))}  {_outcome(workflow, is_done)}")
    if not found:
        printing.talk("nothing to clean up")
    return 0 if all(done) else ATTENTION


def _give_up(client: Client, found: Unfinished) -> bool:
    """Have a workflow cancelled, or remove it with its tasks if it was. False: its producer has
    gone on.
    """
    from blueque.protocol.groups import cancel_group

    by, now = process.user_at_host(), time.time()
    try:
        if found.is_cancelled:
            return client.group(found.group).delete()
        return cancel_group(
            client.connections, found.group, by, _UNFINISHED, now, updated=found.updated
        )
    except (NoSuchGroup, WrongGroup) as error:
        printing.talk(str(error))
        return False


def _sentence(found: Unfinished) -> str:
    what = f"workflow with {count(found.tasks, 'task')}, and its producer has not made all"
    if found.is_cancelled:
        what = f"workflow with {count(found.tasks, 'task')}, cancelled before all were made"
    return f"{found.group}  {what}, for {printing.span(found.age)}"


def _outcome(found: Unfinished, is_done: bool | None) -> str:
    """Say what was done. is_done: None: nothing, as that was asked for."""
    if is_done is False:
        return "not done: its producer has gone on"
    way = "deleted" if found.is_cancelled else "cancelled"
    return way if is_done else f"would be {way}"


def _item(found: Unfinished) -> dict[str, Any]:
    return {
        "workflow": found.group,
        "way": "delete" if found.is_cancelled else "cancel",
        "tasks": found.tasks,
        "age_seconds": round(found.age, 3),
    }
