"""What breaks, since when, and on which hosts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from markupsafe import Markup

from blueque.report import charts
from blueque.web.views.tasks import matching
from blueque.web.visit import Page, Visit

if TYPE_CHECKING:
    from blueque.queries.failures import Kind
    from blueque.queries.statistics import Statistics

SPANS = {"1d": 1, "7d": 7, "30d": 30}
MOST_KINDS = 200
DAYS = 14
MOST_QUEUES = 50  # whose failures are drawn by day


def failures(visit: Visit) -> Page:
    """Return the kinds of errors of each queue."""
    chosen = visit.one("span") if visit.one("span") in SPANS else "7d"
    queues, reader = matching(visit.one("queue").strip(), visit), visit.reader
    found = reader.shared(
        ("failures", tuple(queues), chosen),
        lambda: reader.inspector.failures(queues, SPANS[chosen]),
        5.0,
    )
    kinds = sorted(found.kinds, key=lambda kind: (-kind.failed, -kind.attempts))[:MOST_KINDS]
    drawn = sorted({kind.queue for kind in kinds})[:MOST_QUEUES]
    statistics = reader.statistics(drawn, DAYS)
    context = {
        "kinds": [(kind, _spark(kind, statistics.get(kind.queue))) for kind in kinds],
        "tasks": sum(kind.failed for kind in found.kinds),
        "length": chosen,
        "spans": [*SPANS],
        "looked_at": found.looked_at,
        "has_more": found.has_more,
    }
    return Page("failures.html", context)


def _spark(kind: Kind, statistics: Statistics | None) -> Markup:
    """Return bars of how many attempts failed so on each of the last days."""
    days = [*statistics.days.values()] if statistics else []
    counts = [day.errors.get(kind.error_type, 0) for day in days]
    says = f"{sum(counts)} failed attempts in {len(counts)} days"
    return charts.spark(counts, counts, says)
