"""`blueque stats`: show how many tasks ended how, and how long they waited and ran."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from blueque.cli import printing
from blueque.cli.named import days_option, queues_matching, queues_options
from blueque.cli.options import Invocation, shared_options
from blueque.cli.printing import Column, number_columns, span
from blueque.cli.selection import selected
from blueque.cli.task_options import tag_option
from blueque.documents.numbers import of_statistics
from blueque.model import histogram
from blueque.model.states import FINISHED
from blueque.queries.selection import Selection
from blueque.text.eta import roughly

if TYPE_CHECKING:
    from blueque.queries.statistics import Numbers, Statistics

MAX_BAR = 40  # columns

_MANY = [
    Column("QUEUE", can_shrink=True),
    *number_columns(
        "DONE", "FAILED", "RETRIED", "LOST", "CANC", "WAIT p50", "p95", "RAN p50", "p95"
    ),
]
_ONE = [Column(""), *number_columns("COUNT", "MEAN", "+-", "p50", "p90", "p95", "MAX")]


@click.command()
@queues_options
@tag_option("Only tasks with this tag that are still in Redis; if repeated, with all of the tags.")
@days_option
@shared_options
def stats(
    invocation: Invocation,
    patterns: Sequence[str],
    named: Sequence[str],
    tags: Sequence[str],
    days: int,
) -> None:
    """Show how many tasks completed or failed, and how long they waited and ran.

    \b
    blueque stats render.4k --since 30d
    blueque stats 'render.*'

    Days are in UTC. WAIT is the time in line, without the time until a scheduled task was due. RAN is the time of
    attempts that completed. FAILED counts tasks that failed for good; RETRIED counts failed attempts that were
    retried; LOST counts attempts whose listener died. Counts, MEAN and the standard deviation +- are exact; quantiles
    such as p50, and MAX, are estimates. A task that raises RetryLater or HandBack has not failed: it counts neither as
    FAILED nor as RETRIED. Tasks on listeners of 1.0.0 are not counted.

    For a single queue it also draws the run times.

    With --tag, only tasks that are still in Redis are counted, on the day of their end.
    """
    inspector = invocation.client().get_inspector()
    queues = queues_matching(inspector.queues(), [*patterns, *named])
    if tags:
        tasks, _ = selected(inspector, [*patterns, *named], FINISHED, Selection(tags=tags))
        from blueque.queries.task_statistics import of_tasks  # here: --help does not need it

        found = of_tasks(tasks, days, time.time())
    else:
        found = inspector.statistics(queues, days)
    if invocation.as_json:
        printing.print_json("statistics", **of_statistics(found, days, tags))
        return
    if not found:
        printing.talk("no such tasks" if tags else "no queues yet")
        return
    since = next(iter(found[0].days))
    printing.talk(f"since {since} 00:00 UTC, {printing.count(days, 'day')}")
    if len(found) == 1:
        _print_one(found[0])
    else:
        printing.print_table(_MANY, [_row(its.queue, its.total) for its in found])


def _row(queue: str, its: Numbers) -> list[str]:
    counts = its.complete, its.failed, its.retried, its.lost, its.cancelled
    times = [
        _about(one.quantile(share)) for one in (its.waiting, its.running) for share in (0.5, 0.95)
    ]
    return [queue, *map(str, counts), *times]


def _print_one(its: Statistics) -> None:
    total = its.total
    share = (
        ""
        if total.failed_share is None or not total.failed
        else f" ({100 * total.failed_share:.1f} %)"
    )
    click.echo(
        f"done {total.complete:,}   failed {total.failed:,}{share}   retried {total.retried:,}   lost {total.lost:,}   "
        f"cancelled {total.cancelled:,}{f'   expired {total.expired:,}' if total.expired else ''}"
    )
    rows = [
        [
            name,
            str(one.counted),
            span(one.mean),
            span(one.deviation),
            *(_about(one.quantile(q)) for q in (0.5, 0.9, 0.95)),
            _at_most(one.longest),
        ]
        for name, one in (("waited", total.waiting), ("ran", total.running))
        if one.counted
    ]
    if rows:
        printing.print_table(_ONE, rows)
    if total.running.counted:
        click.echo()
        click.echo("\n".join(drawn("ran", total.running.buckets)))


def drawn(title: str, buckets: dict[int, int] | Any) -> list[str]:
    """Return the lines of a histogram: the range, the count, and on a terminal a bar."""
    from blueque.report.scales import Bins  # here: only this needs it

    bins = Bins(buckets)
    first = next(place for place, count in enumerate(bins.counts) if count)
    last = max(place for place, count in enumerate(bins.counts) if count)
    lines, most = [], max(bins.counts)
    for place in range(first, last + 1):
        low, high = bins.edges(place)
        label = f"{_round(low)} - {_round(high)}" if math.isfinite(high) else f"{_round(low)} -"
        count = bins.counts[place]
        bar = (
            "#" * math.ceil(count / most * MAX_BAR) + " " * bool(count)
            if printing.is_terminal()
            else ""
        )
        lines.append(f"{title if place == first else '':<6}  {label:>13}  {bar}{count}")
    return lines


def _round(seconds: float) -> str:
    return span(seconds).replace(".0", "")


def _about(seconds: float | None) -> str:
    """Return an estimate with as many digits as are known."""
    if seconds is None or seconds >= 57.5:
        return "-" if seconds is None else roughly(seconds)
    return span(seconds) if seconds > histogram.end(0) else f"< {_round(histogram.end(0))}"


def _at_most(seconds: float | None) -> str:
    """Return the end of the bucket of a duration, because its own digits would look exact."""
    if seconds is None:
        return "-"
    if math.isfinite(seconds) and (
        not seconds or seconds != histogram.start(histogram.bucket(seconds))
    ):
        seconds = histogram.end(histogram.bucket(seconds))
    return f"< {_round(seconds)}" if math.isfinite(seconds) else f"> {histogram.LAST_DAY} d"
