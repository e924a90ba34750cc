"""What ran when, as pictures: a lane for each attempt that ran at the same time.

Horizontal places are in percent, so that a picture has any width. Bars that are too thin to be told
apart are drawn as one, so that a picture has a bounded size whatever the history.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from markupsafe import Markup

from blueque.queries.timeline import Run
from blueque.report import svg
from blueque.report.phrases import counted
from blueque.report.scales import step_of
from blueque.text.format import span
from blueque.web.visit import Visit

MOST_LANES = 12  # of a host
THIN = 0.004  # a share of the width; thinner bars are drawn together
LABEL = 0.09  # a share of the width that has room for words
TICKS = 9
WORDS = {
    None: "running",
    "complete": "complete",
    "failed": "failed",
    "lost": "lost",
    "cancelled": "cancelled",
    "released": "given back",
}
_ORDER = ("complete", "cancelled", "given back", "many", "running", "failed", "lost")


class Span(NamedTuple):
    """A span of time, in Unix seconds, as the width of a picture."""

    since: float
    until: float

    def place(self, at: float) -> float:
        """Return the place of a time, as a share of the width."""
        return min(max((at - self.since) / (self.until - self.since), 0.0), 1.0)

    def ticks(self, visit: Visit) -> list[tuple[float, str]]:
        """Return the places of round times in the zone of the viewer, and their labels."""
        length = self.until - self.since
        step = step_of(length, TICKS)
        there = visit.at(self.since)
        shift = there.utcoffset().total_seconds() if there and there.utcoffset() else 0.0  # type: ignore[union-attr]
        first = (self.since + shift) // step * step + step - shift
        ticks = []
        for number in range(int((self.until - first) // step) + 1):
            at = first + number * step
            when = visit.at(at)
            if when is None:
                continue
            is_day = step >= 86400 or (f"{when:%H:%M}" == "00:00" and length > 86400)
            ticks.append((self.place(at), f"{when.day} {when:%b}" if is_day else f"{when:%H:%M}"))
        return ticks


def pack(runs: Iterable[Run], until: float) -> list[list[Run]]:
    """Return the runs in as few lanes as possible, without overlaps in a lane."""
    lanes: list[list[Run]] = []
    free: list[tuple[float, int]] = []  # when each lane is free again
    for run in sorted(runs, key=lambda run: (run.began, run.ended or until)):
        if free and free[0][0] <= run.began:
            _, number = heapq.heappop(free)
        else:
            number = len(lanes)
            lanes.append([])
        lanes[number].append(run)
        heapq.heappush(free, (run.ended or until, number))
    return lanes


def picture(
    runs: Sequence[Run], across: Span, visit: Visit, height: int = 7, gap: int = 2
) -> Markup:
    """Return the picture of the runs of a host. height: of a lane, in pixels."""
    lanes = pack(runs, across.until)
    rest = [run for lane in lanes[MOST_LANES:] for run in lane]
    tall = max(min(len(lanes), MOST_LANES) * (height + gap) - gap, height)
    grid = [
        svg.tag("line", class_="gl", x1=svg.percent(at), x2=svg.percent(at), y1="-7", y2=tall + 7)
        for at, _ in across.ticks(visit)
    ]
    bars = [
        bar
        for number, lane in enumerate(lanes[:MOST_LANES])
        for bar in _bars(lane, across, visit, number * (height + gap), height)
    ]
    bars.sort(key=lambda bar: _ORDER.index(bar[0]))
    now = svg.tag("line", class_="now", x1="100%", x2="100%", y1="-7", y2=tall + 7)
    more = svg.tag("title", f"{len(rest)} more runs") if rest else ""
    return Markup(
        svg.tag(
            "svg",
            more,
            *grid,
            *(html for _, html in bars),
            now,
            height=tall,
            role="group",
            aria_label=_says(runs),
        )
    )


def axis(across: Span, visit: Visit) -> Markup:
    """Return the labels above a picture."""
    labels = [
        svg.tag(
            "text",
            svg.text(text),
            class_=f"tick mid{' odd' if number % 2 else ''}",
            x=svg.percent(at),
            y="12",
        )
        for number, (at, text) in enumerate(across.ticks(visit))
        if at < 0.97
    ]
    now = svg.tag("text", "now", class_="nowt", x="100%", y="12")
    return Markup(svg.tag("svg", *labels, now, height="16", aria_hidden="true"))


def _says(runs: Sequence[Run]) -> str:
    names = [WORDS.get(run.outcome, "running") for run in runs]
    each = ", ".join(f"{names.count(name)} {name}" for name in dict.fromkeys(names))
    return f"{counted(len(runs), 'run')}: {each}" if runs else "nothing ran"


def _bars(
    lane: Sequence[Run], across: Span, visit: Visit, y: int, height: int
) -> Iterator[tuple[str, str]]:
    """Yield the kind and the picture of each bar of a lane."""
    block: list[Run] = []
    for run in lane:
        if block and not _joins(block[-1], run, across):
            yield _bar(block, across, visit, y, height)
            block = []
        block.append(run)
    if block:
        yield _bar(block, across, visit, y, height)


def _joins(before: Run, run: Run, across: Span) -> bool:
    """Tell whether two neighbours of a lane are too thin, and too close, to be drawn apart."""
    ends = [
        (across.place(one.began), across.place(one.ended or across.until)) for one in (before, run)
    ]
    is_thin = all(end - begin < THIN for begin, end in ends)
    is_alike = {before.outcome, run.outcome} <= {"complete"}
    return is_thin and is_alike and ends[1][0] - ends[0][1] < THIN


def _bar(block: Sequence[Run], across: Span, visit: Visit, y: int, height: int) -> tuple[str, str]:
    first, last = block[0], block[-1]
    left, right = across.place(first.began), across.place(last.ended or across.until)
    width = max(right - left, 0.002)
    kind = "many" if len(block) > 1 else WORDS.get(first.outcome, "running")
    box = svg.tag(
        "rect",
        class_=f"r {kind.replace(' ', '-')}",
        x=svg.percent(min(left, 1 - width)),
        y=y,
        width=svg.percent(width),
        height=height,
    )
    ends = "now" if last.ended is None else _when(last.ended, visit)
    times = f"{_when(first.began, visit)} to {ends}"
    if len(block) > 1:
        says = f"{len(block)} runs of {first.queue}, {times}"
        return kind, svg.tag("g", svg.tag("title", svg.text(says)), box)
    took = span((last.ended or across.until) - first.began)
    says = f"{first.queue} {first.task[:8]}: {kind}, {times}, {took}"
    title, content = svg.tag("title", svg.text(says)), [box]
    if height >= 12 and width >= LABEL:
        words = f"{first.queue} {first.task[:8]}"
        content.append(
            svg.tag(
                "text",
                svg.text(words, int(width * 110)),
                class_="lab odd" if kind == "running" else "lab d odd",
                x=svg.percent(left),
                dx=6,
                y=svg.number(y + height / 2 + 3.7),
            )
        )
    is_stop = kind in ("running", "failed", "lost")
    return kind, svg.tag(
        "a",
        title,
        *content,
        href=visit.task_url(first.task),
        tabindex=None if is_stop else "-1",
        aria_label=says,
    )


def _when(at: float, visit: Visit) -> str:
    there, today = visit.at(at), visit.at(visit.now)
    if there is None:
        return "?"
    if today is not None and there.date() == today.date():
        return f"{there:%H:%M}"
    return f"{there.day} {there:%b %H:%M}"
