"""The pages of queues: does each keep up?"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from starlette.exceptions import HTTPException

from blueque.faces.overview import running_task
from blueque.queries.listing import STATUSES
from blueque.sentences import attention
from blueque.sentences.concern import STUCK
from blueque.sentences.queue_concerns import pause_words
from blueque.web import hosts
from blueque.web.views.overview import DAYS, row, spark
from blueque.web.views.tasks import row as task_row
from blueque.web.visit import Page, Visit

if TYPE_CHECKING:
    from blueque.queries.queue_overview import QueueOverview

QUEUES_ON_PAGE = 200  # queues on one page
NEXT = 5  # tasks that come next
MOST_RUNNING = 20
SORTS = ("queue", "pending", "started", "failed", "oldest")


def queues(visit: Visit) -> Page:
    """Return the list of all queues."""
    seen = visit.reader.overview()
    pattern, order = visit.one("match").strip(), visit.one("sort", "queue")
    words = pattern if any(mark in pattern for mark in "*?[") else f"*{pattern}*"
    lines = [line for line in seen.lines if not pattern or fnmatchcase(line.queue, words)]
    if order in SORTS[1:]:
        lines.sort(key=lambda line: -_number(line, order))
    first = visit.number("first", 0)
    shown = lines[first : first + QUEUES_ON_PAGE]
    statistics = visit.reader.statistics(sorted(line.queue for line in shown[:50]), DAYS)
    context = {
        "queues": [(line, spark(statistics.get(line.queue))) for line in shown],
        "bad": {
            one.about for one in attention.concerns(seen, visit.site.serve) if one.code in STUCK
        },
        "all": len(seen.lines),
        "matching": len(lines),
        "first": first,
        "next": first + QUEUES_ON_PAGE if len(lines) > first + QUEUES_ON_PAGE else None,
        "sort": order,
        "sorts": SORTS,
    }
    return Page("queues.html", context)


def queue(visit: Visit) -> Page:
    """Return the page of one queue."""
    name, reader = visit.params["name"], visit.reader
    seen = reader.overview(name)
    if not seen.lines:
        raise HTTPException(404, f"There is no queue {name}.")
    (line,) = seen.lines
    inspector = reader.inspector
    statistics = reader.statistics([name], DAYS)[name]
    waiting = inspector.listing([name], ("pending",), NEXT)
    waiting = waiting._replace(tasks=inspector.with_contents(waiting.tasks))
    concerns = [one for one in attention.concerns(seen, visit.site.serve) if one.about == name]
    context = {
        "line": line,
        "concerns": [row(concern, visit) for concern in concerns],
        "pause": pause_words(line, seen.now),
        "running": [
            running_task(task, seen, visit.site.hide)
            for task in seen.running[:MOST_RUNNING]
            if task.queue == name
        ],
        "waiting": [task_row(task, visit) for task in waiting.tasks],
        "nodes": sorted(
            (node for node in seen.nodes if node.queue == name),
            key=lambda node: hosts.STATES.index(node.state),
        ),
        "statistics": statistics,
        "spark": spark(statistics),
        "ran": statistics.total.running,
        "waited": statistics.total.waiting,
        "kinds": reader.shared(("kinds", name), lambda: inspector.failures([name], 7), 10.0).kinds[
            :5
        ],
        "feeds": [record for record in seen.feeds if record["queue"] == name],
        "serve": visit.site.serve(name),
        "states": _states(line),
    }
    return Page("queue.html", context)


def _states(line: QueueOverview) -> list[tuple[str, int]]:
    return [(name, getattr(line.counts, name)) for name in STATUSES]


def _number(line: QueueOverview, order: str) -> float:
    """Return the number by which queues are sorted, the highest first."""
    return (line.waiting.oldest_for or 0.0) if order == "oldest" else getattr(line.counts, order)
