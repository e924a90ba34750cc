"""What breaks, since when, and on which hosts."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from markupsafe import Markup

from blueque.queries.failures import UNKNOWN
from blueque.report import charts
from blueque.web.filters import filter_of
from blueque.web.views.tasks import look, matching
from blueque.web.visit import Page, Visit

if TYPE_CHECKING:
    from blueque.model.task import Task
    from blueque.queries.failures import Kind
    from blueque.queries.statistics import Statistics

SPANS = {"1d": 1, "7d": 7, "30d": 30}
MOST_KINDS = 200
DAYS = 14
MOST_QUEUES = 50  # whose failures are drawn by day
MOST_TASKS = 200  # of one kind that are read
MOST_HOSTS = 10
# Quoted words, paths, numbers.
_VARYING = re.compile(
    r"""(?<!\w)'[^']*'(?!\w)|"[^"]*"|(?<![\w/])(?:/[\w.+@~-]+)+/?|0x[0-9a-fA-F]+|\b[0-9a-f]{8,}\b|\d+"""
)


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


def kind(visit: Visit) -> Page:
    """Return the messages of the newest failed tasks with one kind of error, and where they ran."""
    name = visit.params["name"]
    types = () if name == UNKNOWN else (name,)
    query = {"queue": visit.query.get("queue", ()), "state": ("failed",), "error": types}
    found = look(filter_of(replace(visit, query=query)), MOST_TASKS, visit, ("error", "last_error"))
    tasks = [task for task in found.tasks if (task.error_type or UNKNOWN) == name]
    groups: dict[str, list[Task]] = {}
    for task in tasks:
        groups.setdefault(likeness(task.fields.get("error", "")), []).append(task)
    hosts = Counter(
        (task.node or "no host").rpartition("_")[0] or "no host" for task in found.tasks
    )
    context = {
        "name": name,
        "tasks": len(tasks),
        "has_more": found.has_more,
        "groups": sorted(groups.items(), key=lambda group: -len(group[1])),
        "hosts": hosts.most_common(MOST_HOSTS),
        "attempts": sorted(Counter(task.attempt or 0 for task in tasks).items()),
        # There is no filter for tasks without a type.
        "order": {"queue": visit.one("queue"), "state": "failed", "error": name} if types else None,
    }
    return Page("kind.html", context)


def likeness(error: str) -> str:
    """Return an error's first line with # for numbers, paths and quoted words, to compare them."""
    return _VARYING.sub("#", error.strip().partition("\n")[0])


def _spark(kind: Kind, statistics: Statistics | None) -> Markup:
    """Return bars of how many attempts failed so on each of the last days."""
    days = [*statistics.days.values()] if statistics else []
    counts = [day.errors.get(kind.error_type, 0) for day in days]
    says = f"{sum(counts)} failed attempts in {len(counts)} days"
    return charts.spark(counts, counts, says)
