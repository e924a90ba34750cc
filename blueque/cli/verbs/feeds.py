"""`blueque feeds`: list feeds and their progress, or forget one."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from blueque.cli import printing
from blueque.cli.consent import require_consent
from blueque.cli.failure import MISSING, Failure
from blueque.cli.named import queues_matching
from blueque.cli.options import Invocation, json_option, shared_options, yes_option
from blueque.cli.printing import Column, number_columns, text_columns
from blueque.documents.groups import of_feeds
from blueque.queries.feeds import numbers, state_of

if TYPE_CHECKING:
    from blueque.client import Client

COLUMNS = [
    *text_columns("FEED", "QUEUE", "SOURCE"),
    *number_columns("TASKS", "BAD", "DONE"),
    Column("STATE"),
    Column("FOR", True),
    Column("FEEDER", can_shrink=True),
]


@click.command()
@click.argument("names", nargs=-1, metavar="[QUEUE...]")
@click.option(
    "--forget",
    "forgotten",
    metavar="NAME",
    help="Forget this feed of the queue; run again, it begins anew.",
)
@yes_option
@json_option
@shared_options
def feeds(
    invocation: Invocation,
    names: Sequence[str],
    forgotten: str | None,
    is_sure: bool,
    as_json: bool,
) -> None:
    """List the feeds of all queues, or of these: how far each has come, and how many tasks it has made.

    \b
    blueque feeds render
    blueque feeds render --forget 2026-11-21

    TASKS counts the tasks that were made, BAD the rows that were skipped, DONE is the share of bytes. A feed is "feeding";
    "stopped": no feeder runs, and the same command would go on; or "finished". One whose feeder has died is "stopped" at
    once on the host of the feeder, elsewhere within a minute. FOR is the time in that state.

    A finished feed is forgotten 90 days after its last run. --forget does so at once, and asks first: a feed of this name
    would then feed all of its rows again.
    """
    client = invocation.client()
    if forgotten is None:
        _list(client, queues_matching(client.get_inspector().queues(), names), as_json)
        return
    if len(names) != 1:
        raise click.UsageError("--forget needs one queue: blueque feeds QUEUE --forget NAME")
    _forget(client, names[0], forgotten, is_sure)
    if as_json:
        printing.print_json("feeds", items=[], forgotten=[{"queue": names[0], "feed": forgotten}])
    else:
        click.echo(printing.clean(f"{forgotten}  forgotten"))


def _list(client: Client, queues: Sequence[str], as_json: bool) -> None:
    now = time.time()
    records = client.get_feeds(*queues)
    if as_json:
        printing.print_json("feeds", **of_feeds(records, now))
    elif records:
        printing.print_table(COLUMNS, [row(record, now) for record in records])
    else:
        printing.talk("no feeds")


def _forget(client: Client, queue: str, feed: str, is_sure: bool) -> None:
    record = next((one for one in client.get_feeds(queue) if one["feed"] == feed), None)
    if record is None:
        raise Failure(
            MISSING, f"no feed {feed!r} of queue {queue!r}", "See the names: blueque feeds"
        )
    done = numbers(record)
    made = [f"{done.get(name, 0):,} {name}" for name in ("tasks", "rows")]
    facts = f"feed {feed} has made {made[0]} of {made[1]} and would begin anew"
    if "token" in record:
        facts += f"; {record.get('node')} feeds it, and would stop"
    require_consent(is_sure, facts, "Forget it?")
    client.forget_feed(queue, feed)


def row(record: Mapping[str, str], now: float) -> list[str]:
    """Return the cells of a feed, see COLUMNS."""
    state, since = state_of(record)
    share = 1.0 if state == "finished" else numbers(record).get("share")
    done = "-" if share is None else f"{int(100 * share)} %"
    return [
        record["feed"],
        record["queue"],
        *[record.get(name, "-") for name in ("source", "tasks", "skipped")],
        done,
        state,
        printing.span(None if since is None else now - since),
        printing.short_node(record.get("node", "-")),
    ]
