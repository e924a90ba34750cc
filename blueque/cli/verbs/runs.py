"""`blueque runs`: list runs, which are named sets of many tasks, or forget one."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from blueque.cli import printing
from blueque.cli.consent import require_consent
from blueque.cli.failure import MISSING, Failure
from blueque.cli.named import queues_matching
from blueque.cli.options import Invocation, json_option, shared_options, yes_option
from blueque.cli.printing import number_columns, text_columns
from blueque.cli.verbs import feeds
from blueque.documents.groups import of_runs
from blueque.text.eta import roughly

if TYPE_CHECKING:
    from blueque.client import Client
    from blueque.queries.run_progress import RunSeen

_COLUMNS = [
    *text_columns("NAME", "QUEUE", "STATE"),
    *number_columns("AGE", "TASKS", "DONE", "FAIL", "RUN", "WAIT", "ETA"),
]


@click.command()
@click.argument("names", nargs=-1, metavar="[QUEUE...]")
@click.option(
    "--forget", "forgotten", metavar="RUN", help="Forget this run of the queue; its tasks stay."
)
@yes_option
@json_option
@shared_options
def runs(
    invocation: Invocation,
    names: Sequence[str],
    forgotten: str | None,
    is_sure: bool,
    as_json: bool,
) -> None:
    """List the runs of all queues, or of these. A run makes many tasks, each once.

    \b
    blueque runs render
    blueque runs render --forget 2026-11-21

    An open run is not complete; the program that began it can begin it again without duplicates. AGE is the
    time since the run was opened. If the run has a group of its own, as those of blueque.spark have, DONE are complete, FAIL
    have failed or were cancelled, RUN are running, and WAIT have not begun; ETA is when all will have ended if the tasks go
    on as they did so far. Below are the feeds, see blueque feeds.

    --forget forgets a run, and asks first. Its tasks stay where they are. If you begin a run of this name again, an open run
    makes those of its tasks again that have been deleted, a committed one makes all again.
    """
    client = invocation.client()
    if forgotten is None:
        _list(client, queues_matching(client.get_inspector().queues(), names), as_json)
        return
    if len(names) != 1:
        raise click.UsageError("--forget needs one queue: blueque runs QUEUE --forget RUN")
    _forget(client, names[0], forgotten, is_sure)
    if as_json:
        printing.print_json("runs", items=[], dropped=[{"queue": names[0], "run": forgotten}])
    else:
        click.echo(printing.clean(f"{forgotten}  forgotten"))


def _list(client: Client, queues: Sequence[str], as_json: bool) -> None:
    now = time.time()
    records, fed = client.get_runs(*queues), client.get_feeds(*queues)
    seen = client.get_inspector().run_progress(records, now)
    if as_json:
        printing.print_json("runs", **of_runs(records, seen, fed, now))
        return
    rows = [_row(record, far, now) for record, far in zip(records, seen, strict=True)]
    tables = [printing.table(_COLUMNS, rows)] if rows else []
    if fed:
        tables.append(printing.table(feeds.COLUMNS, [feeds.row(record, now) for record in fed]))
    click.echo("\n\n".join("\n".join(lines) for lines in tables), nl=bool(tables))
    if not tables:
        printing.talk("no runs")


def _forget(client: Client, queue: str, run: str, is_sure: bool) -> None:
    from blueque.producer.abandoned_runs import Leftovers  # here: --help does without

    record = client.get_run(queue, run)
    if record is None:
        raise Failure(MISSING, f"no run {run!r} of queue {queue!r}", "See the runs: blueque runs")
    require_consent(
        is_sure, f"run {run} is {record.get('state')} and would be forgotten", "Forget it?"
    )
    Leftovers(client.connections).drop(queue, run)


def _row(record: dict[str, Any], seen: RunSeen, now: float) -> list[str]:
    created = record.get("created")
    age = "-" if created is None else printing.span(now - created)
    counts = (seen.tasks, seen.complete, seen.failed, seen.running, seen.waiting)
    return [
        record["run"],
        record["queue"],
        "ended" if seen.has_ended else record.get("state", "?"),
        age,
        *["-" if number is None else str(number) for number in counts],
        f"~{roughly(seen.seconds_left)}" if seen.seconds_left else "-",
    ]
