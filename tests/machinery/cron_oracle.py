"""What Debian's cron does, minute by minute, to compare the planned times of rules with.

It knows nothing of cronsim: it goes through all minutes of real time and asks of each what is on
the wall clock.

`PYTHONPATH=tests:tests/machinery python tests/machinery/cron_oracle.py [--first 2026] [--years 10]
[--texts 1000000] [--seed N]` compares RULES in ZONES in whole years, and reads so many random texts
as rules. It prints what it did, and exits 1 when the oracle and Blueque differ, or when a text is
neither a rule nor refused in a sentence.
"""

from __future__ import annotations

import argparse
import calendar
import os
import random
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

from blueque.errors import InvalidInput
from blueque.model.recurrence import planned_times, read_rule

MINUTE, HOUR = 60, 3600  # seconds
MANY = 10**9

ZONES = (
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",  # moved by half an hour
    "Asia/Kathmandu",  # 5 h 45 m before UTC
    "Africa/Casablanca",  # back in Ramadan
    "America/Santiago",  # midnight is left out, 23:00 comes twice
    "Pacific/Apia",
    "Antarctica/Troll",  # moved by two hours
    "Asia/Kolkata",
    "Europe/Dublin",  # winter time is the one that is moved
    "UTC",
    "America/St_Johns",
    "America/Havana",  # midnight is left out, and comes twice
    "America/Nuuk",  # moved on the day before
    "Africa/Cairo",
    "Asia/Beirut",
    "Asia/Jerusalem",
    "Atlantic/Azores",  # midnight is left out, 00:00 comes twice
    "Pacific/Chatham",
    "Pacific/Auckland",
)
RULES = (
    # Minutes and hours are given.
    "30 2 * * *",
    "0 0 * * *",
    "59 23 * * *",
    "0,30 1,2,3 * * *",
    "15 0-23 * * *",
    "0-59/20 0,2 * * *",
    "30 23,0,1 * * 6,0",
    "45 1 L * *",
    "5 3 * * sun#5",
    "0 2 * * 7L",
    "10 2 13 * 5",
    "20 4 LW 1-12/2 *",
    "0 12 29 feb *",
    "0 1 */2 * 1-5",
    # They are not.
    "*/30 * * * *",
    "7 * * * *",
    "40 * * * *",
    "0 */2 * * *",
    "*/10 2 * * *",
    "*/20 0 * * *",
    "*/20 0 * 4,9,10 0",
    "*/15 23 * * 6",
    "*/15 1-3 L * *",
    "25 */3 31 * *",
    "50 * 25-31 3,10 sun",
    "*/45 */5 * apr-sep mon-fri",
)

_MONTHS = {name.lower(): number for number, name in enumerate(calendar.month_abbr) if name}
_DAYS = {
    name: number for number, name in enumerate(["sun", "mon", "tue", "wed", "thu", "fri", "sat"])
}


def _numbers(field: str, low: int, high: int, names: Mapping[str, int]) -> set[int]:
    """Return the numbers that the terms of a field mean; those of days with L or # are left out."""
    found: set[int] = set()
    for term in field.lower().split(","):
        span, _, step = term.partition("/")
        first, _, last = span.partition("-")
        if span == "*":
            first, last = str(low), str(high)
        ends = [names.get(end, end) for end in (first, last or first)]
        if all(str(end).isdigit() for end in ends):
            found.update(range(int(ends[0]), int(ends[1]) + 1, int(step or 1)))
    return found


class Matcher:
    """Tells whether a time on the wall clock is one of a cron rule."""

    def __init__(self, cron: str) -> None:
        self.cron = cron
        minutes, hours, self._day, month, self._weekday = cron.split()
        self.minutes, self.hours = _numbers(minutes, 0, 59, {}), _numbers(hours, 0, 23, {})
        self.is_fixed = minutes[0] != "*" and hours[0] != "*"
        self._months = _numbers(month, 1, 12, _MONTHS)
        self._days = _numbers(self._day, 1, 31, {})
        self._weekdays = {day % 7 for day in _numbers(self._weekday, 0, 7, _DAYS)}
        self._known: dict[date, bool] = {}

    def matches(self, day: date) -> bool:
        if day not in self._known:
            in_month, in_week = self._is_in_month(day), self._is_in_week(day)
            is_either = self._day[0] != "*" and self._weekday[0] != "*"
            self._known[day] = day.month in self._months and (
                in_month or in_week if is_either else in_month and in_week
            )
        return self._known[day]

    def _is_in_month(self, day: date) -> bool:
        terms = self._day.split(",")
        return (
            day.day in self._days
            or ("L" in terms and day == self._last(day, range(7)))
            or ("LW" in terms and day == self._last(day, range(5)))
        )

    @staticmethod
    def _last(day: date, weekdays: Iterable[int]) -> date:
        """Return the last day of its month that is one of these weekdays, 0 for Monday."""
        month = calendar.Calendar().itermonthdates(day.year, day.month)
        return max(one for one in month if one.month == day.month and one.weekday() in weekdays)

    def _is_in_week(self, day: date) -> bool:
        if day.isoweekday() % 7 in self._weekdays:
            return True
        for term in self._weekday.lower().split(","):
            name, _, number = term.partition("#")
            is_last = not number and name.endswith("l")
            weekday = _DAYS.get(name, name.removesuffix("l"))
            if not (number or is_last) or int(weekday) % 7 != day.isoweekday() % 7:
                continue
            if is_last and (day + timedelta(days=7)).month != day.month:
                return True
            if number and (day.day - 1) // 7 + 1 == int(number):
                return True
        return False


class Oracle:
    """Says when rules are due in a zone."""

    def __init__(self, rules: Sequence[str], zone: str) -> None:
        self.rules, self.zone = rules, ZoneInfo(zone)
        self._name = zone
        self._fixed: dict[tuple[int, int], list[Matcher]] = defaultdict(list)
        self._others: dict[tuple[int, int], list[Matcher]] = defaultdict(list)
        for matcher in map(Matcher, rules):
            place = self._fixed if matcher.is_fixed else self._others
            for clock in ((hour, minute) for hour in matcher.hours for minute in matcher.minutes):
                place[clock].append(matcher)

    def due(self, begin: int, end: int) -> dict[str, list[int]]:
        """Return the times of each rule that are later than `begin`, up to and including `end`.

        Both are whole minutes in Unix seconds, and no clock has been moved shortly before `begin`.
        """
        found: dict[str, list[int]] = {cron: [] for cron in self.rules}
        minute = timedelta(minutes=1)
        latest = self._wall(begin)  # up to it, rules with minutes and hours were due
        for now in range(begin + MINUTE, end + 1, MINUTE):
            wall = self._wall(now)
            due = self._on(wall, self._others)
            # One minute each time; more when the clock was moved forward, none after it was moved back.
            while latest < wall:
                latest += minute
                due |= self._on(latest, self._fixed)
            for cron in due:
                found[cron].append(now)
        return found

    def _wall(self, now: int) -> datetime:
        return datetime.fromtimestamp(now, self.zone).replace(tzinfo=None, fold=0)

    @staticmethod
    def _on(wall: datetime, matchers: Mapping[tuple[int, int], list[Matcher]]) -> set[str]:
        some = matchers.get((wall.hour, wall.minute))
        return {each.cron for each in some if each.matches(wall.date())} if some else set()

    def moves(self, begin: int, end: int) -> Iterator[int]:
        """Yield the hours, in Unix seconds, in which the clock is moved."""
        for before, after in pairwise(range(begin, end + 1, HOUR)):
            if self._offset(before) != self._offset(after):
                yield after

    def _offset(self, now: int) -> timedelta | None:
        return datetime.fromtimestamp(now, self.zone).utcoffset()

    def differences(self, begin: int, end: int) -> Iterator[str]:
        """Yield a sentence for each rule whose planned times are not those of the oracle."""
        for cron, expected in self.due(begin, end).items():
            planned = planned_times(read_rule(cron=cron, timezone=self._name), begin, end, MANY)
            if planned != expected:
                missing = self._some(set(expected) - set(planned))
                wrong = self._some(set(planned) - set(expected))
                yield f"{cron} {self._name}: missing {missing}; wrong {wrong}"

    def _some(self, times: Iterable[int]) -> str:
        shown = [f"{datetime.fromtimestamp(each, self.zone)}" for each in sorted(times)]
        return f"{len(shown)}: {', '.join(shown[:3])}"

    def windows(self, first: int, years: int) -> Iterator[tuple[int, int]]:
        """Yield when three days begin and end, around each move of the clock and each month end."""
        begin, end = whole_years(first, years)
        ends = [
            int(datetime(year, month, 1, 12, tzinfo=UTC).timestamp())
            for year in range(first, first + years)
            for month in range(1, 13)
        ]
        for middle in sorted({*self.moves(begin, end), *ends}):
            noon = middle - middle % (24 * HOUR) + 12 * HOUR
            yield noon - 36 * HOUR, noon + 36 * HOUR


def whole_years(first: int, years: int) -> tuple[int, int]:
    """Return when the first year begins and the last one ends, in Unix seconds."""
    begin, end = (datetime(year, 1, 1, tzinfo=UTC) for year in (first, first + years))
    return int(begin.timestamp()), int(end.timestamp())


# What may stand in each field, and what may stand in none, or in another one.
_PARTS = (
    "* */5 0 1 2 7 30 59 5-20 2-30/7 */40 3/9",
    "* */5 0 1 2 3 13 23 1-5 2-20/7 */40",
    "* * * */5 1 13 28 29 30 31 L LW 1-7 L/2",
    "* * * 1 2 7 12 */2 JAN-MAR feb 4-9/3",
    "* * * 0 1-5 7 5L MON sun#5 7#1 tue-sat/2",
)
_ODD = [
    "60",
    "5-1",
    "1#6",
    "?",
    "-",
    "/",
    "#",
    "1-",
    "*-3",
    "1/0",
    "W",
    "²L",
    "٣",
    "@daily",
    "L-3",
    "32",
    "mon,,",
]


def random_text(draw: random.Random) -> str:
    """Return a text that may be a rule: of parts of one, or of any letters."""
    if not draw.randrange(5):
        return "".join(draw.choices("0123456789*/-,#L @Wmon\n\0ſ", k=draw.randrange(30)))
    fields = [
        ",".join(draw.choices(parts.split(), k=draw.choice((1, 1, 1, 2, 3)))) for parts in _PARTS
    ]
    if not draw.randrange(5):
        fields[draw.randrange(5)] = draw.choice(_ODD)
    return " ".join(fields if draw.randrange(20) else fields[1:] + fields)


def read_texts(count: int, draw: random.Random) -> tuple[list[str], int]:
    """Read random texts. Return what is wrong, and how many are rules."""
    wrong, rules = [], 0
    for _ in range(count):
        text, zone = random_text(draw), draw.choice(ZONES)
        try:
            rule = read_rule(cron=text, timezone=zone)
        except InvalidInput as error:
            if not str(error).startswith("cron: "):
                wrong.append(f"{text!r}: {error}")
            continue
        except Exception as error:
            wrong.append(f"{text!r}: {error!r}")
            continue
        rules += 1
        moment = draw.randrange(2**31)
        times = [moment, *planned_times(rule, moment, float("inf"), 5)]
        if any(before >= after for before, after in pairwise(times)):
            wrong.append(f"{text!r} {zone}: {times}")
    return wrong, rules


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--first", type=int, default=2026)
    parser.add_argument("--years", type=int, default=10)
    parser.add_argument("--texts", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(2), "big"))
    options = parser.parse_args()
    began, wrong = time.monotonic(), []
    for zone in ZONES:
        oracle = Oracle(RULES, zone)
        for year in range(options.first, options.first + options.years):
            wrong += oracle.differences(*whole_years(year, 1))
    took = time.monotonic() - began
    print(
        f"{len(RULES)} rules in {len(ZONES)} zones, {options.years} years from {options.first}, "
        f"each minute: {took:.0f} s"
    )
    refused, rules = read_texts(options.texts, random.Random(options.seed))
    took = time.monotonic() - began - took
    print(f"seed {options.seed}: {options.texts:,} texts, {rules:,} of them rules: {took:.0f} s")
    wrong += refused
    print(*wrong[:50], sep="\n")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
