"""`blueque runs` and `blueque gc`: which runs there are, and what is left of those that nobody has
ended.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click

from blueque.cli import printing
from blueque.cli.consent import require_consent
from blueque.cli.failure import ATTENTION, MISSING, REFUSED, Failure
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
from blueque.cli.verbs import feeds
from blueque.errors import RunDropped, WrongRun

if TYPE_CHECKING:
    from blueque.client import Client
    from blueque.producer.abandoned_runs import Leftover

_COLUMNS = [
    Column("RUN", can_shrink=True),
    Column("QUEUE", can_shrink=True),
    Column("KIND"),
    Column("STATE"),
    Column("AGE", True),
    Column("ROWS", True),
    Column("TASKS", True),
    Column("STAGED", True),
]
_TIMES = ("created", "decided", "finished", "moved")
_WEEK = 7 * 86400.0

_queues = click.argument("names", nargs=-1, metavar="[QUEUE...]")


@click.command()
@_queues
@click.option(
    "--drop",
    "dropped",
    metavar="RUN",
    help="Forget this run of the queue, with what is staged for it.",
)
@yes_option
@json_option
@shared_options
@pass_invocation
def runs(
    invocation: Invocation, names: Sequence[str], dropped: str | None, is_sure: bool, as_json: bool
) -> None:
    """List the runs of all queues, or of these: each made many tasks once, or all at once.

    \b
    blueque runs render
    blueque runs render --drop 2026-11-21

    An open run is not complete; whoever began it can begin it again, and nothing doubles. One that is committing is
    decided, and somebody puts its tasks in line, or has died over it; then `blueque gc` does. AGE is the time since it was
    opened. ROWS and TASKS are of the whole run, of a stream those of its last batch. STAGED are chunks of up to 1000
    tasks that are not in line. Below are the feeds, see blueque feeds.

    --drop forgets one, and asks before. Its tasks stay where they are; what is staged is deleted. Run again under this
    name, an open keyed run makes those of its tasks once more that have been deleted; a committed one all of these. Of a
    stream it forgets the number of its last batch, too: a query that is started again from its checkpoint may put that
    batch in line once more. Delete the checkpoint with it, and start under a new name.
    """
    client = invocation.client()
    if dropped is None:
        _list(client, queues_matching(client.get_inspector().queues(), names), as_json)
        return
    if len(names) != 1:
        raise click.UsageError("--drop wants one queue: blueque runs QUEUE --drop RUN")
    _drop(client, names[0], dropped, is_sure)
    if as_json:
        printing.print_json("runs", items=[], dropped=[{"queue": names[0], "run": dropped}])
    else:
        click.echo(printing.clean(f"{dropped}  dropped"))


@click.command()
@_queues
@click.option(
    "--older-than",
    type=DURATION,
    default=_WEEK,
    metavar="DURATION",
    help="Only what has not moved for so long; else 7d.",
)
@click.option("--dry-run", is_flag=True, help="Only say what there is.")
@yes_option
@json_option
@shared_options
@pass_invocation
def gc(
    invocation: Invocation,
    names: Sequence[str],
    older_than: float,
    dry_run: bool,
    is_sure: bool,
    as_json: bool,
) -> int:
    """Clear up after runs that broke off and that nobody has begun again.

    \b
    blueque gc --dry-run
    blueque gc render --older-than 2d --yes

    What is decided is put in line, if nobody has for a minute. What is not is forgotten, and what is staged for it
    deleted; it asks before. A run is left alone while somebody opens it, or puts into it. The exit code is 75 if
    something could not be done, or somebody is at it again.
    """
    client = invocation.client()
    leftovers = client.get_leftovers()
    found = leftovers.find(queues_matching(client.get_inspector().queues(), names), older_than)
    undecided = [one for one in found if one.way != "finish"]
    done: list[bool] = []
    if not dry_run:
        if undecided:
            chunks = sum(len(one.chunks) for one in undecided)
            what = f"{count(len(undecided), 'run')} that nobody has ended, with {count(chunks, 'staged chunk')}"
            facts = f"{what}, would be forgotten"
            require_consent(
                is_sure, facts, "Forget what is not decided?", [_sentence(one) for one in found]
            )
        done = [_end(client, one) for one in found]
    if as_json:
        items = [
            _left(one) | ({} if dry_run else {"done": is_done})
            for one, is_done in _with(found, done)
        ]
        printing.print_json("gc", dry_run=dry_run, items=items)
    else:
        for one, is_done in _with(found, done):
            click.echo(
                printing.clean(_sentence(one))
                + ("" if dry_run or is_done else "  not done: somebody is at it")
            )
    if not found:
        printing.talk("nothing to clear up")
    return 0 if dry_run or all(done) else ATTENTION


def _list(client: Client, queues: Sequence[str], as_json: bool) -> None:
    now = time.time()
    records = [record for queue in queues for record in client.get_runs(queue)]
    fed = [record for queue in queues for record in client.get_feeds(queue)]
    if as_json:
        items = [_item(record) for record in records]
        its_feeds = [feeds.item(record, now) for record in fed]
        printing.print_json("runs", **printing.times(now=now), items=items, feeds=its_feeds)
        return
    tables = (
        [printing.table(_COLUMNS, [_row(record, now) for record in records])] if records else []
    )
    if fed:
        tables.append(printing.table(feeds.COLUMNS, [feeds.row(record, now) for record in fed]))
    click.echo("\n\n".join("\n".join(lines) for lines in tables), nl=bool(tables))
    if not tables:
        printing.talk("no runs")


def _drop(client: Client, queue: str, run: str, is_sure: bool) -> None:
    record = client.get_run(queue, run)
    if record is None:
        raise Failure(MISSING, f"no run {run!r} of queue {queue!r}", "See the names: blueque runs")
    facts = f"run {run} is {record.get('state')}, and would be forgotten"
    if record["staged"]:
        facts += (
            f"; {count(record['staged'], 'chunk')} of tasks that are staged for it would be deleted"
        )
    if record.get("kind") == "stream" and "batch" in record:
        facts += (
            f"; its query, if it is started again from its checkpoint, may put batch {record['batch']} in line once more: "
            "only the record tells that it is there"
        )
    require_consent(is_sure, facts, "Forget it?")
    try:
        client.get_leftovers().drop(queue, run)
    except WrongRun as error:
        advice = "blueque gc puts the rest of its tasks in line, when nobody else has for a minute."
        raise Failure(REFUSED, str(error), advice) from error


def _end(client: Client, leftover: Leftover) -> bool:
    try:
        return client.get_leftovers().end(leftover)
    except (RunDropped, WrongRun) as error:
        printing.talk(str(error))
        return False


def _with(found: Sequence[Leftover], done: Sequence[bool]) -> Iterable[tuple[Leftover, bool]]:
    return zip(found, done or [False] * len(found), strict=True)


def _sentence(left: Leftover) -> str:
    what = {
        "finish": f"decided, {count(left.record['unpublished'], 'chunk')} to be put in line",
        "discard": f"{count(len(left.chunks), 'staged chunk')} that nobody has chosen",
        "drop": f"open, {count(len(left.chunks), 'staged chunk')}",
    }[left.way]
    return f"{left.run}  {left.queue}  {what}, for {printing.span(left.age)}"


def _row(record: dict[str, Any], now: float) -> list[str]:
    created = record.get("created")
    age = "-" if created is None else printing.span(now - created)
    return [
        record["run"],
        record["queue"],
        record.get("kind", "?"),
        record.get("state", "?"),
        age,
        *[str(record.get(name, "-")) for name in ("rows", "tasks")],
        str(record["staged"] + record["unpublished"]),
    ]


def _item(record: dict[str, Any]) -> dict[str, Any]:
    others = {name: value for name, value in record.items() if name not in _TIMES}
    return others | printing.times(**{name: record.get(name) for name in _TIMES})


def _left(left: Leftover) -> dict[str, Any]:
    age = round(left.age, 3)
    return {
        "queue": left.queue,
        "run": left.run,
        "way": left.way,
        "chunks": len(left.chunks),
        "age_seconds": age,
    }
