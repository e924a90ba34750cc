"""What comes when: scheduled tasks, retries that wait, and recurring tasks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from blueque.documents.schedules import item
from blueque.errors import NoSuchSchedule
from blueque.faces.recurring import facts
from blueque.queries import schedules
from blueque.queries.listing import run_time
from blueque.sentences import attention
from blueque.sentences.recurring import planned, rule_of, why_nothing
from blueque.text.what import what
from blueque.web.views.overview import row
from blueque.web.views.task import pretty
from blueque.web.visit import Page, Visit

if TYPE_CHECKING:
    from blueque.model.schedule import Occurrence
    from blueque.model.task import Task
    from blueque.producer.schedules import Schedule
    from blueque.queries.schedules import ScheduleSeen

MOST = 100  # scheduled tasks on the page
NEXT, PAST = 5, 50  # planned times of a recurring task
CODES = ("overdue", "schedule", "clock")


class Recurring(NamedTuple):
    """A recurring task as a row. next: when its next task comes, in Unix seconds."""

    name: str
    queue: str
    rule: str
    next: float | None
    status: str | None
    task: str | None
    paused: str
    is_broken: bool


def schedule(visit: Visit) -> Page:
    """Return what is scheduled, and all recurring tasks."""
    reader, queues = visit.reader, visit.reader.queues()
    listing = reader.inspector.listing(queues, ("scheduled",), MOST)
    listing = listing._replace(tasks=reader.inspector.with_contents(listing.tasks))
    concerns = [
        concern
        for concern in attention.concerns(reader.overview(), visit.site.serve)
        if concern.code == "overdue" or concern.about.startswith("schedule ")
    ]
    context = {
        "concerns": [row(concern, visit) for concern in concerns],
        "recurring": [*_recurring(visit)],
        "scheduled": [(task, what(task, visit.site.hide), _why(task)) for task in listing.tasks],
        "listing": listing,
    }
    return Page("schedule.html", context)


def recurring(visit: Visit) -> Page:
    """Return the page of one recurring task."""
    found = mine(visit, visit.params["name"])
    seen, history = found.seen, found.history(PAST)
    context = {
        "name": seen.name,
        "record": seen.record,
        "rule": _rule(seen),
        "next": planned(found, NEXT),
        "reasons": why_nothing(seen, history, visit.reader.inspector),
        "history": _with_tasks(history, visit),
        "parameters": pretty(item(seen, visit.site.hide)["parameters"]),
        "facts": [*facts(seen, visit.site.hide)],
    }
    return Page("recurring.html", context)


def mine(visit: Visit, name: str) -> Schedule:
    """Return a recurring task of this page. Raises NoSuchSchedule."""
    found = visit.reader.client.get_schedule(name)
    if not visit.site.has(found.seen.record.get("queue")):
        raise NoSuchSchedule(name)
    return found


def _recurring(visit: Visit) -> Iterator[Recurring]:
    """Yield all recurring tasks, next one first."""
    client = visit.reader.client
    for seen in schedules.load_all(client.connections):
        record = seen.record
        queue = record.get("queue", "")
        if not visit.site.has(queue):
            continue
        who = record.get("paused_by", "unknown")
        reason = f": {record['paused_reason']}" if record.get("paused_reason") else ""
        yield Recurring(
            seen.name,
            queue,
            _rule(seen),
            seen.score if seen.score not in (None, float("inf")) and seen.score else None,
            seen.status,
            record.get("current"),
            f"paused by {who}{reason}" if "paused" in record else "",
            not record,
        )


def _rule(seen: ScheduleSeen) -> str:
    rule = rule_of(seen)
    return "–" if rule is None else rule.text()


def _with_tasks(
    history: Sequence[Occurrence], visit: Visit
) -> list[tuple[Occurrence, str | None, float | None]]:
    """Return occurrences, each with the present state of its task and its run time in seconds."""
    ids = [each.task for each in history if each.task is not None]
    tasks = {task.id: task for task in visit.reader.inspector.tasks(ids)}
    found = [tasks.get(each.task or "") for each in history]
    return [
        (each, task.status if task else None, run_time(task, visit.now) if task else None)
        for each, task in zip(history, found, strict=True)
    ]


def _why(task: Task) -> str:
    """Return why a task is scheduled, if it has failed before or recurs."""
    if task.schedule:
        return f"recurs: {task.schedule}"
    error = task.last_error_type
    return f"attempt {(task.attempt or 0) + 1}, after {error}" if error else ""
