"""Tasks for JSON: in lists, one in full, and why one waits."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from blueque.documents.contents import checkpoint_item, contents, dependencies_item, value_of
from blueque.documents.schema import to_object
from blueque.queries.listing import entered
from blueque.sentences.pace import left_of
from blueque.text.format import times
from blueque.text.what import what

if TYPE_CHECKING:
    from blueque.model.states import Place
    from blueque.model.task import Task
    from blueque.queries.dependencies import Dependencies
    from blueque.queries.history import Event, History
    from blueque.queries.listing import Listing
    from blueque.queries.queue_ends import Left
    from blueque.queries.signs import Signs
    from blueque.queries.task_graph import Graph
    from blueque.queries.task_log import LogLine
    from blueque.queries.why_facts import Inquiry
    from blueque.sentences.reason import Reason
    from blueque.sentences.start import Start
    from blueque.text.redaction import Hide


def of_deleted(found: Mapping[Place, int], number: int, is_dry_run: bool) -> dict[str, Any]:
    """Return the content of `delete_many`. found: how many were selected. number: how many deleted."""
    items = [
        {"queue": place.queue, "status": place.kind, "tasks": number}
        for place, number in sorted(found.items())
    ]
    return {"dry_run": is_dry_run, "tasks": number, "items": items}


def of_line(line: LogLine) -> dict[str, Any]:
    """Return the content of `log`: a line of a log."""
    return to_object("log", line, line=line.number, at=line.at or None)


def as_item(task: Task, now: float) -> dict[str, Any]:
    """Return the fields of a task that every answer has."""
    since = entered(task)
    texts = {
        name: task.fields.get(name) for name in ("progress", "needs", "devices", "key", "group")
    }
    for_seconds = None if since is None else finite(now - since)
    return to_object("one task", task, for_seconds=for_seconds, **texts)


def of_list(
    listing: Listing,
    hide: Hide,
    held_by: Callable[[Task], Sequence[str] | None],
    begins: Mapping[str, Start],
) -> dict[str, Any]:
    """Return the content of `tasks`. held_by: what holds up a task. begins: when tasks may start."""
    return {
        **times(now=listing.now),
        "items": [
            as_item(task, listing.now)
            | {"what": what(task, hide), "held_by": held_by(task)}
            | _begin(begins.get(task.id), listing.now)
            for task in listing.tasks
        ],
        "has_more": listing.has_more,
        "more": listing.more,
        "looked_at": listing.looked_at,
    }


def of_wait(
    ended: Sequence[Task],
    waiting: Sequence[Task],
    is_timed_out: bool,
    now: float,
    left: Mapping[str, Left] = MappingProxyType({}),
) -> dict[str, Any]:
    """Return which tasks have ended. left: what is left to do, by queue."""
    items = [
        as_item(task, now) | {"error": task.error, "result": value_of(task, "result")}
        for task in ended
    ]
    return {
        **times(now=now),
        "timed_out": is_timed_out,
        "items": items,
        "waiting": [as_item(task, now) for task in waiting],
        "queues": [{"queue": queue, **each._asdict()} for queue, each in left.items()],
    }


def of_task(task: Task, signs: Signs, others: Dependencies, hide: Hide) -> dict[str, Any]:
    """Return the content of `task`."""
    stuck = signs.stuck
    item = as_item(task, signs.now) | {
        "left_seconds": left_of(task, signs.now, signs.listener)[0],
        **times(beat=signs.beat, printed=signs.printed),
        "checkpoint": checkpoint_item(signs),
        "stuck": stuck and {"state": stuck.state, **times(since=stuck.since)},
        "usual_seconds": list(signs.usual) if signs.usual else None,
        **dependencies_item(others),
    }
    return {**times(now=signs.now), "item": item | contents(task, hide)}


def of_inquiry(
    inquiry: Inquiry, reasons: Sequence[Reason], seconds: float | None, hide: Hide
) -> dict[str, Any]:
    """Return the content of `why`. seconds: until the task may start; None: unknown."""
    item = as_item(inquiry.task, inquiry.now) | {
        "what": what(inquiry.task, hide),
        **times(expected_start=None if seconds is None else inquiry.now + seconds),
        "line": inquiry.line,
        "before": inquiry.before,
        "line_length": inquiry.length,
        "higher": inquiry.higher,
        "beside": inquiry.beside,
    }
    return {
        **times(now=inquiry.now),
        "item": item,
        "reasons": [reason._asdict() for reason in reasons],
    }


def of_history(task: str, found: History) -> dict[str, Any]:
    """Return the content of `history`."""
    items = [event_item(event) for event in found.events]
    return {"items": items, "task": task, "missing": found.missing}


def event_item(event: Event) -> dict[str, Any]:
    """Return an event as `history` and `event` have it."""
    return to_object("one event", event, task=event.task or None, facts=dict(event.facts))


class Edge(NamedTuple):
    """One task waits for another, its parent. condition: as recorded; None: it was not read."""

    parent: str
    child: str
    condition: str | None


def of_graph(graph: Graph) -> dict[str, Any]:
    """Return the content of `graph`."""
    return {
        **times(now=graph.now),
        "task": graph.task,
        "items": [as_item(task, graph.now) for task in graph.tasks.values()],
        "edges": [edge._asdict() for edge in edges(graph)],
        "has_more": not graph.is_whole,
    }


def edges(graph: Graph) -> Iterator[Edge]:
    """Yield each edge between two tasks that were read, once."""
    known: dict[tuple[str, str], str | None] = {}
    for child, parents in graph.parents.items():
        known |= {(parent, child): condition for parent, condition in parents.items()}
    for parent, children in graph.children.items():
        for child, condition in children.items():
            known[parent, child] = known.get((parent, child)) or condition
    for (parent, child), condition in known.items():
        if parent in graph.tasks and child in graph.tasks:
            yield Edge(parent, child, condition)


def finite(number: float | None) -> float | None:
    """Return the number, or None if JSON has no word for it."""
    return number if number is not None and math.isfinite(number) else None


def _begin(start: Start | None, now: float) -> dict[str, Any]:
    expected = None if start is None or start.seconds is None else now + start.seconds
    reason = None if start is None else start.code
    return {"reason": reason, **times(expected_start=expected)}
