"""The tables of a report: groups of tasks, and failures by type."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from blueque.report import svg
from blueque.report.charts import range_bar
from blueque.report.phrases import iso_day, share, span, stamp
from blueque.report.scales import Durations
from blueque.report.summary import Failure, Group

_HEADS = (
    "Tasks",
    "Failed",
    "Cancelled",
    "Retried",
    "Waited",
    "90 %",
    "Ran",
    "90 %",
    "99 %",
    "Longest",
)
_NAME, _MESSAGE = 60, 200  # characters that are shown


def days(groups: Sequence[Group]) -> str:
    """Return a row for each day, the newest first."""
    rows = [
        svg.tag("tr", _name(iso_day(group.day or 0)), *_cells(group)) for group in reversed(groups)
    ]
    return _table([_head("Day"), *(_head(head, True) for head in _HEADS)], rows)


def queues(groups: Sequence[Group], scale: Durations | None) -> str:
    """Return a row for each queue. scale: for a small chart of its run times."""
    picture = svg.tag("th", "Run time, logarithmic", scope="col", class_="bar ranges")
    heads = [_head("Queue"), *(_head(head, True) for head in _HEADS), picture]
    rows = []
    for group in groups:
        bar = range_bar(group.run, scale) if group.run and scale else ""
        rows.append(
            svg.tag(
                "tr", _name(group.queue), *_cells(group), svg.tag("td", bar, class_="bar ranges")
            )
        )
    return _table(heads, rows)


def failures(found: Sequence[Failure], failed: int) -> str:
    """Return a row for each type of error, and one below it for the newest. failed: how many tasks
    failed in all.
    """
    numbers = ("Tasks", "Share", "Last, UTC")
    heads = ("Type", "Tasks", "Share", "", "Mostly in", "Last, UTC")
    most = max(failure.n for failure in found)
    rows = []
    for failure in found:
        message = svg.tag("code", svg.text(failure.error or "-", _MESSAGE))
        task_id = svg.tag("span", svg.text(failure.task_id or "-", _NAME), class_="id")
        example = svg.tag(
            "td", svg.tag("div", message, " ", task_id), class_="text message", colspan=len(heads)
        )
        rows += [
            svg.tag("tr", *_failure(failure, failed, most), class_="above"),
            svg.tag("tr", example),
        ]
    return _table([_head(head, head in numbers) for head in heads], rows)


def folded(title: str, content: str) -> str:
    """Return content that is shown on a click."""
    return svg.tag("details", svg.tag("summary", svg.text(title)), content)


def _failure(failure: Failure, failed: int, most: int) -> Iterator[str]:
    bar = svg.ornament("100%", 8, svg.rect(0, 0, failure.n / most, 8, "failed"), class_="share")
    more = f" and {failure.queues - 1:,} more" if failure.queues > 1 else ""
    yield _name(failure.error_type)
    yield _number(f"{failure.n:,}")
    yield _number(share(failure.n, failed))
    yield svg.tag("td", bar, class_="bar")
    yield svg.tag(
        "td", svg.tag("bdi", svg.text(failure.queue or "-", _NAME)), more, class_="text name"
    )
    yield _number(stamp(failure.last))


def _cells(group: Group) -> Iterator[str]:
    yield _number(f"{group.n:,}")
    yield from (
        _number(f"{count:,}" if count else "·")
        for count in (group.failed, group.cancelled, group.retried)
    )
    wait, run = group.wait, group.run
    yield from map(_number, (span(wait.p50), span(wait.p90)) if wait else "--")
    yield from map(
        _number, (span(run.p50), span(run.p90), span(run.p99), span(run.maximum)) if run else "----"
    )


def _number(said: str) -> str:
    return svg.tag("td", svg.text(said))


def _name(said: str | None) -> str:
    shown = svg.tag("bdi", svg.text(said, _NAME)) if said is not None else svg.tag("i", "none")
    return svg.tag(
        "th", shown, scope="row", title=said if said and len(said) > _NAME // 2 else None
    )


def _head(said: str, is_number: bool = False) -> str:
    return svg.tag("th", svg.text(said), scope="col", class_="n" if is_number else None)


def _table(heads: Sequence[str], rows: Sequence[str]) -> str:
    table = svg.tag("table", svg.tag("thead", svg.tag("tr", *heads)), svg.tag("tbody", *rows))
    return svg.tag(
        "div",
        table,
        class_="scroll",
        tabindex="0",
        role="group",
        aria_label="table, may be wider than this",
    )
