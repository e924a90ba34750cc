"""The charts of a report, each a figure with a caption that says what it shows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from blueque.report import svg
from blueque.report.phrases import counted, day, share, span
from blueque.report.scales import Bins, Counts, Days, Durations, Tick
from blueque.report.summary import Group, Spread

HEIGHT = 120  # pixels of a plot, without the labels below it
_LABELS = 20
_WIDEST = 0.07  # the largest share of the width for the bar of a day
_TICKS = 5
# The lines of a spread, and their labels.
_LINES: tuple[tuple[str, str, Callable[[Spread], float]], ...] = (
    ("p99", "99 % within", lambda spread: spread.p99),
    ("p90", "90 % within", lambda spread: spread.p90),
    ("p50", "median", lambda spread: spread.p50),
)


def throughput(name: str, title: str, groups: Sequence[Group]) -> str:
    """Return how many tasks ended each day, and how."""
    parts = {
        "complete": [group.complete for group in groups],
        "cancelled": [group.cancelled for group in groups],
        "failed": [group.failed for group in groups],
        "other": [group.others for group in groups],
    }
    everything = sum(group.n for group in groups)
    says = f"{everything / len(groups):,.0f} a day on average{_most(groups, lambda group: group.n)}"
    return _bars(
        name, title, says if len(groups) > 1 else counted(everything, "task"), groups, parts
    )


def failed(name: str, title: str, groups: Sequence[Group]) -> str:
    """Return how many tasks failed each day."""
    counts = [group.failed for group in groups]
    says = f"{sum(counts):,} in all{_most(groups, lambda group: group.failed)}"
    return (
        _bars(name, title, says, groups, {"failed": counts})
        if any(counts)
        else figure(name, title, "none")
    )


def durations(name: str, title: str, spreads: Mapping[int, Spread], days: Days) -> str:
    """Return median, 90 % and 99 % by day on a logarithmic axis; a day without tasks is a gap."""
    if not spreads:
        return figure(name, title, "not known of any task")
    scale = Durations(
        [seconds for spread in spreads.values() for seconds in (spread.p50, spread.p99)]
    )
    lines = []
    for kind, _, of in _LINES:
        values = {number: of(spread) for number, spread in spreads.items()}
        lines.append(svg.path(_line(values, days, scale), f"line {kind}"))
        lines.append(svg.path(_dots(values, days, scale), f"dot {kind}"))
    tips = [
        _hit(days, number, _spread_tip(number, spread))
        for number, spread in sorted(spreads.items())
    ]
    low, high = (span(extreme(spread.p50 for spread in spreads.values())) for extreme in (min, max))
    says = f"median {low}" if low == high else f"daily median {low} to {high}"
    return figure(
        name,
        title,
        says,
        *_across(scale.ticks()),
        *_below(days.ticks(_TICKS)),
        svg.stretched(HEIGHT, *lines),
        _hits(tips),
    )


def run_times(name: str, title: str, counts: Mapping[int, int], spread: Spread | None) -> str:
    """Return how many tasks ran how long."""
    if not counts or spread is None:
        return figure(name, title, "not known of any task")
    bins = Bins(counts)
    places, everything = len(bins.counts), sum(bins.counts)
    scale, bars = Counts(max(bins.counts), 3), []
    for place, count in enumerate(bins.counts):
        since, until = (span(seconds) for seconds in bins.edges(place))
        lasted = f"{since} to {until}" if until != "-" else f"{since} or longer"
        tip = f"{lasted}: {counted(count, 'task')}, {share(count, everything)}"
        if count:
            bars.append(_bar(place / places, 1 / places, 0, scale.at(count), "complete bin", tip))
    says = f"median {span(spread.p50)}, 90 % within {span(spread.p90)}"
    return figure(
        name,
        title,
        says,
        *_across(scale.ticks()),
        *_below(bins.ticks()),
        *bars,
        *_marks(bins, spread),
    )


def range_bar(spread: Spread, scale: Durations) -> str:
    """Return a small chart of a spread for a row of a table: thick from the median to 90 %, thin on
    to 99 %.
    """
    p50, p90, p99 = (scale.at(seconds) for seconds in (spread.p50, spread.p90, spread.p99))
    mark = svg.rect(min(max(p50 - 0.01, 0), 0.98), 1, 0.02, 12, "mark")
    thick = svg.rect(p50, 4, p90 - p50, 6, "thick") if p90 > p50 else ""
    return svg.ornament("100%", 14, svg.line(p90, 7, p99, 7, "thin"), thick, mark, class_="range")


def figure(name: str, title: str, says: str, *content: str) -> str:
    """Return a chart with its title and a sentence on what it shows; without content only these
    two.
    """
    caption = svg.tag(
        "figcaption", svg.tag("b", svg.text(title)), svg.tag("span", svg.text(says), title=says)
    )
    return svg.tag(
        "figure",
        caption,
        svg.picture(name, title, says, HEIGHT + _LABELS, *content) if content else "",
    )


def legend(outcomes: bool, lines: bool) -> str:
    """Return the meaning of the colours and lines."""
    keys = []
    if outcomes:
        for kind in ("complete", "failed", "cancelled"):
            keys.append(svg.tag("span", svg.ornament("10", 10, svg.rect(0, 0, 1, 10, kind)), kind))
    if lines:
        for kind, said, _ in reversed(_LINES):
            keys.append(
                svg.tag("span", svg.ornament("20", 10, svg.line(0, 5, 1, 5, f"line {kind}")), said)
            )
    return svg.tag("p", *keys, class_="legend")


def _bars(
    name: str, title: str, says: str, groups: Sequence[Group], parts: Mapping[str, Sequence[int]]
) -> str:
    days = Days(groups[0].day or 0, groups[-1].day or 0)
    scale = Counts(max(sum(counts) for counts in zip(*parts.values(), strict=True)))
    width = min(0.8 / days.count, _WIDEST)
    bars, tips = [], []
    for place, group in enumerate(groups):
        number, low = group.day or 0, 0
        for kind, counts in parts.items():
            if counts[place]:
                bars.append(
                    _bar(
                        days.at(number) - width / 2,
                        width,
                        scale.at(low),
                        scale.at(counts[place]),
                        kind,
                    )
                )
            low += counts[place]
        told = [f"{counts[place]:,} {kind}" for kind, counts in parts.items() if counts[place]]
        tips.append(_hit(days, number, f"{day(number)}: {', '.join(told) or 'none'}"))
    return figure(
        name, title, says, *_across(scale.ticks()), *_below(days.ticks(_TICKS)), *bars, _hits(tips)
    )


def _most(groups: Sequence[Group], of: Callable[[Group], int]) -> str:
    most = max(groups, key=of)
    return f", most on {day(most.day or 0)}: {of(most):,}" if len(groups) > 1 else ""


def _bar(x: float, width: float, low: float, high: float, class_: str, tip: str = "") -> str:
    height = max(high * HEIGHT, 1.0)  # one of a million is visible, too
    return svg.rect(x, HEIGHT * (1 - low) - height, width, height, class_, tip)


def _line(values: Mapping[int, float], days: Days, scale: Durations) -> Iterator[str]:
    """Yield a line through consecutive days."""
    for number in sorted(values):
        yield f"{'L' if number - 1 in values else 'M'}{_point(number, values[number], days, scale)}"


def _dots(values: Mapping[int, float], days: Days, scale: Durations) -> Iterator[str]:
    """Yield a dot for each day without neighbours: a line of no length, with round ends."""
    for number in values:
        if number - 1 not in values and number + 1 not in values:
            yield f"M{_point(number, values[number], days, scale)}h0.01"


def _point(number: int, value: float, days: Days, scale: Durations) -> str:
    return f"{svg.number(days.at(number) * svg.WIDTH)} {svg.number(HEIGHT * (1 - scale.at(value)))}"


def _hit(days: Days, number: int, tip: str) -> str:
    """Return an invisible area that shows a tip to a pointer above or below a day."""
    return svg.rect(days.at(number) - 0.5 / days.count, 0, 1 / days.count, HEIGHT, None, tip)


def _hits(hits: Iterable[str]) -> str:
    return svg.tag("g", *hits, class_="hits")


def _spread_tip(number: int, spread: Spread) -> str:
    told = [f"{said} {span(of(spread))}" for _, said, of in reversed(_LINES)]
    return f"{day(number)}: {', '.join(told)}, {counted(spread.n, 'task')}"


def _marks(bins: Bins, spread: Spread) -> Iterator[str]:
    """Yield lines at the median and at 90 %, with labels above the plot, unless one would cover the
    other.
    """
    p50, p90 = bins.at(spread.p50), bins.at(spread.p90)
    for at, said in ((p50, "median"), (p90, "90 %")):
        yield svg.line(at, -3, at, HEIGHT, "quantile")
        if said == "median" or p90 - p50 > 0.16:
            yield svg.label(at, -5, said, _anchor(at, 0.1))


def _across(ticks: Iterable[Tick]) -> Iterator[str]:
    for tick in ticks:
        y = HEIGHT * (1 - tick.at)
        yield svg.line(0, y, 1, y, "grid")
        yield svg.label(0, y + 4, tick.label, "end", -6)


def _below(ticks: Iterable[Tick]) -> Iterator[str]:
    for tick in ticks:
        yield svg.label(tick.at, HEIGHT + 15, tick.label, _anchor(tick.at, 0.05))


def _anchor(at: float, margin: float) -> str:
    return "start" if at < margin else "end" if at > 1 - margin else "middle"
