"""`blueque prune`: delete finished tasks that have been kept long enough."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from blueque.cli import printing
from blueque.cli.consent import require_consent
from blueque.cli.named import pattern_option, queues_matching
from blueque.cli.options import Invocation, dry_run_option, json_option, shared_options, yes_option
from blueque.cli.printing import Column, count
from blueque.cli.states import state_option
from blueque.cli.values import DURATION
from blueque.documents.tasks import of_prune
from blueque.model.states import FINISHED, Place
from blueque.model.units import Keep
from blueque.sentences import consent

if TYPE_CHECKING:
    from blueque.client import Client

_COLUMNS = [Column("QUEUE", can_shrink=True), Column("STATE"), Column("TASKS", True)]


@click.command()
@pattern_option("Only these queues: a name, or a pattern such as 'render.*'.")
@state_option(FINISHED, "Only tasks in this state, or in these: failed,cancelled.")
@click.option(
    "--older-than",
    "older",
    type=DURATION,
    metavar="AGE",
    help="Only tasks that ended so long ago: 12h, 7d.",
)
@click.option(
    "--keep",
    type=click.IntRange(min=0),
    metavar="N",
    help="Keep the newest N of each queue and state.",
)
@dry_run_option("Only show what would be deleted.")
@yes_option
@json_option
@shared_options
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
    blueque prune -q 'render.*' --state failed --older-than 30d --keep 1000

    With both --older-than and --keep, a task is deleted if it is older and not among the newest. --keep also counts young
    tasks. Without either, the retention in blueque.toml or its defaults apply, as listeners and schedulers apply them, a
    few tasks at a time: then a task that ended within a day is not deleted for being one too many. A queue is skipped
    while `blueque archive` works on a batch of it. It asks first; the exit code is 6 if the answer is not yes.
    """
    from blueque.recovery.retention import Retention  # here: --help does without

    queues = queues_matching(invocation.client().get_inspector().queues(), patterns)
    client = invocation.client(patience=30.0)  # from here on: work that has begun may wait
    rules = _rules(client, queues, states or FINISHED, older, keep)
    _tell_archiving(client, queues)
    retention = Retention(client.connections, rules)
    found = retention.count()
    if not dry_run and found:
        facts = consent.of_prune(found.total())
        table = printing.table(_COLUMNS, _rows(found))
        require_consent(is_sure, facts, "Delete?", table, number=found.total())
        try:
            retention.delete_all()
        except BaseException:
            printing.talk(
                f"{retention.deleted.total()} of {found.total()} deleted, then it stopped:"
            )
            raise
        found = +retention.deleted
    _print(found, dry_run, as_json)


def _rules(
    client: Client,
    queues: Sequence[str],
    states: Sequence[str],
    older: float | None,
    keep: int | None,
) -> dict[str, Mapping[str, Keep]]:
    """Return what to keep, by queue and state."""
    if older is None and keep is None:
        by_queue = client.retention_rules(queues)
        return {queue: {state: by_queue[queue][state] for state in states} for queue in queues}
    rule = Keep(older, None, keep or 0) if older is not None else Keep(None, keep)
    return {queue: dict.fromkeys(states, rule) for queue in queues}


def _tell_archiving(client: Client, queues: Sequence[str]) -> None:
    for record in client.get_inspector().archiving(queues) if queues else ():
        if record:
            printing.talk(
                f"queue {record.get('queue')} is skipped: blueque archive works on a batch of it"
            )


def _print(found: Counter[Place], dry_run: bool, as_json: bool) -> None:
    if as_json:
        printing.print_json("prune", **of_prune(found, dry_run))
        return
    if found:
        printing.print_table(_COLUMNS, _rows(found))
    printing.talk(f"{count(found.total(), 'task')} {'would be ' if dry_run else ''}deleted.")


def _rows(found: Counter[Place]) -> list[list[str]]:
    return [[place.queue, place.kind, str(number)] for place, number in sorted(found.items())]
