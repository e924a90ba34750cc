"""Pictures of what ran when: a row for each host, with lanes for concurrent runs, or their number."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from markupsafe import Markup

from blueque.report import phrases, svg
from blueque.report.lanes import STEPS, lanes, profile
from blueque.report.phrases import span, stamp, work
from blueque.report.scales import Times, step_of
from blueque.report.summary import Bar, Timeline
from blueque.text.format import count

LANES = 12  # lanes of one host; more are drawn as a profile
_PROFILE = 30  # pixels
_EDGE = 7  # pixels that lines of the axis go beyond the bars
# Shares of the width: neighbours below the first are drawn as one, nothing is below the second, and
# a text has room in the third.
_THIN, _THINNEST, _WORDS = 0.004, 0.002, 0.09
_TICKS = 9
# Labels that may touch the word "now": on a narrow screen, and on any.
_NEAR, _AT_NOW = 0.85, 0.935
# From the bottom, so that trouble is on top.
_ORDER = (
    "complete",
    "cancelled",
    "given back",
    "other",
    "many",
    "running",
    "not heard",
    "failed",
    "lost",
)


class Look(NamedTuple):
    """How runs are drawn. times: the axis. clock: writes a time. link: returns the address of a
    task. height: of a lane, in pixels. is_live: the axis ends now.
    """

    times: Times
    clock: Callable[[float], str]
    link: Callable[[str], str] | None = None
    height: int = 9
    is_live: bool = False

    @property
    def gap(self) -> int:
        """Pixels between two lanes."""
        return 2 if self.height < 12 else 3


class Row(NamedTuple):
    """A host as a row of a timeline. tip: its whole name and what it did. facts: two lines."""

    short: str
    tip: str
    picture: Markup
    facts: Sequence[str]


def look(timeline: Timeline) -> Look:
    """Return how a report draws runs: in UTC, without links."""
    length = timeline.until - timeline.since
    times = Times(timeline.since, timeline.until)
    return Look(times, lambda instant: stamp(instant, length))


def rows(timeline: Timeline) -> Iterator[Row]:
    """Yield a row for each host."""
    short, how = phrases.hosts([host.name for host in timeline.hosts]), look(timeline)
    for host in timeline.hosts:
        facts = [count(host.n, "run"), work(host.work)]
        tip = f"{host.name}, {count(host.nodes, 'listener')}: {', '.join(facts)} of work"
        statuses = timeline.profiles.get(host.name)
        if statuses is None:
            drawn = picture(timeline.bars.get(host.name, ()), how, tip)
        else:
            drawn, facts[1] = (
                _profile(statuses, how, tip),
                f"{facts[1]}, peak {_peak(statuses):.3g}",
            )
        yield Row(short[host.name], tip, drawn, facts)


def says(timeline: Timeline) -> str:
    """Return the sentence that explains the pictures of a report."""
    runs = count(sum(host.n for host in timeline.hosts), "run")
    length = timeline.until - timeline.since
    since, until = stamp(timeline.since, length), stamp(timeline.until, length)
    told = f"{runs} on {count(len(timeline.hosts), 'host')}, {since} to {until} UTC. "
    if timeline.bars:
        told += "Each bar is a run; short runs that are close together are drawn as one. "
        told += "Runs at the same time are drawn below each other."
    else:
        told += "There are too many runs to draw each: the height is their average number at a time, over "
        told += f"{span(timeline.step)}; each host has a scale of its own."
    return told + (
        f" {count(timeline.more, 'host')} with less work left out." if timeline.more else ""
    )


def picture(bars: Iterable[Bar], look: Look, says: str = "") -> Markup:
    """Return the runs of a host as a picture: a bar for each, or a profile without room for bars."""
    runs = [*bars]
    packed = lanes(runs)
    if len(packed) > LANES:
        since, length = look.times.since, look.times.until - look.times.since
        step = step_of(length, STEPS)
        statuses = profile(runs, since, step, math.ceil(length / step))
        return _profile(statuses, look, says or _says(runs))
    drawn = [
        bar
        for number, lane in enumerate(packed)
        for bar in _bars(lane, look, number * (look.height + look.gap))
    ]
    drawn.sort(key=lambda bar: _ORDER.index(bar[0]))
    tall = max(len(packed), 1) * (look.height + look.gap) - look.gap
    content = [*_grid(look, tall), *(html for _, html in drawn)]
    return svg.picture(says or _says(runs), tall, *content)


def axis(look: Look) -> Markup:
    """Return the labels above pictures, including those for a narrow screen."""
    labels = []
    for tick in look.times.ticks(_TICKS):
        class_ = "mid odd" if tick.is_minor else "mid"
        if look.is_live and tick.at > _NEAR:
            class_ += " minor"
        if not look.is_live or tick.at < _AT_NOW:
            labels.append(svg.label(tick.at, 12, tick.label, class_))
    now = [svg.tag("text", "now", class_="nowt", x="100%", y=12)] if look.is_live else []
    return svg.ornament("100%", 16, *labels, *now)


def _says(runs: Sequence[Bar]) -> str:
    names = [run.status for run in runs]
    each = ", ".join(f"{names.count(name)} {name}" for name in dict.fromkeys(names))
    return f"{count(len(runs), 'run')}: {each}" if runs else "nothing ran"


def _bars(lane: Iterable[Bar], look: Look, y: float) -> Iterator[tuple[str, Markup]]:
    """Yield the kind and the picture of each bar of a lane."""
    for block in _blocks(lane, look.times):
        first, last = block[0], block[-1]
        left = look.times.at(first.start)
        width = max(look.times.at(last.end) - left, _THINNEST)
        left = min(left, 1 - width)
        status = first.status if first.status in _ORDER else "other"
        kind = "many" if status == "complete" and len(block) > 1 else status
        yield kind, _bar(block, look, kind, left, width, y)


def _blocks(lane: Iterable[Bar], times: Times) -> Iterator[list[Bar]]:
    """Yield bars that are drawn as one: thin bars of the same outcome without a visible gap."""
    block: list[Bar] = []
    for bar in lane:
        if block and not _joins(block[-1], bar, times):
            yield block
            block = []
        block.append(bar)
    if block:
        yield block


def _joins(before: Bar, bar: Bar, times: Times) -> bool:
    places = [(times.at(each.start), times.at(each.end)) for each in (before, bar)]
    is_thin = all(end - start < _THIN for start, end in places)
    return before.status == bar.status and is_thin and places[1][0] - places[0][1] < _THIN


def _bar(
    block: Sequence[Bar], look: Look, kind: str, left: float, width: float, y: float
) -> Markup:
    first, last = block[0], block[-1]
    ends = "now" if last.status == "running" else look.clock(last.end)
    times = f"{look.clock(first.start)} to {ends}"
    class_ = f"r {kind.replace(' ', '-')}"
    if len(block) > 1:
        tip = f"{count(len(block), 'run')}, {first.status}, {times}"
        return svg.rect(left, y, width, look.height, class_, tip)
    where = f" on {first.node}" if first.node else ""
    name = f"{first.queue} {first.task_id[:8]}"
    tip = f"{name}: {first.status}, {times}, {span(first.end - first.start)}{where}"
    box = svg.rect(left, y, width, look.height, class_, tip)
    if look.link is None:
        return box
    words = []
    if look.height >= 12 and width >= _WORDS:
        lab = "lab odd" if kind == "running" else "lab d odd"
        cut, middle = svg.text(name, int(width * 110)), svg.number(y + look.height / 2 + 3.7)
        words = [svg.tag("text", cut, class_=lab, x=svg.percent(left), dx=6, y=middle)]
    # One stop of the keyboard for each run that may need a hand.
    stop = None if kind in ("running", "not heard", "failed", "lost") else "-1"
    href = look.link(first.task_id)
    return svg.tag("a", box, *words, href=href, tabindex=stop, aria_label=tip)


def _peak(statuses: Mapping[str, Sequence[float]]) -> float:
    return max(map(sum, zip(*statuses.values(), strict=True)), default=0.0)


def _profile(statuses: Mapping[str, Sequence[float]], look: Look, says: str) -> Markup:
    peak = _peak(statuses)
    known = [status for status in _ORDER if status in statuses] + sorted({*statuses} - {*_ORDER})
    below = [0.0] * len(next(iter(statuses.values()), []))
    areas = []
    for status in known:
        above = [low + more for low, more in zip(below, statuses[status], strict=True)]
        kind = status if status in _ORDER else "other"
        areas.append(svg.path(_area(below, above, peak), f"r {kind.replace(' ', '-')}"))
        below = above
    says = f"{says}, at most {peak:.3g} at the same time"
    content = [svg.tag("title", says), *_grid(look, _PROFILE), svg.stretched(_PROFILE, *areas)]
    return svg.picture(says, _PROFILE, *content)


def _area(below: Sequence[float], above: Sequence[float], peak: float) -> Iterator[str]:
    """Yield the outline of consecutive steps with a height, one for each run of them."""
    width, scale = svg.WIDTH / max(len(below), 1), (_PROFILE - 2) / (peak or 1)
    place = 0
    while place < len(below):
        end = place
        while end < len(below) and above[end] - below[end] > 1e-9:
            end += 1
        if end > place:
            yield f"M{svg.number(place * width)} {svg.number(_PROFILE - below[place] * scale)}"
            yield from _steps(above, range(place, end), width, scale)
            yield from _steps(below, range(end - 1, place - 1, -1), width, scale)
            yield "Z"
        place = max(end, place + 1)


def _steps(values: Sequence[float], places: range, width: float, scale: float) -> Iterator[str]:
    for place in places:
        yield f"V{svg.number(_PROFILE - values[place] * scale)}H{svg.number((place + (places.step > 0)) * width)}"


def _grid(look: Look, height: float) -> Iterator[Markup]:
    for tick in look.times.ticks(_TICKS):
        yield svg.line(tick.at, -_EDGE, tick.at, height + _EDGE, "gl")
    if look.is_live:
        yield svg.line(1, -_EDGE, 1, height + _EDGE, "now")
