"""The chart of what ran when: a row for each host, with lanes for concurrent runs, or their number."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from blueque.report import phrases, svg
from blueque.report.phrases import counted, span, stamp, work
from blueque.report.scales import Times, step_of
from blueque.report.summary import Bar, Host, Timeline

LANES = 12  # lanes of one host; more are drawn as a profile
STEPS = 240
_LANE, _GAP, _PROFILE = 9, 2, 30  # pixels
_THIN, _THINNEST = 0.003, 0.0012  # shares of the width
_TICKS = 8
_ORDER = ("complete", "cancelled", "failed")  # from the bottom


def draw(timeline: Timeline) -> str:
    """Return a row for each host, and the common axis."""
    times = Times(timeline.since, timeline.until)
    short = phrases.hosts([host.name for host in timeline.hosts])
    rows = [
        _row(f"host{number}", host, short[host.name], timeline, times)
        for number, host in enumerate(timeline.hosts)
    ]
    return svg.tag("div", *rows, _axis(times), class_="timeline")


def says(timeline: Timeline) -> str:
    """Return the sentence that explains the chart."""
    runs = counted(sum(host.n for host in timeline.hosts), "run")
    length = timeline.until - timeline.since
    since, until = stamp(timeline.since, length), stamp(timeline.until, length)
    told = f"{runs} on {counted(len(timeline.hosts), 'host')}, {since} to {until} UTC. "
    if timeline.bars:
        told += (
            "Each bar is a run; those too short and too close to be told apart are drawn as one. "
        )
        told += "What ran at the same time is drawn one below the other."
    else:
        told += "Too many to draw one by one: the height is how many ran at the same time, on average over "
        told += f"{span(timeline.step)}; each host has a scale of its own."
    return told + (
        f" {counted(timeline.more, 'host')} with less work left out." if timeline.more else ""
    )


def add_up(changes: Mapping[int, tuple[float, int]], steps: int) -> list[float]:
    """Return how many ran at the same time in each step, on average.

    changes: by step, what the runs that start or end in it add to the step itself (part), and to
        all later steps (whole).
    """
    found, level = [], 0.0
    for place in range(steps):
        part, whole = changes.get(place, (0.0, 0))
        found.append(max(level + part, 0.0))
        level += whole
    return found


def profile(bars: Iterable[Bar], since: float, step: float, steps: int) -> dict[str, list[float]]:
    """Return the same for bars, by status."""
    changes: dict[str, dict[int, tuple[float, int]]] = {}
    for bar in bars:
        for instant, sign in ((bar.start, 1), (bar.end, -1)):
            at = max(instant - since, 0.0) / step
            place = math.floor(at)
            part, whole = changes.setdefault(bar.status, {}).get(place, (0.0, 0))
            changes[bar.status][place] = (part + sign * (place + 1 - at), whole + sign)
    return {status: add_up(places, steps) for status, places in changes.items()}


def lanes(bars: Iterable[Bar]) -> list[list[Bar]]:
    """Return the bars in as few lanes as possible, without overlaps in a lane."""
    found: list[list[Bar]] = []
    ends: list[tuple[float, int]] = []  # when each lane is free again
    for bar in sorted(bars, key=lambda bar: (bar.start, bar.end)):
        if ends and ends[0][0] <= bar.start:
            _, number = heapq.heappop(ends)
        else:
            number = len(found)
            found.append([])
        found[number].append(bar)
        heapq.heappush(ends, (bar.end, number))
    return found


def _row(name: str, host: Host, short: str, timeline: Timeline, times: Times) -> str:
    facts = f"{counted(host.n, 'run')}, {work(host.work)}"
    tip = f"{host.name}, {counted(host.nodes, 'listener')}: {facts} of work"
    packed = lanes(timeline.bars.get(host.name, ()))
    if packed and len(packed) <= LANES:
        drawn = _draw_lanes(name, tip, packed, times)
    else:
        statuses = _statuses(host, timeline)
        peak = max(map(sum, zip(*statuses.values(), strict=True)), default=0.0)
        facts += f", peak {peak:.3g}"
        drawn = _draw_profile(
            name, f"{tip}, at most {peak:.3g} at the same time", statuses, peak, times
        )
    label = svg.tag("span", svg.tag("bdi", svg.text(short)), class_="host", title=host.name)
    return svg.tag(
        "div", label, drawn, svg.tag("span", svg.text(facts), class_="facts"), class_="row"
    )


def _statuses(host: Host, timeline: Timeline) -> Mapping[str, Sequence[float]]:
    if host.name in timeline.profiles:
        return timeline.profiles[host.name]
    length = timeline.until - timeline.since
    step = step_of(length, STEPS)
    return profile(timeline.bars.get(host.name, ()), timeline.since, step, math.ceil(length / step))


def _draw_lanes(name: str, tip: str, packed: Sequence[Sequence[Bar]], times: Times) -> str:
    rects = [
        rect
        for number, lane in enumerate(packed)
        for rect in _rects(lane, times, _GAP + number * (_LANE + _GAP))
    ]
    height = _GAP + len(packed) * (_LANE + _GAP)
    return svg.picture(name, tip, tip, height, *_grid(times, height), *rects, class_="lanes")


def _rects(lane: Iterable[Bar], times: Times, y: float) -> Iterator[str]:
    for block in _blocks(lane, times):
        since, until = times.at(block[0].start), times.at(block[-1].end)
        width = max(until - since, _THINNEST)
        yield svg.rect(
            min(since, 1 - width), y, width, _LANE, _class(block[0].status), _tip(block, times)
        )


def _blocks(lane: Iterable[Bar], times: Times) -> Iterator[list[Bar]]:
    """Yield bars that are drawn as one: thin bars of the same outcome without a visible gap."""
    block: list[Bar] = []
    for bar in lane:
        is_thin = times.at(bar.end) - times.at(bar.start) < _THIN
        follows = (
            block
            and block[-1].status == bar.status
            and times.at(bar.start) - times.at(block[-1].end) < _THINNEST
        )
        was_thin = block and times.at(block[-1].end) - times.at(block[-1].start) < _THIN
        if block and not (is_thin and follows and was_thin):
            yield block
            block = []
        block.append(bar)
    if block:
        yield block


def _tip(block: Sequence[Bar], times: Times) -> str:
    first, last = block[0], block[-1]
    start, end = (stamp(instant, times.until - times.since) for instant in (first.start, last.end))
    if len(block) > 1:
        return f"{counted(len(block), 'run')}, {first.status}, {start} to {end}"
    ran = f"{first.status} after {span(first.end - first.start)}, from {start}"
    return f"{first.queue}: {ran} on {first.node}, task {first.task_id}"


def _draw_profile(
    name: str, tip: str, statuses: Mapping[str, Sequence[float]], peak: float, times: Times
) -> str:
    known = [status for status in _ORDER if status in statuses] + sorted({*statuses} - {*_ORDER})
    below = [0.0] * len(next(iter(statuses.values()), []))
    areas = []
    for status in known:
        above = [low + more for low, more in zip(below, statuses[status], strict=True)]
        areas.append(svg.path(_area(below, above, peak), _class(status)))
        below = above
    drawn = svg.stretched(_PROFILE, *areas)
    return svg.picture(name, tip, tip, _PROFILE, *_grid(times, _PROFILE), drawn, class_="lanes")


def _area(below: Sequence[float], above: Sequence[float], peak: float) -> Iterator[str]:
    """Yield the outline of consecutive steps with a height, one for each run of them."""
    width, scale = svg.WIDTH / max(len(below), 1), (_PROFILE - _GAP) / (peak or 1)
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


def _grid(times: Times, height: float) -> Iterator[str]:
    for tick in times.ticks(_TICKS):
        yield svg.line(tick.at, 0, tick.at, height, "grid")


def _axis(times: Times) -> str:
    labels = [
        # Also at the ends, where there is room beside it: if it were moved, equal distances would look
        # unequal.
        svg.label(tick.at, 12, tick.label, f"middle{' minor' if tick.is_minor else ''}")
        for tick in times.ticks(_TICKS)
    ]
    drawn = svg.ornament("100%", 16, *labels, class_="lanes")
    return svg.tag(
        "div",
        svg.tag("span", class_="host"),
        drawn,
        svg.tag("span", class_="facts"),
        class_="row axis",
    )


def _class(status: str) -> str:
    return status if status in _ORDER else "other"
