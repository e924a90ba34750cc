"""The times of a cron rule: on a wall clock, in a time zone, and in Unix seconds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from blueque.errors import InvalidInput, InvalidType
from blueque.model.encoding import LAST_SECOND
from blueque.model.units import DAY

# cronsim, datetime and zoneinfo are imported when first needed: each process imports this module,
# and few have a rule.
if TYPE_CHECKING:
    from datetime import datetime
    from zoneinfo import ZoneInfo

MAX_CRON = 1000  # characters
_FIELDS = {
    "minute": "0-59",
    "hour": "0-23",
    "day of the month": "1-31 or L",
    "month": "1-12 or JAN-DEC",
    "day of the week": "0-7 or SUN-SAT",
}
_FIVE = f"five: {', '.join(_FIELDS)}"
_NICKNAMES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}


def cron_times(cron: str, zone: ZoneInfo, begin: int) -> Iterator[int]:
    """Yield the times later than `begin`, in order, in Unix seconds.

    It ends when no time comes within 50 years. cron: as `read_cron` returns it.

    cronsim gets times of the wall clock, without a zone. With a zone, it skips times when a clock
    moves by half an hour or at midnight. It also goes back after a start in a repeated hour.
    """
    if begin > LAST_SECOND - 2 * DAY:  # within the year 9999 in all zones
        return
    last = begin
    for time in _instants(cron, zone, begin):
        # All fixed times that are left out come right after the gap, at one time.
        if time > last:
            yield time
            last = time


def read_cron(text: str) -> str:
    """Return the five fields, with one space between them. Raises InvalidInput, InvalidType."""
    from datetime import datetime

    from cronsim import CronSim, CronSimError

    if not isinstance(text, str):
        raise InvalidType(f"cron: it is a text such as '30 2 * * 1-5', not {type(text).__name__}")
    fields = text[: MAX_CRON + 1].split()
    if len(text) > MAX_CRON:
        raise InvalidInput(f"cron: it has more than {MAX_CRON:,} characters")
    if fields and fields[0].startswith("@"):
        raise InvalidInput(f"cron: {_instead_of(fields)}")
    if len(fields) != len(_FIELDS):
        seconds = "; for seconds, use every" if len(fields) == 6 else ""
        raise InvalidInput(f"cron: {text!r} has {len(fields)} fields, not {_FIVE}{seconds}")
    for place, (what, values) in enumerate(_FIELDS.items()):
        others = ["*"] * len(fields)
        others[place] = fields[place]
        try:
            CronSim(" ".join(others), datetime(2000, 1, 1))
        except CronSimError as error:
            raise InvalidInput(
                f"cron: {fields[place]!r} is not a valid {what} ({values})"
            ) from error
    cron = " ".join(fields)
    try:
        CronSim(cron, datetime(2000, 1, 1))
    except CronSimError as error:
        raise InvalidInput(f"cron: {cron!r} has no time within 50 years") from error
    return cron


def find_zone(name: str) -> ZoneInfo:
    """Return the time zone with this IANA name. Raises InvalidInput, InvalidType."""
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    if not isinstance(name, str):
        raise InvalidType(
            f"timezone: it is a name such as 'Europe/Berlin', not {type(name).__name__}"
        )
    # These are files of one host: what they say differs, or counts leap seconds.
    if name not in ("localtime", "posixrules") and not name.startswith(("posix/", "right/")):
        try:
            return ZoneInfo(name)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            pass  # unknown, not a relative path, a directory or another file
    near = _near_zones(name)
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    raise InvalidInput(f"timezone: {name[:60]!r} is not a name of the IANA database{hint}")


def _instants(cron: str, zone: ZoneInfo, begin: int) -> Iterator[int]:
    """Yield the Unix seconds of the times on the wall clock, in order.

    When the clock moves forward, some times do not exist: those of a rule with minutes and hours
    come right after the gap, others never. When it moves back, times repeat: those of a rule with
    minutes and hours come the first time only, others both times.
    """
    from datetime import datetime, timedelta

    from cronsim import CronSim

    is_fixed = not any(field.startswith("*") for field in cron.split()[:2])
    repeated: list[int] = []  # the second times of what is on the clock twice
    wall = datetime.fromtimestamp(begin, zone)
    first, second = _both(wall)
    # What is repeated and already over for the first time may be yet to come for the second.
    wall = wall.replace(tzinfo=None) - timedelta(seconds=max(second - first, 0))
    walls = CronSim(cron, wall)
    while (time := _next_wall(walls)) is not None:
        first, second = _both(time.replace(tzinfo=zone))
        if first > second:  # left out
            if is_fixed:
                yield _after_gap(time, zone)
            continue
        while repeated and repeated[0] < first:
            yield repeated.pop(0)
        yield first
        if second > first and not is_fixed:
            repeated.append(second)
    yield from repeated


def _next_wall(walls: Iterator[datetime]) -> datetime | None:
    try:
        return next(walls, None)
    except OverflowError:  # the year 9999 is over
        return None


def _both(local: datetime) -> tuple[int, int]:
    """Return the Unix seconds of a time on the wall clock, for the first and for the second time.

    They are equal if it occurs once. The first is later than the second if it does not occur.
    """
    return int(local.replace(fold=0).timestamp()), int(local.replace(fold=1).timestamp())


def _after_gap(wall: datetime, zone: ZoneInfo) -> int:
    """Return when the clock moves forward over this time."""
    from datetime import timedelta

    first, second = _both(wall.replace(tzinfo=zone))
    while first > second:
        wall += timedelta(minutes=1)
        first, second = _both(wall.replace(tzinfo=zone))
    return first


def _instead_of(words: list[str]) -> str:
    """Return what to write instead of a nickname."""
    nickname = words[0].lower()
    if nickname in _NICKNAMES and len(words) == 1:
        return f"write {_NICKNAMES[nickname]!r} for {nickname}"
    if nickname == "@every" and len(words) == 2:
        return f"{' '.join(words)!r} is an interval: give every, {words[1]!r}"
    return f"{' '.join(words)!r} has no fields; a rule has {_FIVE}"


def _near_zones(name: str) -> list[str]:
    import difflib
    from zoneinfo import available_timezones

    names = {known.lower(): known for known in sorted(available_timezones() - {"localtime"})}
    lowered = name[:60].lower()
    if lowered in names:
        return [names[lowered]]
    return [names[near] for near in difflib.get_close_matches(lowered, names)]
