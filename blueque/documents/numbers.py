"""Statistics, failures and the timeline, for JSON."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from blueque.documents.schema import to_object
from blueque.model import histogram
from blueque.text.format import times

if TYPE_CHECKING:
    from blueque.queries.failures import Failures
    from blueque.queries.statistics import Durations, Numbers, Statistics
    from blueque.queries.timeline import Timeline


def of_statistics(found: Iterable[Statistics], days: int, tags: Sequence[str]) -> dict[str, Any]:
    """Return the content of `statistics`."""
    return {"days": days, "tags": [*tags], "items": [_queue_item(one) for one in found]}


def of_failures(found: Failures, days: int) -> dict[str, Any]:
    """Return the content of `failures`."""
    return {
        "days": days,
        "looked_at": found.looked_at,
        "has_more": found.has_more,
        "items": [to_object("one kind of failure", kind) for kind in found.kinds],
    }


def of_timeline(found: Timeline) -> dict[str, Any]:
    """Return the content of `timeline`."""
    return {
        **times(since=found.since, until=found.until),
        "items": [to_object("one run", run) for run in found.runs],
        "cut": found.cut,
        "has_more": found.has_more,
    }


def _queue_item(one: Statistics) -> dict[str, Any]:
    return {
        "queue": one.queue,
        **_numbers(one.total),
        "errors": dict(one.total.errors),
        "by_day": [{"day": day, **_numbers(numbers)} for day, numbers in one.days.items()],
    }


def _numbers(counted: Numbers) -> dict[str, Any]:
    waiting, running = _durations(counted.waiting), _durations(counted.running)
    return to_object("numbers", counted, waiting=waiting, running=running)


def _durations(one: Durations) -> dict[str, Any]:
    """Return durations. longest: the upper bound; null if there is none."""
    longest = one.longest
    return {
        "count": one.counted,
        "mean_seconds": one.mean,
        "deviation_seconds": one.deviation,
        **{f"p{share}_seconds": one.quantile(share / 100) for share in (50, 90, 95)},
        "longest_seconds": longest if longest is not None and math.isfinite(longest) else None,
        "histogram": [
            {"from_seconds": histogram.start(number), "count": count}
            for number, count in sorted(one.buckets.items())
        ],
    }
