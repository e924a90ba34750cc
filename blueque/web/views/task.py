"""The page of a task: is it fine, how long will it take, what does it say?"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from markupsafe import Markup
from starlette.responses import PlainTextResponse, Response

from blueque.documents.contents import value_of
from blueque.faces.orders import allowed
from blueque.faces.why import load as load_why
from blueque.model.states import FINISHED
from blueque.queries import timeline
from blueque.queries.history import Event
from blueque.report import svg
from blueque.report.scales import step_of
from blueque.sentences import events, why
from blueque.sentences import stack as stacks
from blueque.sentences.attention import stands_still
from blueque.sentences.facts import facts
from blueque.sentences.pace import left_of, may_run, progress_words
from blueque.sentences.start import about_start
from blueque.text.eta import read_progress, roughly
from blueque.text.format import clean, span
from blueque.text.what import what
from blueque.web import hosts, log, own_queues
from blueque.web.visit import Page, Visit

if TYPE_CHECKING:
    from blueque.model.task import Task
    from blueque.queries.history import History
    from blueque.queries.signs import Signs
    from blueque.queries.statistics import Durations

WAITS = ("pending", "scheduled", "blocked")
RUNS = ("started", "reserved")
LEAST_RUNS = 5  # of which the usual run time is told
TALKS = 900.0  # seconds without output after which a task counts as silent
MOST_EVENTS = 40  # on the page
MOST_TEXT, CUT = 65536, "…"  # characters of a value; the whole is in the JSON of the task
TICKS = 9  # of the picture of its attempts
USUAL_DAYS = 7
# What the page shows in another place.
_ELSEWHERE = {"task", "title", "state", "progress", "signs", "usual", "parameters", "result"}
_ELSEWHERE |= {"traceback", "error", "error_type", "updated", "queue", "next", "context"}


class Sign(NamedTuple):
    """Something that says whether a task is fine. at: when it was last seen, in Unix seconds."""

    word: str
    text: str
    at: float | None
    is_late: bool


def task(visit: Visit) -> Page:
    """Return the page of a task."""
    inspector = visit.reader.inspector
    found = visit.reader.task(visit.params["id"])
    client, site = visit.reader.client, visit.site
    signs, others = inspector.signs(found, visit.now), own_queues.dependencies(found, client, site)
    scrub = own_queues.scrubber(found, client, site)
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
        "ruler": ruler(found, signs, visit) if found.status == "started" else None,
        "reasons": reasons(found, visit) if is_unheard or found.status in WAITS else None,
        "stack": stack(found, visit),
        "history": history,
        "events": [(event, told, who, scrub(more)) for event, told, who, more in _newest(history)],
        "life": life(found, signs, history, visit),
        "facts": [
            (label.replace("_", " "), scrub(text))
            for label, text in facts(
                found, signs, True, visit.site.hide, others, own_queues.cause(found, client, site)
            )
            if label not in _ELSEWHERE
        ],
        "parameters": pretty(visit.site.hide(value_of(found, "parameters"))),
        "result": pretty(visit.site.hide(value_of(found, "result"))),
        "context": pretty(visit.site.hide(found.context)) if found.context else None,
        "is_over": found.status in FINISHED,
        "acts": allowed(found.status),
    }
    if visit.is_live:  # the lines of its log come by themselves
        return Page("task.html", context | {"log": None, "entry": ""})
    lines, place = visit.reader.client.get_log(found.id)
    shown = log.choose(lines, visit, found.attempt)
    return Page("task.html", context | {"log": shown, "entry": place.entry})


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
    """Return a value as people read it, cut: text as it is, all else as JSON on several lines."""
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
    """Return what `blueque stack` shows, as of the last time that anyone asked for it: its text and when
    it was, or the reason why there is none. None: no one has asked.
    """
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
    """Return why a task waits, or may run no more, in the words of `blueque why`."""
    inquiry, found = load_why(visit.reader.inspector, task.id, visit.site.has_handler)
    return {
        "headline": why.headline(inquiry).partition(" in ")[2],
        "start": about_start(inquiry, found),
        "reasons": own_queues.reasons(inquiry, found, visit.site),
    }


def ruler(task: Task, signs: Signs, visit: Visit) -> Markup | None:
    """Return a picture of how long it has run, how long it may take, and how long others took."""
    if task.started is None or task.queue is None:
        return None
    elapsed = max(signs.now - task.started, 0.0)
    ran = visit.reader.statistics([task.queue], USUAL_DAYS)[task.queue].total.running
    left, limit = left_of(task, signs.now, signs.listener)[0], task.time_limit
    estimate = None if left is None else elapsed + left
    usual = _quantiles(ran)
    if usual is None and estimate is None and limit is None:
        return None
    low, high, most = usual or (None, None, None)
    known = [value for value in (elapsed, estimate, high, most, limit) if value is not None]
    end = max(known) * 1.1 or 1.0
    return _draw_ruler(end, elapsed, estimate, (low, high, most), limit)


def _quantiles(ran: Durations) -> tuple[float, float, float] | None:
    if ran.counted < LEAST_RUNS:
        return None
    low, high, most = (ran.quantile(share) for share in (0.25, 0.75, 0.95))
    return None if low is None or high is None or most is None else (low, high, most)


def _draw_ruler(
    end: float,
    elapsed: float,
    estimate: float | None,
    usual: Sequence[float | None],
    limit: float | None,
) -> Markup:
    def at(seconds: float) -> str:
        return svg.percent(seconds / end)

    def mark(class_: str, seconds: float, word: str, anchor: str = "mid") -> list[Markup]:
        line = svg.tag("line", class_=class_, x1=at(seconds), x2=at(seconds), y1=14, y2=34)
        label = svg.label(seconds / end, 10, word, anchor)
        return [line, label]

    low, high, most = usual
    says = [f"elapsed {span(elapsed)}"]
    drawn = []
    if low is not None and high is not None:
        width = svg.percent((high - low) / end)
        drawn.append(svg.tag("rect", class_="usual", x=at(low), y=16, width=width, height=16))
        says.append(f"usual {roughly(low)} to {roughly(high)}")
    drawn.append(svg.tag("rect", class_="track", x=0, y=23, width="100%", height=2))
    drawn.append(svg.tag("rect", class_="went", x=0, y=22, width=at(elapsed), height=4))
    drawn.append(svg.tag("circle", class_="nowdot", cx=at(elapsed), cy=24, r=4))
    if most is not None:
        drawn += mark("p95", most, "19 of 20", "mid odd")
        says.append(f"19 of 20 took {roughly(most)} at most")
    if estimate is not None:
        drawn += mark("eta", estimate, "estimate", "rt")
        says.append(f"about {roughly(estimate)} in all")
    if limit is not None:
        drawn += mark("lim", limit, "limit")
        says.append(f"time limit {span(limit)}")
    step = step_of(end, 6)
    for number in range(1, int(end / step) + 1):
        drawn.append(svg.label(number * step / end, 46, span(number * step), "mid odd"))
    drawn.append(svg.label(0, 46, "since its start", ""))
    return svg.picture("; ".join(says), 50, *drawn)


def life(task: Task, signs: Signs, history: History | None, visit: Visit) -> Markup | None:
    """Return a picture of the attempts of a task, to scale, since it was made."""
    if history is None or not history.events:
        return None
    since = history.events[0].at
    until = task.finished or visit.now
    runs = timeline.over(history.events, since)
    if task.status == "started" and task.started is not None:
        runs.append(timeline.running(task))
    seen = timeline.Timeline(since, until, runs, [])
    runs = timeline.silenced(seen, [signs.listener] if signs.listener else []).runs
    if not runs or until - since <= 0:
        return None
    look = hosts.look_of(since, until, visit, 16)
    waited = svg.tag("rect", class_="waited", x=0, y=8, width="100%", height=4)
    bars = []
    for run in runs:
        width = max(look.times.at(run.ended or until) - look.times.at(run.began), 0.003)
        left = min(look.times.at(run.began), 1 - width)
        word, took = hosts.word_of(run), span((run.ended or until) - run.began)
        says = f"attempt {run.attempt} on {run.node}: {word}, {took}"
        bars.append(svg.rect(left, 2, width, 16, f"r {word.replace(' ', '-')}", says))
    ticks = [
        svg.label(tick.at, 33, tick.label, "mid odd")
        for tick in look.times.ticks(TICKS)
        if 0.03 < tick.at < 0.97
    ]
    says = f"{len(runs)} attempts in {span(until - since)}"
    return svg.picture(says, 36, waited, *bars, *ticks, class_="lifeline")


def _newest(history: History | None) -> list[tuple[Event, str, str, str]]:
    """Return the newest events, the last first: what, who, and their facts in words."""
    if history is None:
        return []
    return [
        (event, events.word(event), events.who(event), events.facts(event))
        for event in reversed(history.events[-MOST_EVENTS:])
    ]
