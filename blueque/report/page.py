"""The page of a report: one HTML file for any screen, in light and dark, and for paper."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from blueque.report import charts, svg, tables, timeline
from blueque.report.phrases import counted, iso_day, share, span, stamp, work
from blueque.report.scales import Days, Durations
from blueque.report.style import STYLE
from blueque.report.summary import Group, Spread, Summary
from blueque.version import __version__

_FIRST = 20  # queues that are listed without a click
# if a text were ever not escaped, it could do nothing
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
# Failure is not shown by colour alone.
_HATCH = (
    '<svg width="0" height="0" class="defs" aria-hidden="true"><defs><pattern id="hatch" width="4" height="4" '
    'patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect width="4" height="4" class="hatch-ground"/>'
    '<rect width="1" height="4" class="hatch-line"/></pattern></defs></svg>'
)
_MEANING = (
    "Days are in UTC, of when a task finished. A task waits from when it was made, or from its eta, until its last attempt "
    "starts, and runs until that attempt ends. Percentiles are approximate. "
)


def page(summary: Summary) -> str:
    """Return the whole file."""
    sections = _sections(summary) if summary.total.n else _nothing()
    head = "".join(
        [
            '<meta charset="utf-8"/><meta name="viewport" content="width=device-width, initial-scale=1"/>',
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}"/>',
            svg.tag("title", svg.text(summary.title)),
            f"<style>{STYLE}</style>",
        ]
    )
    footer = svg.tag(
        "footer", svg.text(f"{_MEANING}Made {stamp(summary.made)} UTC with Blueque {__version__}.")
    )
    body = svg.tag("main", _header(summary), *sections, footer)
    return f'<!DOCTYPE html>\n<html lang="en"><head>{head}</head>\n<body>{_HATCH}{body}</body></html>\n'


def _header(summary: Summary) -> str:
    told = [summary.source]
    if summary.days:
        first, last = iso_day(summary.days[0].day or 0), iso_day(summary.days[-1].day or 0)
        told.append(first if first == last else f"{first} to {last}")
    title = svg.tag("h1", svg.tag("bdi", svg.text(summary.title)))
    return svg.tag("header", title, svg.tag("p", svg.text(" · ".join(told)), class_="muted"))


def _nothing() -> Iterator[str]:
    yield _section("No tasks", svg.tag("p", "There is nothing in what this report was made of."))


def _sections(summary: Summary) -> Iterator[str]:
    yield svg.tag("dl", *_tiles(summary), class_="tiles")
    if notes := [*_notes(summary)]:
        yield svg.tag("p", svg.text(" ".join(notes)), class_="note")
    if summary.days:
        yield _per_day(summary)
    yield _queues(summary)
    if summary.by_day:
        yield _section("Queues by day", *_cards(summary))
    yield _failures(summary)
    if summary.timeline is not None:
        said = svg.tag("p", svg.text(timeline.says(summary.timeline)), class_="muted")
        yield _section("Hosts", said, charts.legend(True, False), timeline.draw(summary.timeline))


def _tiles(summary: Summary) -> Iterator[str]:
    total = summary.total
    yield _tile("Tasks", f"{total.n:,}", f"in {counted(summary.all_queues, 'queue')}")
    yield _tile(
        "Failed", share(total.failed, total.n), f"{total.failed:,}", "bad" if total.failed else ""
    )
    yield _tile("Cancelled", share(total.cancelled, total.n), f"{total.cancelled:,}")
    yield _tile("Retried", share(total.retried, total.n), f"{total.retried:,} ran again")
    for name, spread in (("Waited, median", total.wait), ("Ran, median", total.run)):
        yield _tile(
            name,
            *(
                (span(spread.p50), f"90 % within {span(spread.p90)}")
                if spread
                else ("-", "not known")
            ),
        )
    yield _tile("Work", work(total.work) if total.run else "-", "all run times together")


def _tile(name: str, value: str, more: str, kind: str = "") -> str:
    shown = svg.tag("dd", svg.text(value), class_=f"value {kind}".strip())
    return svg.tag(
        "div", svg.tag("dt", svg.text(name)), shown, svg.tag("dd", svg.text(more), class_="muted")
    )


def _notes(summary: Summary) -> Iterator[str]:
    total = summary.total
    unknown = total.complete + total.failed - (total.run.n if total.run else 0)
    if unknown > 0:
        yield (
            f"Of {counted(unknown, 'task')} that ended it is not known when they started (Blueque 1.0.0 does not record "
            "it): they are counted, but not among the times."
        )
    if total.others:
        yield f"{counted(total.others, 'task')} had not ended."
    if summary.strays:
        yield f"{counted(summary.strays, 'task')} of no day, or of one over a year from all others: counted, but not drawn."


def _per_day(summary: Summary) -> str:
    groups = summary.days
    figures = [
        charts.throughput("throughput", "Tasks per day", groups),
        charts.failed("failed", "Failed per day", groups),
        *_durations("all", groups, _days(summary)),
    ]
    grid = svg.tag("div", *figures, class_="grid two")
    return _section(
        "All queues by day",
        charts.legend(True, True),
        grid,
        tables.folded("As a table", tables.days(groups)),
    )


def _queues(summary: Summary) -> str:
    groups = summary.queues
    seconds = [
        seconds for group in groups if group.run for seconds in (group.run.p50, group.run.p99)
    ]
    scale = Durations(seconds) if seconds else None
    content = [tables.queues(groups[:_FIRST], scale)]
    if groups[_FIRST:]:
        content.append(
            tables.folded(f"{len(groups) - _FIRST} more", tables.queues(groups[_FIRST:], scale))
        )
    left = summary.all_queues - len(groups)
    content.append(
        _left(f"{counted(left, 'queue')} with fewer tasks left out.") if left > 0 else ""
    )
    return _section("Queues", *content)


def _cards(summary: Summary) -> Iterator[str]:
    """Yield charts of the queues with the most tasks."""
    if summary.all_queues > len(summary.by_day):
        yield _left(f"The {len(summary.by_day)} queues with the most tasks.")
    yield charts.legend(False, True)
    for number, total in enumerate(
        group for group in summary.queues if group.queue in summary.by_day
    ):
        queue = total.queue or ""
        groups, counts = summary.by_day[queue], summary.run_times.get(queue, {})
        facts = (
            f"{counted(total.n, 'task')}, {total.failed:,} failed ({share(total.failed, total.n)})"
        )
        title = svg.tag(
            "h3",
            svg.tag("bdi", svg.text(queue, 80)),
            " ",
            svg.tag("span", svg.text(facts), class_="muted"),
        )
        figures = [
            *_durations(f"q{number}", groups, _days(summary)),
            charts.run_times(f"q{number}-times", "Run times of all days", counts, total.run),
        ]
        grid = svg.tag("div", *figures, class_="grid three")
        yield svg.tag(
            "div", title, grid, tables.folded("As a table", tables.days(groups)), class_="card"
        )


def _durations(name: str, groups: Sequence[Group], days: Days) -> Iterator[str]:
    measures: list[tuple[str, Callable[[Group], Spread | None]]] = [
        ("Waited", lambda group: group.wait),
        ("Ran", lambda group: group.run),
    ]
    for title, of in measures:
        spreads = {group.day or 0: spread for group in groups if (spread := of(group)) is not None}
        yield charts.durations(f"{name}-{title.lower()}", title, spreads, days)


def _failures(summary: Summary) -> str:
    if not summary.failures:
        return _section("Failures by type", svg.tag("p", "No task failed.", class_="muted"))
    left = summary.all_types - len(summary.failures)
    said = _left(f"{counted(left, 'type')} that came less often left out.") if left > 0 else ""
    return _section(
        "Failures by type", tables.failures(summary.failures, summary.total.failed), said
    )


def _days(summary: Summary) -> Days:
    return Days(summary.days[0].day or 0, summary.days[-1].day or 0)


def _left(said: str) -> str:
    return svg.tag("p", svg.text(said), class_="muted")


def _section(title: str, *content: str) -> str:
    return svg.tag("section", svg.tag("h2", svg.text(title)), *content)
