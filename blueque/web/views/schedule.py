"""What comes when: scheduled tasks, retries that wait, and recurring tasks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from starlette.exceptions import HTTPException

from blueque.documents.schedules import item, options_of
from blueque.errors import InvalidInput, NoSuchSchedule
from blueque.queries import schedules
from blueque.queries.listing import run_time
from blueque.sentences import attention
from blueque.sentences.recurring import planned, why_it_stands
from blueque.text.format import span
from blueque.text.what import what
from blueque.web.views.overview import row
from blueque.web.views.task import pretty
from blueque.web.visit import Page, Visit

if TYPE_CHECKING:
    from blueque.model.schedule import Occurrence
    from blueque.model.task import Task
    from blueque.producer.schedules import Schedule

MOST = 100  # scheduled tasks on the page
NEXT, PAST = 5, 50  # planned times of a recurring task
_DURATIONS = ("time_limit", "stall_limit", "grace", "lead", "keep")  # options of its tasks
CODES = ("overdue", "schedule", "clock")


class Recurring(NamedTuple):
    """A recurring task as a row. next: when something comes of it, in Unix seconds."""

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
    name, client = visit.params["name"], visit.reader.client
    try:
        found = client.get_schedule(name)
        seen = found.seen
    except NoSuchSchedule as error:
        raise HTTPException(404, str(error)) from error
    if not visit.site.has(seen.record.get("queue")):
        raise HTTPException(404, str(NoSuchSchedule(name)))
    history = found.history(PAST)
    context = {
        "name": name,
        "record": seen.record,
        "rule": _rule(found),
        "next": planned(found, NEXT),
        "reasons": why_it_stands(found, client.get_inspector()),
        "history": _with_tasks(history, visit),
        "parameters": pretty(item(seen, visit.site.hide)["parameters"]),
        "options": [
            (name, span(float(value)) if name in _DURATIONS else value)
            for name, value in options_of(seen, visit.site.hide).items()
        ],
        "facts": [*_facts(seen.record)],
    }
    return Page("recurring.html", context)


def _recurring(visit: Visit) -> Iterator[Recurring]:
    """Yield all recurring tasks, the one that comes next first."""
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
            _rule_of(record),
            seen.score if seen.score not in (None, float("inf")) and seen.score else None,
            seen.status,
            record.get("current"),
            f"paused by {who}{reason}" if "paused" in record else "",
            not record,
        )


def _rule_of(record: dict[str, Any]) -> str:
    if "cron" in record:
        return f"{record['cron']}  {record.get('timezone', 'UTC')}"
    return f"every {record['every']} s" if "every" in record else "–"


def _rule(found: Schedule) -> str:
    try:
        return found.rule.text()
    except InvalidInput as error:  # written by a later version
        return str(error)


def _with_tasks(
    history: Sequence[Occurrence], visit: Visit
) -> list[tuple[Occurrence, str | None, float | None]]:
    """Return what came of planned times, each with the state of its task now, and for how many seconds
    that ran.
    """
    ids = [each.task for each in history if each.task is not None]
    tasks = {task.id: task for task in visit.reader.inspector.tasks(ids)}
    found = [tasks.get(each.task or "") for each in history]
    return [
        (each, task.status if task else None, run_time(task, visit.now) if task else None)
        for each, task in zip(history, found, strict=True)
    ]


def _facts(record: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the policies of a recurring task, and what came of it so far."""
    for name in ("overlap", "catch_up", "window", "jitter"):
        if record.get(name):
            is_time = name in ("window", "jitter")
            yield name.replace("_", " "), span(record[name]) if is_time else str(record[name])
    counted = ("made", "skipped", "missed", "triggered", "failures")
    counts = [f"{record[name]} {name}" for name in counted if record.get(name)]
    yield "so far", ", ".join(counts) or "nothing"
    yield "defined", "in a file" if record.get("origin") == "file" else "by hand"


def _why(task: Task) -> str:
    """Return why a task is scheduled, if it has failed before or recurs."""
    if task.schedule:
        return f"recurs: {task.schedule}"
    error = task.last_error_type
    return f"attempt {(task.attempt or 0) + 1}, after {error}" if error else ""
