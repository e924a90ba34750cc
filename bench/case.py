"""A case: its text for the page, its columns and its targets."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from bench.setting import Bench, Outcome

Place = tuple[str, str]  # row and metric


class Target(NamedTuple):
    """A number that was promised: ours, or ours to theirs in the same round, must not be below or
    above a bound.

    bound: None when the number shall only be told. why: what was hoped for, and why it is not
        promised.
    """

    name: str
    wanted: str
    bound: float | None
    is_least: bool
    ours: Place
    theirs: Place | None = None
    unit: str = ""
    why: str = ""


class Lines(NamedTuple):
    """A plot of lines: what is on its axes, and a line for each metric."""

    along: str  # a metric
    along_words: str
    words: str
    metrics: list[tuple[str, str]]
    is_log: bool = True


class Case(NamedTuple):
    """One case.

    columns: metric and heading. headline: the metric that ratios and plots show, None: no ratios.
    rows: names of rows that are not systems. plot: bars, steps, lines or none.
    lines: what a plot of lines shows: the metric of its x axis with its words, that of the y axis,
        and the metrics.
    question: what its chart tells a person who has to decide; such charts open the page.
    """

    name: str
    title: str
    about: str
    run: Callable[[Bench], Outcome]
    columns: list[tuple[str, str]]
    headline: str | None
    targets: list[Target]
    rows: dict[str, str] = {}  # noqa: RUF012  # a NamedTuple's default is never changed
    plot: str = "bars"
    axis: str = ""
    lines: Lines | None = None
    question: str = ""
