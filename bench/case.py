"""A case: its text for the page, its columns and its targets."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from bench.setting import Bench, Outcome

Place = tuple[str, str]  # row and metric


class Target(NamedTuple):
    """A number that was promised: ours, or ours to theirs in the same round, must not be below or
    above a bound.

    why: what a reader should know when it is not met.
    """

    name: str
    wanted: str
    bound: float
    is_least: bool
    ours: Place
    theirs: Place | None = None
    unit: str = ""
    why: str = ""


class Case(NamedTuple):
    """One case.

    columns: metric and heading. headline: the metric that ratios and plots show, None: no ratios.
    rows: names of rows that are not systems.
    question: a heading, and after a line break what the case tells a person who has to decide. A case
        with a question is on the page, with its chart: bars, or steps of `plot`, along `axis`.
    """

    name: str
    title: str
    about: str
    run: Callable[[Bench], Outcome]
    columns: list[tuple[str, str]]
    headline: str | None
    targets: list[Target]
    rows: dict[str, str] = {}  # noqa: RUF012  # a NamedTuple's default is never changed
    question: str = ""
    plot: str = "bars"
    axis: str = ""
