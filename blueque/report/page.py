"""Render templates; and a report: one HTML file for any screen, light and dark, and for paper."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from importlib import resources
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from blueque.report import charts, phrases, svg, timeline
from blueque.report.phrases import iso_day
from blueque.report.summary import Summary
from blueque.text import hints
from blueque.text.eta import percent
from blueque.text.format import clean, count, size, span
from blueque.version import __version__


@functools.cache
def environment(*packages: str) -> Environment:
    """Return the templates of these packages, and those that all pages share. They escape all text."""
    found = Environment(
        loader=ChoiceLoader([PackageLoader(name) for name in (*packages, "blueque.report")]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_finalized,
    )
    found.globals |= {
        "version": __version__,
        "charts": charts,
        "phrases": phrases,
        "count": count,
        "hints": hints,
        "percent": percent,
        "size": size,
        "span": span,
        "tag": svg.tag,
    }
    found.globals["drawing"] = found.get_template("drawing.html").module
    return found


def page(summary: Summary) -> str:
    """Return the whole file of a report."""
    style = resources.files("blueque.report").joinpath("static/blueque.css").read_text("utf-8")
    drawn = summary.timeline
    return (
        environment()
        .get_template("report.html")
        .render(
            summary=summary,
            style=Markup(style),
            told=" · ".join(_told(summary)),
            notes=" ".join(_notes(summary)),
            says=timeline.says(drawn) if drawn else "",
            axis=timeline.axis(timeline.look(drawn)) if drawn else "",
            hosts=[*timeline.rows(drawn)] if drawn else [],
        )
    )


def _finalized(value: Any) -> Any:
    """Escape the control characters of every text in a page, except line ends."""
    if isinstance(value, Markup) or not isinstance(value, str):
        return "" if value is None else value
    return value if value.isprintable() else "\n".join(map(clean, value.split("\n")))


def _told(summary: Summary) -> Iterator[str]:
    yield summary.source
    if summary.days:
        first, last = iso_day(summary.days[0].day or 0), iso_day(summary.days[-1].day or 0)
        yield first if first == last else f"{first} to {last}"


def _notes(summary: Summary) -> Iterator[str]:
    total = summary.total
    unknown = total.complete + total.failed - (total.run.n if total.run else 0)
    if summary.is_counted:
        yield "Run times are those of attempts that completed."
    elif unknown > 0:
        yield (
            f"{count(unknown, 'task')} of Blueque 1.0.0 without a time of start: counted, but not among the times."
        )
    if total.others:
        yield f"{count(total.others, 'task')} had not ended."
    if summary.strays:
        yield f"{count(summary.strays, 'task')} without a day, or over a year from all others: counted, but not drawn."
