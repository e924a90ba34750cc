"""The first page: is anything wrong now, what runs, and what waits."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from markupsafe import Markup

from blueque.faces.overview import running_task
from blueque.queries.timeline import silenced
from blueque.report import charts, svg
from blueque.sentences import attention
from blueque.sentences.concern import STUCK, URGENT, Concern
from blueque.text.terminal import short_id
from blueque.text.what import what
from blueque.web import hosts
from blueque.web.reader import MOST_STATISTICS
from blueque.web.visit import ID, Page, Visit

if TYPE_CHECKING:
    from blueque.queries.overview import Overview
    from blueque.queries.queue_overview import QueueOverview
    from blueque.queries.statistics import Statistics

MOST_CONCERNS, MOST_RUNNING, MOST_QUEUES, MOST_HOSTS = 20, 10, 20, 12
DAYS = 14
STRIP = 12 * 3600.0  # seconds of the picture of hosts
STRIP_EVENTS = 8000  # that are read for it


class Remedy(NamedTuple):
    """The button of a concern: it leads to a page, or sends fields to an order that can be undone."""

    word: str
    url: str
    fields: Mapping[str, str] = {}


class Row(NamedTuple):
    """A concern as a row. sentence: with links. act: None: only the command helps."""

    is_urgent: bool
    about: str
    url: str | None
    sentence: Markup
    act: Remedy | None
    command: str | None


class Figures(NamedTuple):
    """The numbers of all queues. None: there are too many queues to add up."""

    running: int
    listeners: int
    unheard: int
    waiting: int
    oldest: float | None
    scheduled: int
    done: int | None
    yesterday: int | None
    failed: int | None
    lost: int | None


def overview(visit: Visit) -> Page:
    """Return the first page."""
    seen = visit.reader.overview()
    concerns = attention.concerns(seen, visit.site.serve)
    shown = sorted(seen.lines, key=_importance(concerns))[:MOST_QUEUES]
    statistics = visit.reader.statistics(sorted(line.queue for line in shown), DAYS)
    busy = [line.queue for line in seen.lines if not line.is_quiet]
    found = silenced(visit.reader.timeline(busy, STRIP, STRIP_EVENTS), seen.nodes)
    context = {
        "overview": seen,
        "heading": attention.heading(concerns, seen.lines),
        "today": f"{seen.now % 86400:.0f}s",
        "concerns": [row(concern, visit) for concern in concerns[:MOST_CONCERNS]],
        "more_concerns": max(len(concerns) - MOST_CONCERNS, 0),
        "figures": figures(seen, visit),
        "running": [
            running_task(task, seen, visit.site.hide) for task in seen.running[:MOST_RUNNING]
        ],
        "queues": [(line, spark(statistics.get(line.queue))) for line in shown],
        "bad": {concern.about for concern in concerns if concern.code in STUCK},
        "strip": hosts.strip(seen.nodes, found, visit, MOST_HOSTS),
    }
    return Page("overview.html", context)


def row(concern: Concern, visit: Visit) -> Row:
    """Return a concern with links to its queue and its tasks; a running one gets its name, too."""
    seen, sentence = visit.reader.overview(), visit.linked(concern.sentence)
    names = {line.queue for line in seen.lines}
    first, _, rest = concern.sentence.partition(" ")
    for task in seen.running:
        if first == short_id(task.id) and (name := what(task, visit.site.hide)):
            link = svg.tag("a", f"{name} ({task.id[:8]})", href=visit.task_url(task.id))
            sentence = link + " " + visit.linked(rest)
    url = visit.queue_url(concern.about) if concern.about in names else None
    command = concern.command and ID.sub(lambda found: found[0][:8], concern.command)
    return Row(
        concern.code in URGENT, concern.about, url, sentence, _remedy(concern, visit), command
    )


def _remedy(concern: Concern, visit: Visit) -> Remedy | None:
    """Return the button that does what the command of a concern does, or shows its output."""
    if concern.code in hosts.TROUBLE and concern.command != "blueque doctor":
        return Remedy("Hosts", visit.url("/nodes"))
    words = [word for word in shlex.split(concern.command or "") if word != "--"]
    if words[:1] != ["blueque"]:  # a program to start
        return None
    mended = _order(concern, words[1:], visit) if visit.may_act else None
    return mended or _page(words[1:], visit)


def _order(concern: Concern, words: Sequence[str], visit: Visit) -> Remedy | None:
    """Return the order that solves it, with its question or its undo."""
    back = visit.path_and_query
    if concern.code in ("lost", "poison"):
        chosen = {"queue": concern.about, "state": "failed", "error": concern.code, "back": back}
        return Remedy("Requeue…", visit.url("/acts/requeue", **chosen))
    match words:
        case ["requeue", task]:
            return Remedy("Requeue…", visit.url("/acts/requeue", id=task, back=back))
        case ["stack", task]:
            return Remedy("Stack", visit.url("/controls/task/stack"), {"name": task})
        case ["queue", "resume", queue]:
            return Remedy("Resume", visit.url("/controls/queue/resume"), {"name": queue})
        case ["queue", "set", queue, "max-running="]:
            return Remedy("No limit", visit.url("/controls/queue/limit"), {"name": queue})
        case ["schedule", "resume", name]:
            return Remedy("Resume", visit.url("/controls/schedule/resume"), {"name": name})
    return None


def _page(words: Sequence[str], visit: Visit) -> Remedy | None:
    """Return the page that shows what a command prints."""
    match words:
        case ["why" | "show" as verb, task]:
            return Remedy(verb.capitalize(), visit.task_url(task))
        case ["stack", task]:  # a viewer may not ask for it
            return Remedy("Show", visit.task_url(task))
        case ["doctor"]:
            return Remedy("Doctor", visit.url("/doctor"))
        case ["ls", *options] if "held" not in options:
            return Remedy("Tasks", visit.url("/tasks", **_selected(options)))
        case ["host", *_]:
            return Remedy("Hosts", visit.url("/nodes"))
        case ["group", "show", _, "-q", _]:
            return Remedy("Feeds", visit.url("/groups"))
        case ["group", "show" | "requeue", name]:  # that page has the order, too
            return Remedy("Group", visit.url(f"/groups/{name}"))
        case ["schedule", "show" | "history" as verb, name]:
            return Remedy(verb.capitalize(), visit.url(f"/schedule/{name}"))
    return None


def _selected(options: Sequence[str]) -> dict[str, str]:
    """Return what the options of a command select, as the query of a page."""
    names = ("queue" if word == "-q" else word.lstrip("-") for word in options[::2])
    return dict(zip(names, options[1::2], strict=True))


def figures(seen: Overview, visit: Visit) -> Figures:
    """Return the numbers of all queues together, and how today compares with yesterday."""
    oldest = max(
        (line.waiting.oldest_for for line in seen.lines if line.waiting.oldest_for is not None),
        default=None,
    )
    counts = (
        sum(line.counts.started for line in seen.lines),
        len({node.id for node in seen.nodes}),
        len({node.id for node in seen.nodes if node.is_unheard}),
        sum(line.counts.pending for line in seen.lines),
        oldest,
        sum(line.counts.scheduled for line in seen.lines),
    )
    names = [line.queue for line in seen.lines if not line.is_quiet]
    if len(names) > MOST_STATISTICS:
        return Figures(*counts, None, None, None, None)
    found = visit.reader.statistics(sorted(names), 2).values()
    before, today = ([[*one.days.values()][place] for one in found] for place in (0, 1))
    return Figures(
        *counts,
        done=sum(day.complete for day in today),
        yesterday=sum(day.complete for day in before),
        failed=sum(day.failed for day in today),
        lost=sum(day.lost for day in today),
    )


def spark(statistics: Statistics | None) -> Markup:
    """Return bars of the tasks that ended on the last days, and of those that failed."""
    days = [*statistics.days.values()] if statistics else []
    failed = [day.failed for day in days]
    ended = [day.complete + day.failed for day in days]
    says = f"{sum(ended) - sum(failed):,} done and {sum(failed):,} failed in {len(days)} days"
    return charts.spark(ended, failed, says)


def _importance(concerns: Iterable[Concern]) -> Callable[[QueueOverview], tuple[bool, int, str]]:
    """Return a key that puts queues with concerns first, then those with the most waiting tasks."""
    about = {concern.about for concern in concerns}
    return lambda line: (
        line.queue not in about,
        -line.counts.pending - line.counts.started,
        line.queue,
    )
