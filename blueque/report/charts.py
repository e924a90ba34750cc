"""The charts of reports and pages, each a figure with a caption that says what it shows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from markupsafe import Markup

from blueque.report import svg
from blueque.report.phrases import day, share, span
from blueque.report.scales import Bins, Counts, Days, Durations, Tick
from blueque.report.summary import Group, Spread
from blueque.text.format import count

HEIGHT = 120  # pixels of a plot, without the labels below it
_LABELS = 20
_WIDEST = 0.07  # the largest share of the width for the bar of a day
_TICKS = 5
_SPARK, _STEP = 19, 7  # pixels: the height of a small chart, and the width of a day in it
# The lines of a spread, and their labels.
_LINES: tuple[tuple[str, str, Callable[[Spread], float]], ...] = (
    ("p99", "99 % within", lambda spread: spread.p99),
    ("p90", "90 % within", lambda spread: spread.p90),
    ("p50", "median", lambda spread: spread.p50),
)
LINES = tuple((kind, said) for kind, said, _ in reversed(_LINES))


def throughput(groups: Sequence[Group]) -> Markup:
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
        "Tasks per day", says if len(groups) > 1 else count(everything, "task"), groups, parts
    )


def failed(groups: Sequence[Group]) -> Markup:
    """Return how many tasks failed each day."""
    counts = [group.failed for group in groups]
    says = f"{sum(counts):,} in all{_most(groups, lambda group: group.failed)}"
    if not any(counts):
        return figure("Failed per day", "none")
    return _bars("Failed per day", says, groups, {"failed": counts})


def waited(groups: Sequence[Group], days: Sequence[Group]) -> Markup:
    """Return how long the tasks of each day waited. days: of the axis."""
    return _durations("Waited", groups, days, lambda group: group.wait)


def ran(groups: Sequence[Group], days: Sequence[Group]) -> Markup:
    """Return how long the tasks of each day ran. days: of the axis."""
    return _durations("Ran", groups, days, lambda group: group.run)


def run_times(counts: Mapping[int, int], spread: Spread | None) -> Markup:
    """Return how many tasks ran for how long."""
    title = "Run times of all days"
    if not counts or spread is None:
        return figure(title, "not known for any task")
    bins = Bins(counts)
    places, everything = len(bins.counts), sum(bins.counts)
    scale, bars = Counts(max(bins.counts), 3), []
    for place, number in enumerate(bins.counts):
        since, until = (span(seconds) for seconds in bins.edges(place))
        lasted = f"{since} to {until}" if until != "-" else f"{since} or longer"
        tip = f"{lasted}: {count(number, 'task')}, {share(number, everything)}"
        if number:
            bars.append(_bar(place / places, 1 / places, 0, scale.at(number), "complete bin", tip))
    says = f"median {span(spread.p50)}, 90 % within {span(spread.p90)}"
    drawn = [*_across(scale.ticks()), *_below(bins.ticks()), *bars, *_marks(bins, spread)]
    return figure(title, says, *drawn)


def range_scale(groups: Iterable[Group]) -> Durations | None:
    """Return the common axis of the small charts of run times; None: there are no times."""
    spreads = [group.run for group in groups if group.run]
    seconds = [seconds for spread in spreads for seconds in (spread.p50, spread.p99)]
    return Durations(seconds) if seconds else None


def range_bar(spread: Spread | None, scale: Durations | None) -> Markup:
    """Return a small chart of a spread: thick from the median to 90 %, thin on to 99 %."""
    if spread is None or scale is None:
        return Markup()
    p50, p90, p99 = (scale.at(seconds) for seconds in (spread.p50, spread.p90, spread.p99))
    mark = svg.rect(min(max(p50 - 0.01, 0), 0.98), 1, 0.02, 12, "median")
    thick = [svg.rect(p50, 4, p90 - p50, 6, "thick")] if p90 > p50 else []
    return svg.ornament("100%", 14, svg.line(p90, 7, p99, 7, "thin"), *thick, mark, class_="range")


def share_bar(part: float, whole: float) -> Markup:
    """Return a bar for a row of a table."""
    return svg.ornament("100%", 8, svg.rect(0, 0, part / whole if whole else 0, 8, "r failed"))


def spark(ended: Sequence[int], failed: Sequence[int], says: str) -> Markup:
    """Return small bars by day: of all that ended, and of those that failed."""
    most = max(ended, default=0) or 1
    bars = []
    for number, (whole, bad) in enumerate(zip(ended, failed, strict=True)):
        heights = [(max(18 * whole / most, 1), None if whole else "z")]
        heights += [(max(18 * bad / most, 1.5), "f")] if bad else []
        for height, class_ in heights:
            top, tall = svg.number(_SPARK - height), svg.number(height)
            bars.append(
                svg.tag("rect", x=number * _STEP, y=top, width=5, height=tall, class_=class_)
            )
    return svg.tag(
        "svg", svg.tag("title", says), *bars, class_="spark", role="img", aria_label=says
    )


def figure(title: str, says: str, *content: str) -> Markup:
    """Return a chart with its title and a caption; without content, only these two."""
    caption = svg.tag("figcaption", svg.tag("b", title), svg.tag("span", says, title=says))
    if not content:
        return svg.tag("figure", caption)
    drawn = svg.picture(f"{title}: {says}", HEIGHT + _LABELS, *content, class_="plot")
    return svg.tag("figure", caption, drawn)


def _durations(
    title: str, groups: Sequence[Group], axis: Sequence[Group], of: Callable[[Group], Spread | None]
) -> Markup:
    """Return median, 90 % and 99 % by day on a logarithmic axis; a day without tasks is a gap."""
    spreads = {group.day or 0: spread for group in groups if (spread := of(group)) is not None}
    if not spreads:
        return figure(title, "not known for any task")
    days = Days(axis[0].day or 0, axis[-1].day or 0)
    scale = Durations(
        [seconds for spread in spreads.values() for seconds in (spread.p50, spread.p99)]
    )
    lines = []
    for kind, _, part in _LINES:
        values = {number: part(spread) for number, spread in spreads.items()}
        lines.append(svg.path(_line(values, days, scale), f"line {kind}"))
        lines.append(svg.path(_dots(values, days, scale), f"dots {kind}"))
    tips = [
        _hit(days, number, _spread_tip(number, spread))
        for number, spread in sorted(spreads.items())
    ]
    low, high = (span(extreme(spread.p50 for spread in spreads.values())) for extreme in (min, max))
    says = f"median {low}" if low == high else f"daily median {low} to {high}"
    drawn = svg.stretched(HEIGHT, *lines)
    axes = [*_across(scale.ticks()), *_below(days.ticks(_TICKS))]
    return figure(title, says, *axes, drawn, _hits(tips))


def _bars(
    title: str, says: str, groups: Sequence[Group], parts: Mapping[str, Sequence[int]]
) -> Markup:
    days = Days(groups[0].day or 0, groups[-1].day or 0)
    scale = Counts(max(sum(counts) for counts in zip(*parts.values(), strict=True)))
    width = min(0.8 / days.count, _WIDEST)
    bars, tips = [], []
    for place, group in enumerate(groups):
        number, low = group.day or 0, 0
        for kind, counts in parts.items():
            if counts[place]:
                x, high = days.at(number) - width / 2, scale.at(counts[place])
                bars.append(_bar(x, width, scale.at(low), high, kind))
            low += counts[place]
        told = [f"{counts[place]:,} {kind}" for kind, counts in parts.items() if counts[place]]
        tips.append(_hit(days, number, f"{day(number)}: {', '.join(told) or 'none'}"))
    axes = [*_across(scale.ticks()), *_below(days.ticks(_TICKS))]
    return figure(title, says, *axes, *bars, _hits(tips))


def _most(groups: Sequence[Group], of: Callable[[Group], int]) -> str:
    most = max(groups, key=of)
    return f", most on {day(most.day or 0)}: {of(most):,}" if len(groups) > 1 else ""


def _bar(x: float, width: float, low: float, high: float, class_: str, tip: str = "") -> Markup:
    height = max(high * HEIGHT, 1.0)  # one of a million is visible, too
    return svg.rect(x, HEIGHT * (1 - low) - height, width, height, f"r {class_}", tip)


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


def _hit(days: Days, number: int, tip: str) -> Markup:
    """Return an invisible area that shows a tip to a pointer above or below a day."""
    return svg.rect(days.at(number) - 0.5 / days.count, 0, 1 / days.count, HEIGHT, None, tip)


def _hits(hits: Iterable[str]) -> Markup:
    return svg.tag("g", *hits, class_="hits")


def _spread_tip(number: int, spread: Spread) -> str:
    told = [f"{said} {span(of(spread))}" for _, said, of in reversed(_LINES)]
    return f"{day(number)}: {', '.join(told)}, {count(spread.n, 'task')}"


def _marks(bins: Bins, spread: Spread) -> Iterator[Markup]:
    """Yield lines at the median and at 90 %, labelled above the plot unless labels overlap."""
    p50, p90 = bins.at(spread.p50), bins.at(spread.p90)
    for at, said in ((p50, "median"), (p90, "90 %")):
        yield svg.line(at, -3, at, HEIGHT, "quantile")
        if said == "median" or p90 - p50 > 0.16:
            yield svg.label(at, -5, said, _anchor(at, 0.1))


def _across(ticks: Iterable[Tick]) -> Iterator[Markup]:
    for tick in ticks:
        y = HEIGHT * (1 - tick.at)
        yield svg.line(0, y, 1, y, "gl")
        yield svg.label(0, y + 4, tick.label, "rt", -6)


def _below(ticks: Iterable[Tick]) -> Iterator[Markup]:
    for tick in ticks:
        yield svg.label(tick.at, HEIGHT + 15, tick.label, _anchor(tick.at, 0.05))


def _anchor(at: float, margin: float) -> str:
    return "" if at < margin else "rt" if at > 1 - margin else "mid"
