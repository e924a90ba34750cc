"""The list of tasks: which are there, found by what they are."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, NamedTuple

from starlette.responses import RedirectResponse, Response

from blueque.documents.contents import value_of
from blueque.faces.orders import ORDERS, Order
from blueque.faces.task_list import Sorting, choice_of, load
from blueque.model.states import FINISHED
from blueque.model.task import Task
from blueque.queries.listeners import names_of
from blueque.queries.listing import MIN_PREFIX, STATUSES, entered, run_time
from blueque.sentences.start import Start, starts
from blueque.text.eta import read_progress
from blueque.text.format import as_cell, clean, no_open_task
from blueque.text.what import what
from blueque.web import own_queues
from blueque.web.filters import LIMITS, Filter, command_of, filter_of
from blueque.web.visit import Page, Visit, iso

if TYPE_CHECKING:
    from blueque.queries.listing import Listing

MOST_CSV = 10_000
MIXED = ("cancel", "requeue", "delete")  # for those of a list that are in a state for it
_SHOWN = ("what", "error", "last_error")  # contents of a row
FIELDS = ("queue", "text", "error", "key", "group", "tag", "schedule", "node", "since", "until")


class Row(NamedTuple):
    """A task of the list. since: when it entered its state. ran: for how many seconds its last
    attempt has run. note: its progress or its error.
    """

    task: Task
    what: str | None
    since: float | None
    ran: float | None
    share: float | None
    note: str


def tasks(visit: Visit) -> Page:
    """Return the page with the list of tasks."""
    wanted = filter_of(visit)
    listing = visit.reader.shared(
        ("tasks", visit.path_and_query, visit.zone),
        lambda: look(wanted, wanted.limit, visit, _SHOWN),
    )
    counts = _counts(wanted, listing, visit)
    is_filtered = any(visit.one(name) for name in FIELDS)
    context = {
        "filter": wanted,
        "rows": [row(task, visit) for task in listing.tasks],
        "listing": listing,
        "begins": _begins(listing, visit) if [*wanted.shown] == ["pending"] else None,
        "counts": [*counts.items()] if counts else [(state, None) for state in STATUSES],
        "queues": visit.reader.queues()[:1000],
        "command": command_of(visit),
        "limits": LIMITS,
        "is_filtered": is_filtered,
        "acts": [*_acts(wanted, counts)],
        "most_csv": MOST_CSV,
        "is_live": not wanted.selection.text,
        "nothing": "" if any(map(visit.one, FIELDS[1:])) else _nothing(wanted, counts),
    }
    return Page("tasks.html", context)


def tasks_csv(visit: Visit) -> Response:
    """Return the tasks as a file for spreadsheets."""
    listing = look(filter_of(visit), MOST_CSV, visit, (*_SHOWN, "result"))
    file = io.StringIO()
    writer = csv.writer(file)
    names = ("id", "what", "state", "queue", "node", "attempt", "created", "started", "finished")
    writer.writerow([*names, "error_type", "progress", "error", "result"])
    for task in listing.tasks:
        cells: list[object] = [
            task.id,
            what(task, visit.site.hide),
            task.status,
            task.queue,
            task.node,
        ]
        times = [iso(at) for at in (task.created, task.started, task.finished)]
        progress = task.fields.get("progress")
        cells += [task.attempt, *times, task.error_type, progress, task.error, result(task, visit)]
        writer.writerow([clean(as_cell(one)) if isinstance(one, str) else one for one in cells])
    name = f"tasks-first-{MOST_CSV}" if listing.has_more else "tasks"
    headers = {"Content-Disposition": f'attachment; filename="{name}.csv"'}
    return Response(file.getvalue(), media_type="text/csv; charset=utf-8", headers=headers)


def find(visit: Visit) -> Response:
    """Go to what a viewer has typed: a task, a queue, a host, or the tasks with these words."""
    word = visit.one("q").strip()
    if not word:
        return RedirectResponse(visit.url("/"), 303)
    if word in visit.reader.queues():
        return RedirectResponse(visit.queue_url(word), 303)
    found = visit.reader.inspector.find(word) if len(word) >= MIN_PREFIX else []
    if len(found) == 1 and visit.site.has(visit.reader.inspector.task(found[0]).queue):
        return RedirectResponse(visit.task_url(found[0]), 303)
    if any(word in names_of(node.id) for node in visit.reader.nodes()):
        return RedirectResponse(visit.url(f"/nodes/{word}"), 303)
    states = [*STATUSES]
    return RedirectResponse(visit.url("/tasks", text=word, state=states), 303)


def look(wanted: Filter, limit: int, visit: Visit, names: Sequence[str] = ()) -> Listing:
    """Return the tasks that a filter selects. names: of contents to read."""
    inspector = visit.reader.inspector
    queues = matching(wanted.queue, visit)
    order = Sorting(run_time, is_reversed=True) if wanted.is_by_run else None
    choice = choice_of(queues, inspector, wanted.selection, wanted.node, order)
    if choice is not None:
        wants = choice.wants
        choice = choice._replace(
            wants=lambda task, now: visit.site.has(task.queue) and wants(task, now)
        )
        if choice.inside is not None:
            # Secrets are hidden before words are looked for: else a search tells them letter by letter.
            choice = choice._replace(
                inside=lambda task: wanted.selection.inside(_shown(task, visit))
            )
    return load(inspector, queues, wanted.shown, limit, choice, names)


def _shown(task: Task, visit: Visit) -> Task:
    """Return a task with parameters as a viewer may see them."""
    given = visit.site.hide(value_of(task, "parameters"))
    text = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False, default=str)
    return Task(task.id, {**task.fields, "parameters": text})


def names(ids: Iterable[str], visit: Visit) -> dict[str, str]:
    """Return the names of these tasks, at most ten seconds old. Unknown ones are left out."""
    reader, wanted = visit.reader, tuple(dict.fromkeys(ids))

    def look() -> dict[str, str]:
        found = own_queues.mine_of(reader.inspector.tasks(wanted), visit.site)
        named = reader.inspector.with_contents(found)
        return {task.id: name for task in named if (name := what(task, visit.site.hide))}

    return reader.shared(("names", wanted), look, 10.0) if wanted else {}


def matching(pattern: str, visit: Visit) -> list[str]:
    """Return the queues that a name or a pattern selects; all if there is none."""
    return [name for name in visit.reader.queues() if not pattern or fnmatchcase(name, pattern)]


def row(task: Task, visit: Visit) -> Row:
    """Return a task as a row."""
    told = read_progress(task.fields.get("progress", ""))
    note = told.text if task.status == "started" else _error(task)
    share = told.share if task.status == "started" else None
    return Row(
        task, what(task, visit.site.hide), entered(task), run_time(task, visit.now), share, note
    )


def _begins(listing: Listing, visit: Visit) -> Mapping[str, Start]:
    """Return why the first of these pending tasks wait, and when they may start, by their ids."""
    reader, ids = visit.reader, tuple(task.id for task in listing.tasks)
    return reader.shared(("starts", ids), lambda: starts(reader.inspector, listing.tasks))


def _acts(wanted: Filter, counts: Mapping[str, int]) -> Iterator[tuple[str, Order, str]]:
    """Yield the orders for tasks of a list, and for which of them: of all states, or of some."""
    for verb, act in ORDERS.items():
        fit = [state for state in wanted.shown if state in act.states]
        number = sum(counts.get(state, 0) for state in fit)
        if len(fit) == len(wanted.shown):
            yield verb, act, "all that match"
        elif fit and verb in MIXED and (number or not counts):
            yield verb, act, f"the {number:,} that can be" if number else "those that can be"


def _error(task: Task) -> str:
    text = task.fields.get("error") or task.fields.get("last_error") or ""
    kind = task.error_type or task.last_error_type or ""
    first = text.strip().partition("\n")[0]
    return first if not kind or first.startswith(kind) else f"{kind}: {first}" if first else kind


def result(task: Task, visit: Visit) -> str | None:
    """Return the result without its secrets: a text as it is, anything else as JSON."""
    found = visit.site.hide(value_of(task, "result"))
    return found if isinstance(found, str | None) else json.dumps(found, ensure_ascii=False)


def _counts(wanted: Filter, listing: Listing, visit: Visit) -> dict[str, int]:
    """Return how many tasks of a filter are in each state; empty: unknown."""
    if not (wanted.selection.is_any or wanted.node):
        found = visit.reader.counts(matching(wanted.queue, visit))
    elif wanted.shown == STATUSES and not listing.has_more and listing.looked_at is None:
        found = Counter(task.status or "" for task in listing.tasks)
    else:
        return {}
    return {state: found[state] for state in STATUSES}


def _nothing(wanted: Filter, counts: Mapping[str, int]) -> str:
    """Return why the list of waiting and running tasks is empty; empty if there are no tasks at all."""
    numbers = {state: number for state, number in counts.items() if number}
    is_over = bool(numbers) and not wanted.states and numbers.keys() <= {*FINISHED}
    return no_open_task(sum(numbers.values())) if is_over else ""
