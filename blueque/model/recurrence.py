"""The rules of recurring tasks: at which times one is planned.

Nothing here reads the clock. A planned time is in whole Unix seconds, and the same on all hosts
with the same tzdata.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import count, islice, takewhile
from typing import TYPE_CHECKING, NamedTuple

from blueque.errors import InvalidInput, InvalidType
from blueque.model.cron import cron_times, find_zone, read_cron
from blueque.model.encoding import LAST_SECOND
from blueque.model.units import parse_duration

# datetime and hashlib are imported when first needed: see cron.py.
if TYPE_CHECKING:
    from datetime import datetime

LEAST_EVERY, MOST_EVERY = 10, 366 * 86400  # seconds


class Rule(NamedTuple):
    """When a recurring task is planned. `read_rule` makes one from the arguments of a user.

    cron: five fields, read like Debian's cron; `every` is None then.
    every: seconds between two times, counted from `start`, or from the beginning of 1970 in UTC.
    timezone: the IANA name of the zone of `cron`.
    start, until: Unix seconds of the first and of the last possible time.
    """

    cron: str | None = None
    every: int | None = None
    timezone: str = "UTC"
    start: int | None = None
    until: int | None = None

    def next_after(self, moment: float) -> int | None:
        """Return the first planned time later than `moment`, both in Unix seconds.

        None: there is none until `until`, or within 50 years. Raises InvalidInput if this host does
            not know the zone.
        """
        return next(_times(self, moment), None)

    def times(self, moment: float) -> Iterator[int]:
        """Yield the planned times later than `moment`, as `next_after`."""
        return _times(self, moment)

    def text(self) -> str:
        """Return the rule for people: `30 2 * * 1-5 Europe/Berlin`, `every 6h`."""
        if self.cron is not None:
            return f"{self.cron} {self.timezone}"
        return f"every {duration_text(self.every or 0)}"


def read_rule(
    *,
    cron: str | None = None,
    every: float | str | None = None,
    timezone: str | None = None,
    start: float | str | datetime | None = None,
    until: float | str | datetime | None = None,
) -> Rule:
    """Return the rule for `cron` or `every`.

    every: whole seconds, or text such as `6h`; 10 seconds to 366 days.
    timezone: an IANA name, for `cron` only. Default: UTC.
    start, until: Unix seconds, a datetime with a time zone, or such a time as ISO text. Fractions
        of a second are dropped.
    Raises InvalidInput or InvalidType, whose message begins with the wrong option.
    """
    if cron is None and every is None:
        raise InvalidInput("cron: a rule needs cron or every")
    if cron is not None and every is not None:
        raise InvalidInput("cron: it is given together with every, and a rule takes one of them")
    if timezone is not None and every is not None:
        raise InvalidInput("timezone: every has no time zone; only cron has one")
    rule = Rule(
        None if cron is None else read_cron(cron),
        None if every is None else _read_every(every),
        "UTC" if timezone is None else find_zone(timezone).key,
        _read_time(start, "start"),
        _read_time(until, "until"),
    )
    if rule.until is not None and rule.until <= (rule.start or 0):
        raise InvalidInput("until: it is not later than start")
    if rule._replace(until=None).next_after(-1) is None:
        raise InvalidInput(f"cron: {rule.cron!r} has no time within 50 years")
    if rule.next_after(-1) is None:
        raise InvalidInput("until: the rule has no time before it ends")
    return rule


def planned_times(rule: Rule, after: float, to: float, most: int) -> list[int]:
    """Return the first `most` planned times later than `after`, up to and including `to`.

    All are in Unix seconds, in order. Raises as `Rule.next_after`.
    """
    return list(islice(takewhile(lambda time: time <= to, _times(rule, after)), most))


def jitter_of(name: str, planned: int, jitter: int) -> int:
    """Return by how many seconds an occurrence is delayed: 0 up to, not including, `jitter`.

    It is not random, so that each process computes the same one.
    """
    if not jitter:
        return 0
    import hashlib

    digest = hashlib.sha256(f"{name}\0{planned}".encode("utf-8", "surrogateescape")).digest()
    return int.from_bytes(digest, "big") % jitter


def _times(rule: Rule, moment: float) -> Iterator[int]:
    """Yield the planned times later than `moment`, in order."""
    begin = max(math.floor(moment), (rule.start or 0) - 1)
    if rule.cron is not None:
        times = cron_times(rule.cron, find_zone(rule.timezone), begin)
    else:
        origin, every = rule.start or 0, rule.every or MOST_EVERY
        times = count(begin + every - (begin - origin) % every, every)
    return takewhile(lambda time: rule.until is None or time <= rule.until, times)


def _read_every(given: float | str) -> int:
    if isinstance(given, bool) or not isinstance(given, int | float | str):
        raise InvalidType(f"every: it is seconds or a text such as 6h, not {type(given).__name__}")
    try:
        seconds = parse_duration(given) if isinstance(given, str) else given
    except InvalidInput as error:
        raise InvalidInput(f"every: {error}") from error
    if not LEAST_EVERY <= seconds <= MOST_EVERY:  # NaN is neither
        raise InvalidInput("every: it must be from 10s to 366d")
    if seconds != int(seconds):
        raise InvalidInput(f"every: {given!r} is not a number of whole seconds")
    return int(seconds)


def _read_time(given: object, what: str) -> int | None:
    if given is None:
        return None
    from datetime import datetime

    if isinstance(given, str):
        text = given
        try:
            given = datetime.fromisoformat(text.strip())
        except ValueError as error:
            raise InvalidInput(
                f"{what}: {text[:60]!r} is not a time: write 2030-01-31T08:00+01:00"
            ) from error
    if isinstance(given, datetime):
        if given.tzinfo is None:
            raise InvalidInput(f"{what}: {given} has no time zone: write 2030-01-31T08:00+01:00")
        given = given.timestamp()
    if isinstance(given, bool) or not isinstance(given, int | float):
        raise InvalidType(
            f"{what}: it is Unix seconds, a datetime or ISO text, not {type(given).__name__}"
        )
    if not 0 <= given <= LAST_SECOND:  # NaN is neither
        raise InvalidInput(f"{what}: it must be from the year 1970 to 9999, in seconds")
    return int(given)


def duration_text(seconds: int) -> str:
    """Return a duration as `parse_duration` reads it: 6h, 1d12h."""
    parts = []
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m"), (1, "s")):
        if number := seconds // size:
            parts.append(f"{number}{unit}")
        seconds %= size
    return "".join(parts)
