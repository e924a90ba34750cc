"""The pictures of a task: how long it has run and may take, and its attempts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from markupsafe import Markup

from blueque.queries import timeline
from blueque.report import svg
from blueque.report.scales import step_of
from blueque.sentences.pace import left_of
from blueque.text.eta import roughly
from blueque.text.format import span
from blueque.web import hosts
from blueque.web.visit import Visit

if TYPE_CHECKING:
    from blueque.model.task import Task
    from blueque.queries.history import History
    from blueque.queries.signs import Signs
    from blueque.queries.statistics import Durations

LEAST_RUNS = 5  # fewer tell no usual run time
TICKS = 9  # of the picture of its attempts
USUAL_DAYS = 7


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
