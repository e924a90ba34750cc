"""`blueque gc`: remove what interrupted runs and producers have left."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from blueque.cli import printing
from blueque.cli.consent import require_consent
from blueque.cli.failure import ATTENTION
from blueque.cli.named import queues_matching
from blueque.cli.options import Invocation, dry_run_option, json_option, shared_options, yes_option
from blueque.cli.printing import count
from blueque.cli.values import DURATION
from blueque.errors import NoSuchGroup, WrongGroup, WrongRun
from blueque.system import process

if TYPE_CHECKING:
    from blueque.client import Client
    from blueque.producer.abandoned_runs import Leftover, Leftovers
    from blueque.queries.half_made import Unfinished

_WEEK = 7 * 86400.0
_UNFINISHED = "its producer has not made all tasks of the workflow"


@click.command()
@click.argument("names", nargs=-1, metavar="[QUEUE...]")
@click.option(
    "--older-than",
    type=DURATION,
    default=None,
    help="Only what has not changed for so long; default 7d for runs, 1d for workflows.",
)
@dry_run_option("Only show what would be done.")
@yes_option
@json_option
@shared_options
def gc(
    invocation: Invocation,
    names: Sequence[str],
    older_than: float | None,
    dry_run: bool,
    is_sure: bool,
    as_json: bool,
) -> int:
    """Clean up after runs and producers that were interrupted and not begun again.

    \b
    blueque gc --dry-run
    blueque gc render --older-than 2d --yes

    An open run is forgotten, and its tasks stay; it asks first. A run that a program works on is left alone. A workflow
    whose producer died before all of its tasks were there can never run: it is cancelled, unless you name queues. Once such
    a workflow has been cancelled for as long as it is to be kept, it is removed with its tasks, none of which has run. The
    exit code is 75 if something could not be done, or a program works on the run again.
    """
    from blueque.producer.abandoned_runs import Leftovers  # here: --help does without
    from blueque.queries import half_made

    client = invocation.client()
    long_ago = half_made.FORGOTTEN if older_than is None else older_than
    abandoned = Leftovers(client.connections)
    queues = queues_matching(client.get_inspector().queues(), names)
    runs = abandoned.find(queues, _WEEK if older_than is None else older_than)
    # They belong to no queue.
    workflows = [] if names else half_made.workflows(client.connections, long_ago)
    workflows += [] if names else half_made.removable(client.connections, long_ago)
    done: list[bool | None] = []  # None: the reason has been said
    if not dry_run:
        _ask(runs, is_sure)
        done = [_end(abandoned, run) for run in runs]
        done += [_give_up(client, workflow) for workflow in workflows]
    if as_json:
        items = [*map(_item, runs), *map(_item_of_workflow, workflows)]
        for item, is_done in zip(items, done, strict=False):
            item["done"] = bool(is_done)
        printing.print_json("gc", dry_run=dry_run, items=items)
    else:
        _print([*map(_sentence, runs), *map(_sentence_of_workflow, workflows)], done)
    if not (runs or workflows):
        printing.talk("nothing to clean up")
    return 0 if dry_run or all(done) else ATTENTION


def _ask(found: Sequence[Leftover], is_sure: bool) -> None:
    if found:
        facts = f"{count(len(found), 'open run')} would be forgotten"
        require_consent(is_sure, facts, "Forget them?", [_sentence(run) for run in found])


def _end(abandoned: Leftovers, run: Leftover) -> bool | None:
    try:
        return abandoned.end(run)
    except WrongRun as error:
        printing.talk(str(error))
        return None


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


def _print(sentences: Sequence[str], done: Sequence[bool | None]) -> None:
    for number, sentence in enumerate(sentences):
        failed = "" if not done or done[number] else "  not done"
        if failed and done[number] is False:
            failed += ": a program works on it"
        click.echo(printing.clean(sentence) + failed)


def _sentence(run: Leftover) -> str:
    return f"{run.run}  {run.queue}  open, for {printing.span(run.age)}"


def _item(run: Leftover) -> dict[str, Any]:
    return {"queue": run.queue, "run": run.run, "way": "drop", "age_seconds": round(run.age, 3)}


def _sentence_of_workflow(found: Unfinished) -> str:
    what = f"workflow with {count(found.tasks, 'task')}, and its producer has not made all"
    if found.is_cancelled:
        what = f"workflow with {count(found.tasks, 'task')}, cancelled before all were made"
    return f"{found.group}  {what}, for {printing.span(found.age)}"


def _item_of_workflow(found: Unfinished) -> dict[str, Any]:
    return {
        "workflow": found.group,
        "way": "delete" if found.is_cancelled else "cancel",
        "tasks": found.tasks,
        "age_seconds": round(found.age, 3),
    }
