"""Formats shares, days and instants for a report. Days are numbered from 1970-01-01, in
UTC.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import date, timedelta

from blueque.text import format

_EPOCH = date(1970, 1, 1)
_DAY = 86400


def span(seconds: float | None) -> str:
    """Return a duration as in commands, 0.8 s or 4 m 12 s; less than 0.1 s as 12 ms."""
    if seconds is None or not 0 < seconds < 0.0995:
        return format.span(seconds)
    return f"{seconds * 1000:.0f} ms" if seconds >= 0.001 else "<1 ms"


def share(part: float, whole: float) -> str:
    """Return a part in percent: 0 %, <0.1 %, 2.4 %, 31 %."""
    percent = 100 * part / whole if whole else 0.0
    if 0 < percent < 0.1:
        return "<0.1 %"
    return f"{percent:.1f} %" if 0 < percent < 10 else f"{percent:.0f} %"


def work(seconds: float) -> str:
    """Return the total run time of many tasks, which may be years."""
    days = seconds / _DAY
    if days >= 1e6:  # a clock was wrong
        return f"{days / 1e6:,.0f}M d"
    return f"{days:,.0f} d" if days >= 100 else span(seconds)


def short(count: float) -> str:
    """Return a count for an axis: 0, 250, 1,500, 20k, 3.5M."""
    for size, unit in ((1e9, "G"), (1e6, "M")):
        if count >= size:
            return f"{count / size:g}{unit}"
    return f"{count / 1000:g}k" if count >= 10_000 else f"{count:,.0f}"


def day(number: int) -> str:
    """Return 21 Nov."""
    found = _EPOCH + timedelta(days=number)
    return f"{found.day} {found:%b}"


def month(number: int) -> str:
    """Return the month of a day: Nov 2026."""
    found = _EPOCH + timedelta(days=number)
    return f"{found:%b} {found.year}"


def iso_day(number: int) -> str:
    """Return 2026-11-21."""
    return (_EPOCH + timedelta(days=number)).isoformat()


def stamp(instant: float | None, length: float = _DAY) -> str:
    """Return 2026-11-21 05:26; with seconds when the whole span is shorter than an hour."""
    moment = format.utc_moment(instant)
    if moment is None:
        return "-"
    return (
        moment.isoformat(" ", "seconds")[:19]
        if length < 3600
        else moment.isoformat(" ", "minutes")[:16]
    )


def tick(instant: float, step: float) -> str:
    """Return an instant for an axis with a label each `step` seconds."""
    moment, number = format.utc_moment(instant), math.floor(instant / _DAY)
    if moment is None or step >= 90 * _DAY:
        return month(number) if moment else "-"
    if step < 60:
        return f"{moment:%H:%M:%S}"
    return f"{moment:%H:%M}" if step < _DAY and instant % _DAY else day(number)


def hosts(names: Sequence[str]) -> dict[str, str]:
    """Return a short name for each host: without the domain where no other host has the same name."""
    short_names = [
        name.partition(".")[0] if not name.replace(".", "").isdigit() else name for name in names
    ]
    return {
        name: short_name if short_names.count(short_name) == 1 else name
        for name, short_name in zip(names, short_names, strict=True)
    }


def natural(name: str) -> list[tuple[int, str]]:
    """Return a sort key that puts gpu-2 before gpu-10."""
    return [
        (int(part), "") if part.isdecimal() else (-1, part)
        for part in re.split(r"([0-9]{1,9})", name)
    ]
