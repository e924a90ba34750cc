"""How many tasks ended how, and how long they took."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Any

from starlette.responses import HTMLResponse, Response

from blueque.queries.statistics import Durations, Numbers, Statistics, total
from blueque.report.page import page
from blueque.report.summary import Group, Spread, Summary
from blueque.web.views.tasks import matching
from blueque.web.visit import Page, Visit

SPANS = {"7d": 7, "14d": 14, "30d": 30, "90d": 90}
MOST_QUEUES = 50  # those with the most work
MOST_NAMES = 1000
DRAWN = 12  # queues that have charts of their own in the file
_EPOCH = date(1970, 1, 1).toordinal()


def statistics(visit: Visit) -> Page:
    """Return the statistics of all queues together, and of each."""
    chosen, names = _chosen(visit)
    found = _found(visit, chosen, names)
    context: dict[str, Any] = {
        "summary": summary(found, visit),
        "run_times": total(one.total for one in found).running.buckets,
        "link": lambda queue: visit.here(queue=queue),
        "length": chosen,
        "spans": [*SPANS],
        "is_cut": len(names) > MOST_NAMES,
    }
    return Page("statistics.html", context)


def statistics_file(visit: Visit) -> Response:
    """Return the same as one self-contained file."""
    found = _found(visit, *_chosen(visit))
    headers = {"Content-Disposition": 'attachment; filename="statistics.html"'}
    return HTMLResponse(page(summary(found, visit)), headers=headers)


def summary(found: Sequence[Statistics], visit: Visit) -> Summary:
    """Return the numbers of queues as the content of a report."""
    names = [*found[0].days] if found else []
    days = [_group(None, total(one.days[name] for one in found), name) for name in names]
    queues = [group for one in found if (group := _group(one.queue, one.total)).n]
    return Summary(
        "Statistics",
        f"Redis at {visit.site.address}",
        visit.now,
        _group(None, total(one.total for one in found)),
        days,
        queues=queues[:MOST_QUEUES],
        all_queues=len(queues),
        by_day={
            one.queue: [_group(one.queue, numbers, name) for name, numbers in one.days.items()]
            for one in found[:DRAWN]
        },
        run_times={one.queue: one.total.running.buckets for one in found[:DRAWN]},
        is_counted=True,
    )


def _chosen(visit: Visit) -> tuple[str, list[str]]:
    chosen = visit.one("span") if visit.one("span") in SPANS else "14d"
    return chosen, matching(visit.one("queue").strip(), visit)


def _found(visit: Visit, chosen: str, names: Sequence[str]) -> list[Statistics]:
    """Return the numbers of queues, most work first."""
    found = visit.reader.statistics(names[:MOST_NAMES], SPANS[chosen]).values()
    return sorted(found, key=_work, reverse=True)


def _group(queue: str | None, numbers: Numbers, day: str | None = None) -> Group:
    return Group(
        queue,
        None if day is None else date.fromisoformat(day).toordinal() - _EPOCH,
        numbers.complete + numbers.failed + numbers.cancelled,
        numbers.complete,
        numbers.failed,
        numbers.cancelled,
        numbers.retried,
        _spread(numbers.waiting),
        _spread(numbers.running),
    )


def _spread(durations: Durations) -> Spread | None:
    if not durations.counted:
        return None
    parts = (durations.quantile(share) or 0.0 for share in (0.5, 0.9, 0.99))
    return Spread(durations.counted, durations.mean or 0.0, durations.longest or 0.0, *parts)


def _work(one: Statistics) -> float:
    """Return how many seconds the tasks of a queue ran."""
    return one.total.running.counted * (one.total.running.mean or 0.0)
