"""Parse points in time that people write. Without a zone they are local times, or in a zone of the
caller.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta, tzinfo
from datetime import time as clock_time

from blueque.errors import InvalidInput

_DAYS = {"yesterday": -1, "today": 0, "tomorrow": 1}
_BY_DAY = re.compile(r"(?:(yesterday|today|tomorrow)\b *)?(\d{1,2}:\d\d(?::\d\d)?)?", re.IGNORECASE)
# As `printing.stamp` prints it: 2026-11-22 16:20:00 UTC, or an offset for a zone without a name.
_WITH_ZONE = re.compile(r"(.*\d) +([A-Za-z]+|[+-]\d{2}(?:\d{2})?)")


def parse_time(text: str, now: float, is_ahead: bool, zone: tzinfo | None = None) -> float:
    """Return Unix seconds: `2026-11-22T16:20+01:00`, `2026-11-22 16:20:00 UTC`, `16:20`, `tomorrow
    08:00`.

    is_ahead: a time of day alone is the next one; else the last one.
    zone: of a time that names none; None: the local one.
    Raises InvalidInput.
    """
    words = text.strip()
    try:
        by_day = _BY_DAY.fullmatch(words)
        if words and by_day is not None:
            return _on_day(by_day[1], by_day[2], now, is_ahead, zone)
        with_zone = _WITH_ZONE.fullmatch(words)
        if with_zone is not None:
            return _in_zone(with_zone[1], with_zone[2], zone)
        moment = datetime.fromisoformat(words)
        return moment.replace(tzinfo=moment.tzinfo or zone).timestamp()
    except (ValueError, OverflowError, OSError):
        pass
    others = (
        "08:00, 'tomorrow 08:00' or Unix seconds"
        if is_ahead
        else "08:00, Unix seconds, or an age such as 24h"
    )
    raise InvalidInput(
        f"{text!r} is not a time: write 2030-01-31T08:00+01:00, without a zone for local time, {others}"
    )


def _on_day(
    day: str | None, clock: str | None, now: float, is_ahead: bool, zone: tzinfo | None
) -> float:
    here = datetime.fromtimestamp(now, zone)
    at = (
        clock_time.fromisoformat(clock.zfill(len("08:00") + 3 * (clock.count(":") - 1)))
        if clock
        else clock_time()
    )
    moment = datetime.combine(here.date(), at, zone)
    if day is not None:
        moment += timedelta(days=_DAYS[day.lower()])
    elif is_ahead and moment.timestamp() <= now:
        moment += timedelta(days=1)
    elif not is_ahead and moment.timestamp() > now:
        moment -= timedelta(days=1)
    return moment.timestamp()


def _in_zone(text: str, name: str, zone: tzinfo | None) -> float:
    """Return the time with the name of a zone: UTC, an offset, or a name that `zone` has."""
    if name.upper() in ("UTC", "GMT", "Z"):
        return datetime.fromisoformat(f"{text}+00:00").timestamp()
    if name[0] in "+-":
        return datetime.fromisoformat(f"{text}{name}").timestamp()
    moment = datetime.fromisoformat(text).replace(tzinfo=zone)
    for fold in (0, 1):  # an hour comes twice when summer time ends
        each = moment.replace(fold=fold)
        if (each if zone else each.astimezone()).tzname() == name:
            return each.timestamp()
    raise ValueError(name)
