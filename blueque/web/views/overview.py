"""The first page: is anything wrong now, what runs, and what waits."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from markupsafe import Markup

from blueque.queries.listing import entered
from blueque.report import charts
from blueque.sentences import attention
from blueque.sentences.attention import URGENT, Concern, stands_still
from blueque.sentences.pace import left_of, unheard, usual_of
from blueque.text.eta import read_progress
from blueque.text.what import what
from blueque.web import hosts
from blueque.web.reader import MOST_STATISTICS
from blueque.web.visit import ID, Page, Visit

if TYPE_CHECKING:
    from blueque.model.task import Task
    from blueque.queries.overview import Line, Overview
    from blueque.queries.statistics import Statistics

MOST_CONCERNS, MOST_RUNNING, MOST_QUEUES, MOST_HOSTS = 20, 10, 20, 12
DAYS = 14
STRIP = 12 * 3600.0  # seconds of the picture of hosts
STRIP_EVENTS = 8000  # that are read for it


class Running(NamedTuple):
    """A running task as a row. share: how much is done, 0 to 1; left: in words; sign: when it last
    reported or printed, in Unix seconds.
    """

    task: Task
    what: str | None
    since: float | None
    share: float | None
    told: str
    left: str
    sign: float | None
    is_still: bool


class Row(NamedTuple):
    """A concern as a row. sentence: with links. act: a word and the page that tells more or helps;
    None: only the command does.
    """

    is_urgent: bool
    about: str
    url: str | None
    sentence: Markup
    act: tuple[str, str] | None
    command: str | None


class Figures(NamedTuple):
    """The numbers of all queues. None: there are too many queues to add up."""

    running: int
    listeners: int
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
    concerns = list(attention.concerns(seen, visit.site.serve))
    shown = sorted(seen.lines, key=_importance(concerns))[:MOST_QUEUES]
    statistics = visit.reader.statistics(sorted(line.queue for line in shown), DAYS)
    busy = [line.queue for line in seen.lines if line.queue not in seen.quiet]
    found = visit.reader.timeline(busy, STRIP, STRIP_EVENTS)
    context = {
        "overview": seen,
        "heading": heading(concerns),
        "concerns": [row(concern, visit) for concern in concerns[:MOST_CONCERNS]],
        "more_concerns": max(len(concerns) - MOST_CONCERNS, 0),
        "figures": figures(seen, visit),
        "running": [running(task, seen, visit) for task in seen.running[:MOST_RUNNING]],
        "queues": [(line, spark(statistics.get(line.queue))) for line in shown],
        "bad": {concern.about for concern in concerns if concern.code in URGENT},
        "strip": hosts.strip(seen.nodes, found, visit, MOST_HOSTS),
    }
    return Page("overview.html", context)


def heading(concerns: Sequence[Concern]) -> str:
    """Return the answer to the question of the page."""
    if not concerns:
        return "All is well"
    return (
        "1 thing needs attention"
        if len(concerns) == 1
        else f"{len(concerns)} things need attention"
    )


def row(concern: Concern, visit: Visit) -> Row:
    """Return a concern with links to its queue and to the tasks that it names."""
    names = {line.queue for line in visit.reader.overview().lines}
    url = visit.queue_url(concern.about) if concern.about in names else None
    command = concern.command and ID.sub(lambda found: found[0][:8], concern.command)
    return Row(
        concern.code in URGENT,
        concern.about,
        url,
        visit.linked(concern.sentence),
        _act(concern.command, visit),
        command,
    )


def _act(command: str | None, visit: Visit) -> tuple[str, str] | None:
    """Return the page that shows what a command prints."""
    words = (command or "").split()
    task = next(filter(ID.fullmatch, words), None)
    if task is not None and words[1] in ("why", "show", "logs"):
        page = visit.task_url(task)
        return ("Log", f"{page}/log") if words[1] == "logs" else (words[1].capitalize(), page)
    if words[1:2] == ["doctor"]:
        return "Doctor", visit.url("/doctor")
    if words[1:2] == ["ls"] and "held" not in words:
        return "Tasks", visit.url("/tasks", **_selected(command or ""))
    if words[1:3] == ["schedule", "history"]:
        return "History", visit.url("/schedule/" + shlex.split(command or "")[3])
    return ("Hosts", visit.url("/nodes")) if words[1:2] == ["node"] else None


def _selected(command: str) -> dict[str, str]:
    """Return what a command selects, as the query of a page."""
    words = shlex.split(command)[2:]
    names = ("queue" if word == "-q" else word.lstrip("-") for word in words[::2])
    return dict(zip(names, words[1::2], strict=True))


def running(task: Task, seen: Overview, visit: Visit) -> Running:
    """Return a running task as a row."""
    now = seen.now
    told = read_progress(task.fields.get("progress", ""))
    usual = usual_of(seen.usual.get(task.queue or "")) if told.share is None else None
    left = left_of(task, now)[1] if task.node not in unheard(seen.nodes) else None
    signs = [at for at in (task.progress_at, seen.printed.get(task.id)) if at is not None]
    return Running(
        task,
        what(task, visit.site.hide),
        entered(task),
        told.share,
        told.text,
        left or usual or "–",
        max(signs, default=None),
        stands_still(task, now),
    )


def figures(seen: Overview, visit: Visit) -> Figures:
    """Return the numbers of all queues together, and how today compares with yesterday."""
    oldest = max((line.oldest for line in seen.lines if line.oldest is not None), default=None)
    counts = (
        sum(line.started for line in seen.lines),
        len({node.id for node in seen.nodes}),
        sum(line.pending for line in seen.lines),
        oldest,
        sum(line.scheduled for line in seen.lines),
    )
    names = [line.queue for line in seen.lines if line.queue not in seen.quiet]
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


def _importance(concerns: Iterable[Concern]) -> Callable[[Line], tuple[bool, int, str]]:
    """Return a key that puts queues with concerns first, then those with the most waiting tasks."""
    about = {concern.about for concern in concerns}
    return lambda line: (line.queue not in about, -line.pending - line.started, line.queue)
