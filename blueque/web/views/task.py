"""The page of a task: is it fine, how long will it take, what does it print?"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from starlette.responses import PlainTextResponse, Response

from blueque.documents.contents import value_of
from blueque.faces.orders import allowed
from blueque.faces.why import load as load_why
from blueque.model.states import FINISHED
from blueque.queries.history import Event
from blueque.sentences import events, why
from blueque.sentences import stack as stacks
from blueque.sentences.attention import stands_still
from blueque.sentences.facts import facts, json_of
from blueque.sentences.pace import left_of, may_run, progress_words
from blueque.sentences.start import about_start
from blueque.text.eta import read_progress
from blueque.text.format import clean
from blueque.text.what import what
from blueque.web import log, own_queues, task_pictures
from blueque.web.visit import Page, Visit

if TYPE_CHECKING:
    from blueque.model.task import Task
    from blueque.queries.history import History
    from blueque.queries.signs import Signs

WAITS = ("pending", "scheduled", "blocked")
RUNS = ("started", "reserved")
TALKS = 900.0  # seconds without output after which a task counts as silent
MOST_EVENTS = 40  # on the page
MOST_TEXT, CUT = 65536, "…"  # characters of a value; the whole is in the JSON of the task
# What the page shows in another place.
_ELSEWHERE = {"task", "title", "state", "progress", "signs", "usual", "parameters", "result"}
_ELSEWHERE |= {"traceback", "error", "error_type", "updated", "queue", "next", "context"}


class Sign(NamedTuple):
    """A sign of whether a task is fine. at: when it was last seen, in Unix seconds."""

    word: str
    text: str
    at: float | None
    is_late: bool


def task(visit: Visit) -> Page:
    """Return the page of a task."""
    inspector = visit.reader.inspector
    found = visit.reader.task(visit.params["id"])
    signs = inspector.signs(found, visit.now)
    scrub = own_queues.scrubber(found, visit.reader.client, visit.site)
    history = visit.reader.client.get_history(found.id)
    told = read_progress(found.fields.get("progress", ""))
    share = told.share if found.status == "started" else None
    is_unheard = found.status in RUNS and not may_run(found, signs.listener)
    context: dict[str, Any] = {
        "task": found,
        "signs": signs,
        "name": what(found, visit.site.hide) or found.id[:8],
        "short": found.id[:8],
        "share": share,
        "told": progress_words(found),
        "left": left_of(found, signs.now, signs.listener),
        "is_unheard": is_unheard,
        "seen": [*_signs(found, signs)] if found.status in RUNS else [],
        "ruler": task_pictures.ruler(found, signs, visit) if found.status == "started" else None,
        "reasons": reasons(found, visit) if is_unheard or found.status in WAITS else None,
        "stack": stack(found, visit),
        "history": history,
        "events": [(event, told, who, scrub(more)) for event, told, who, more in _newest(history)],
        "life": task_pictures.life(found, signs, history, visit),
        "facts": [(label, scrub(text)) for label, text in _facts(found, signs, visit)],
        **_contents(found, visit),
        "is_over": found.status in FINISHED,
        "acts": allowed(found.status),
    }
    if visit.is_live:  # the lines of its log come by themselves
        return Page("task.html", context | {"log": None, "entry": ""})
    lines, place = visit.reader.client.get_log(found.id)
    shown = log.choose(lines, visit, found.attempt)
    return Page("task.html", context | {"log": shown, "entry": place.entry})


def _facts(found: Task, signs: Signs, visit: Visit) -> Iterator[tuple[str, str]]:
    """Yield the facts of `blueque show` that the page has in no other place: labels and texts."""
    client, site = visit.reader.client, visit.site
    others = own_queues.dependencies(found, client, site)
    cause = own_queues.cause(found, client, site)
    for label, text in facts(found, signs, True, site.hide, others, cause):
        if label not in _ELSEWHERE:
            yield label.replace("_", " "), text


def _contents(found: Task, visit: Visit) -> dict[str, str | None]:
    """Return parameters, result and context of a task as texts."""
    hide, context = visit.site.hide, found.for_people().fields.get("context")
    return {
        "parameters": pretty(hide(value_of(found, "parameters"))),
        "result": pretty(hide(value_of(found, "result"))),
        "context": pretty(hide(json_of(context))) if context else None,
    }


def log_page(visit: Visit) -> Page:
    """Return the log of a task in the whole window."""
    found = visit.reader.task(visit.params["id"])
    if visit.is_live:  # the lines come by themselves, and nothing else changes
        return Page("log.html", {})
    lines, place = visit.reader.client.get_log(found.id)
    context = {
        "task": found,
        "name": what(found, visit.site.hide) or found.id[:8],
        "log": log.choose(lines, visit, found.attempt),
        "entry": place.entry,
    }
    return Page("log.html", context)


def log_text(visit: Visit) -> Response:
    """Return the log of a task as a file of text."""
    found = visit.reader.task(visit.params["id"])
    lines, _ = visit.reader.client.get_log(found.id)
    attempt = visit.one("attempt")
    chosen = [line for line in lines if not attempt or str(line.attempt) == attempt]
    headers = {
        "Content-Disposition": f'attachment; filename="{_plain(found.id[:8])}.log.txt"',
        "Content-Security-Policy": "sandbox",
    }
    return PlainTextResponse("".join(log.plain_text(chosen)), headers=headers)


def _plain(text: str) -> str:
    """Return a text as the name of a file."""
    return re.sub("[^A-Za-z0-9._-]", "_", text)


def pretty(value: Any) -> str | None:
    """Return a value as people read it, cut: text unchanged, anything else as JSON on several lines."""
    if value is None:
        return None
    is_text = isinstance(value, str)
    text = value if is_text else json.dumps(value, indent=2, ensure_ascii=False, default=str)
    return text if len(text) <= MOST_TEXT else f"{text[:MOST_TEXT]}{CUT}"


def _signs(task: Task, signs: Signs) -> Iterator[Sign]:
    """Yield when its listener, its progress and its output were last seen."""
    is_unheard, now = not may_run(task, signs.listener), signs.now
    if signs.beat is not None:
        yield Sign("silent" if is_unheard else "alive", "listener seen", signs.beat, is_unheard)
    for word, text, at, is_late in (
        ("progressing", "reported", task.progress_at, stands_still(task, now)),
        ("talking", "printed", signs.printed, now - (signs.printed or now) > TALKS),
    ):
        if at is not None:
            yield Sign("" if is_late or is_unheard else word, text, at, is_late or is_unheard)


def stack(task: Task, visit: Visit) -> dict[str, Any] | None:
    """Return the last requested stack, with its time, or why there is none. None: no request."""
    mark, _, reason = task.fields.get("stack", "").partition(" ")
    if not mark or task.status != "started":
        return None
    look = ("log", task.id)
    lines, _ = visit.reader.shared(look, lambda: visit.reader.client.get_log(task.id))
    found = stacks.answer(lines, mark)
    # Without source lines: a task names these files, and this server may read what its user may not.
    text = "\n".join(map(clean, stacks.as_traceback([line.text for line in found])))
    return {"text": text, "at": found[0].at if found else None, "reason": reason}


def reasons(task: Task, visit: Visit) -> dict[str, Any]:
    """Return why a task waits, or may no longer run, in the words of `blueque why`."""
    inquiry, found = load_why(visit.reader.inspector, task.id, visit.site.has_handler)
    return {
        "headline": why.headline(inquiry).partition(" in ")[2],
        "start": about_start(inquiry, found),
        "reasons": own_queues.reasons(inquiry, found, visit.site),
    }


def _newest(history: History | None) -> list[tuple[Event, str, str, str]]:
    """Return the newest events, last first: what, who, and their facts in words."""
    if history is None:
        return []
    return [
        (event, events.word(event), events.who(event), events.facts(event))
        for event in reversed(history.events[-MOST_EVENTS:])
    ]
