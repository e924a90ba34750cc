from __future__ import annotations

import calendar
import math
import os
import re
import subprocess
import sys
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from cron_oracle import HOUR, MINUTE, RULES, ZONES, Oracle, random_text, whole_years
from hypothesis import example, given, settings
from hypothesis import strategies as st

from blueque.errors import InvalidInput, InvalidType
from blueque.model.cron import find_zone
from blueque.model.recurrence import Rule, jitter_of, planned_times, read_rule

BERLIN, SANTIAGO, LORD_HOWE = "Europe/Berlin", "America/Santiago", "Australia/Lord_Howe"
FIVE = "five: minute, hour, day of the month, month, day of the week"
NOW = 1_790_000_000


def seconds(text: str, zone: str) -> int:
    """Return the Unix seconds of a time on the wall clock; the first, if it is there twice."""
    return int(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp())


def walls(rule: Rule, begin: str, end: str) -> list[str]:
    """Return the planned times from `begin` up to and including `end`, with their offsets."""
    zone = rule.timezone
    times = planned_times(rule, seconds(begin, zone) - 1, seconds(end, zone), 1000)
    return [f"{datetime.fromtimestamp(time, ZoneInfo(zone)):%H:%M%z}"[:-2] for time in times]


def in_process(program: str, **environment: str) -> str:
    """Return what another Python prints."""
    found = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return found.stdout.strip()


@pytest.mark.parametrize(
    ("zone", "cron", "begin", "end", "expected"),
    [
        (BERLIN, "30 2 * * *", "2026-03-29T00:00", "2026-03-30T02:00", "03:00+02"),
        (BERLIN, "30 2 * * *", "2026-10-25T00:00", "2026-10-26T02:00", "02:30+02"),
        (
            BERLIN,
            "*/30 * * * *",
            "2026-03-29T01:00",
            "2026-03-29T04:00",
            "01:00+01 01:30+01 03:00+02 03:30+02 04:00+02",
        ),
        (
            BERLIN,
            "*/30 * * * *",
            "2026-10-25T01:30",
            "2026-10-25T03:00",
            "01:30+02 02:00+02 02:30+02 02:00+01 02:30+01 03:00+01",
        ),
        (BERLIN, "0 */2 * * *", "2026-03-29T00:00", "2026-03-29T05:00", "00:00+01 04:00+02"),
        (
            BERLIN,
            "0 */2 * * *",
            "2026-10-25T00:00",
            "2026-10-25T05:00",
            "00:00+02 02:00+02 02:00+01 04:00+01",
        ),
        # Several fixed times are left out: they come once, with that of the end of the gap.
        (BERLIN, "0,20,40 2,3 * * *", "2026-03-29T00:00", "2026-03-29T03:30", "03:00+02 03:20+02"),
        (BERLIN, "50 1,3 * * *", "2026-10-25T00:00", "2026-10-25T04:00", "01:50+02 03:50+01"),
        # Midnight is left out, or the hour before it comes twice.
        (SANTIAGO, "0 0 * * *", "2026-09-05T12:00", "2026-09-06T12:00", "01:00-03"),
        (SANTIAGO, "*/30 0 6 9 *", "2026-09-05T12:00", "2026-09-06T12:00", ""),
        (SANTIAGO, "30 23 * * *", "2026-04-04T12:00", "2026-04-05T12:00", "23:30-03"),
        (SANTIAGO, "30 * * * *", "2026-04-04T23:00", "2026-04-05T00:30", "23:30-03 23:30-04 00:30-04"),
        # Half an hour is left out, or comes twice.
        (LORD_HOWE, "40 * * * *", "2026-10-04T01:00", "2026-10-04T03:45", "01:40+10 02:40+11 03:40+11"),
        (LORD_HOWE, "*/10 2 * * *", "2026-10-04T00:00", "2026-10-04T06:00", "02:30+11 02:40+11 02:50+11"),
        (
            LORD_HOWE,
            "*/10 2 * * *",
            "2026-04-05T00:00",
            "2026-04-05T02:30",
            "02:00+10 02:10+10 02:20+10 02:30+10",
        ),
        (LORD_HOWE, "45 1,2 * * *", "2026-04-05T00:00", "2026-04-05T06:00", "01:45+11 02:45+10"),
    ],
)  # fmt: skip
def test_clocks_that_are_moved(zone, cron, begin, end, expected):
    assert walls(read_rule(cron=cron, timezone=zone), begin, end) == expected.split()


@pytest.mark.parametrize("zone", [BERLIN, SANTIAGO, LORD_HOWE, "Africa/Casablanca", "Africa/Cairo"])
def test_an_oracle_agrees_around_moved_clocks_and_month_ends(zone):
    """Whole years, in more zones: `cron_oracle.py`, which bin/soak runs."""
    oracle = Oracle(RULES, zone)
    found = [
        difference
        for begin, end in oracle.windows(2027, 1)
        for difference in oracle.differences(begin, end)
    ]
    assert found == []


@pytest.mark.parametrize("zone", [BERLIN, LORD_HOWE, SANTIAGO, "Antarctica/Troll"])
def test_an_oracle_agrees_from_any_moment_near_a_moved_clock(zone):
    oracle = Oracle(RULES, zone)
    moves = list(oracle.moves(*whole_years(2027, 1)))
    assert len(moves) == 2
    for moved in moves:
        for cron, times in oracle.due(moved - 12 * HOUR, moved + 36 * HOUR).items():
            rule = read_rule(cron=cron, timezone=zone)
            for moment in range(moved - 3 * HOUR + 7, moved + 3 * HOUR, 25 * MINUTE):
                coming = [time for time in times if time > moment]
                assert not coming or rule.next_after(moment) == coming[0], (cron, moment)


def test_an_interval_has_no_clock_that_is_moved():
    times = planned_times(read_rule(every="2h"), seconds("2026-03-28T12:00", BERLIN), math.inf, 40)
    assert {after - before for before, after in pairwise(times)} == {7200}
    assert times[0] % 7200 == 0


@pytest.mark.parametrize(
    ("cron", "expected"),
    [
        ("30 2 * * *", "2026-10-26T01:30"),  # of this night it is over: it was half an hour earlier
        ("15 * * * *", "2026-10-25T01:15"),  # for the second time
        ("5 * * * *", "2026-10-25T02:05"),  # both are over
    ],
)
def test_a_start_in_a_repeated_hour_leads_to_later_times_only(cron, expected):
    moment = datetime(2026, 10, 25, 1, 10, tzinfo=UTC).timestamp()  # 02:10 for the second time
    found = read_rule(cron=cron, timezone=BERLIN).next_after(moment)
    assert datetime.fromtimestamp(found, UTC) == datetime.fromisoformat(f"{expected}+00:00")


def test_the_second_time_of_what_is_over_for_the_first_time():
    moment = datetime(2026, 10, 25, 0, 40, tzinfo=UTC).timestamp()  # 02:40 for the first time
    rule = read_rule(cron="10,50 * * * *", timezone=BERLIN)
    hours = [(time - moment) / 60 for time in planned_times(rule, moment, math.inf, 3)]
    assert hours == [10, 30, 70]


@pytest.mark.parametrize("zone", ["UTC", "Pacific/Apia", "Asia/Kathmandu"])
def test_every_month_end(zone):
    times = planned_times(
        read_rule(cron="59 23 L * *", timezone=zone), seconds("2024-01-01", zone), math.inf, 120
    )
    found = [datetime.fromtimestamp(time, ZoneInfo(zone)) for time in times]
    assert [(day.hour, day.minute) for day in found] == [(23, 59)] * 120
    assert [day.date() for day in found] == [
        date(year, month, calendar.monthrange(year, month)[1])
        for year in range(2024, 2034)
        for month in range(1, 13)
    ]


def is_last_of_its_weekday(day: date) -> bool:
    return (day + timedelta(days=7)).month != day.month


@pytest.mark.parametrize(
    ("fields", "is_right"),
    [
        ("L * *", lambda day: (day + timedelta(days=1)).month != day.month),
        ("* * 5L", lambda day: day.isoweekday() == 5 and is_last_of_its_weekday(day)),
        ("* * MON#1", lambda day: day.isoweekday() == 1 and day.day <= 7),
        ("* * 7#5", lambda day: day.isoweekday() == 7 and day.day > 28),
        ("13 * FRI", lambda day: day.isoweekday() == 5 or day.day == 13),
        ("*/2 * 1-5", lambda day: day.isoweekday() <= 5 and day.day % 2),
        ("29 2 *", lambda day: (day.month, day.day) == (2, 29)),
        ("31 * *", lambda day: day.day == 31),
        ("30 feb,jun-aug *", lambda day: day.day == 30 and day.month in (6, 7, 8)),
        ("31 2 1", lambda day: day.month == 2 and day.isoweekday() == 1),
    ],
)
def test_days(fields, is_right):
    first = date(2024, 1, 1)
    days = [first + timedelta(days=number) for number in range(10 * 365)]
    rule = read_rule(cron=f"0 12 {fields}")
    begin, end = seconds("2024-01-01", "UTC"), seconds(str(days[-1] + timedelta(days=1)), "UTC")
    found = [datetime.fromtimestamp(time, UTC) for time in planned_times(rule, begin, end, 9999)]
    assert found == [datetime(d.year, d.month, d.day, 12, tzinfo=UTC) for d in days if is_right(d)]


def test_times_are_later_than_the_moment_and_up_to_the_end():
    rule = read_rule(every=100)
    assert planned_times(rule, 1000, 1300, 9) == [1100, 1200, 1300]
    assert planned_times(rule, 999.9, 1299.9, 9) == [1000, 1100, 1200]
    assert planned_times(rule, 1000, 1300, 2) == [1100, 1200]
    assert planned_times(rule, 1000, 1000, 9) == planned_times(rule, 1000, 1300, 0) == []
    assert rule.next_after(1000) == rule.next_after(1000.5) == rule.next_after(1099.9) == 1100


@pytest.mark.parametrize("rule", [{"every": 60}, {"cron": "* * * * *"}])
def test_times_from_start_to_until(rule):
    bounded = read_rule(**rule, start=600, until=720)
    assert planned_times(bounded, 0, math.inf, 9) == [600, 660, 720]
    assert bounded.next_after(-5.5) == 600
    assert bounded.next_after(720) is None


def test_an_interval_is_counted_from_its_start():
    rule = read_rule(every=70, start=1001)
    assert planned_times(rule, 0, math.inf, 3) == [1001, 1071, 1141]
    assert rule.next_after(1071) == 1141


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"cron": " 30  2 * * mon-fri\n"}, Rule("30 2 * * mon-fri")),
        ({"cron": "0 0 L 2 *", "timezone": BERLIN}, Rule("0 0 L 2 *", timezone=BERLIN)),
        ({"every": "1d 12h"}, Rule(every=129600)),
        ({"every": "10s"}, Rule(every=10)),
        ({"every": "90"}, Rule(every=90)),
        ({"every": 60.0}, Rule(every=60)),
        ({"every": 366 * 86400}, Rule(every=366 * 86400)),
        (
            {"every": 60, "start": 5.9, "until": "2030-01-31T08:00+01:00"},
            Rule(every=60, start=5, until=1896073200),
        ),
        (
            {"every": 60, "start": datetime(2030, 1, 31, 7, tzinfo=UTC)},
            Rule(every=60, start=1896073200),
        ),
        ({"every": 60, "until": "2030-01-31 07:00:00Z"}, Rule(every=60, until=1896073200)),
    ],
)
def test_what_a_user_may_give(given, expected):
    assert read_rule(**given) == expected


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (Rule("30 2 * * 1-5", timezone=BERLIN), "30 2 * * 1-5 Europe/Berlin"),
        (Rule("0 0 L * *"), "0 0 L * * UTC"),
        (Rule(every=21600), "every 6h"),
        (Rule(every=129690), "every 1d12h1m30s"),
    ],
)
def test_a_rule_in_words(rule, text):
    assert rule.text() == text


DAILY = {"cron": "0 0 * * *"}
REFUSED = [
    ({}, "cron: a rule needs cron or every"),
    (
        {**DAILY, "every": 60},
        "cron: it is given together with every, and a rule takes one of them",
    ),
    ({"cron": "0 30 2 * * 1"}, f"cron: '0 30 2 * * 1' has 6 fields, not {FIVE}; for seconds, use every"),
    ({"cron": "0 2 *"}, f"cron: '0 2 *' has 3 fields, not {FIVE}"),
    ({"cron": ""}, f"cron: '' has 0 fields, not {FIVE}"),
    ({"cron": "@daily"}, "cron: write '0 0 * * *' for @daily"),
    ({"cron": "@Weekly"}, "cron: write '0 0 * * 0' for @weekly"),
    ({"cron": "@every 6h"}, "cron: '@every 6h' is an interval: give every, '6h'"),
    ({"cron": "@reboot"}, f"cron: '@reboot' has no fields; a rule has {FIVE}"),
    ({"cron": "60 2 * * *"}, "cron: '60' is not a valid minute (0-59)"),
    ({"cron": "0 2-25 * * *"}, "cron: '2-25' is not a valid hour (0-23)"),
    ({"cron": "0 2 0 * *"}, "cron: '0' is not a valid day of the month (1-31 or L)"),
    ({"cron": "0 2 * JANUARY *"}, "cron: 'JANUARY' is not a valid month (1-12 or JAN-DEC)"),
    ({"cron": "0 2 * * 1#6"}, "cron: '1#6' is not a valid day of the week (0-7 or SUN-SAT)"),
    ({"cron": "0 2 * * L"}, "cron: 'L' is not a valid day of the week (0-7 or SUN-SAT)"),
    ({"cron": "*/0 2 * * *"}, "cron: '*/0' is not a valid minute (0-59)"),
    ({"cron": "0 0 31 2,4 *"}, "cron: '0 0 31 2,4 *' has no time within 50 years"),
    ({"cron": "0 0 */20 * 1L"}, "cron: '0 0 */20 * 1L' has no time within 50 years"),
    ({"cron": "1" * 1001}, "cron: it has more than 1,000 characters"),
    ({**DAILY, "timezone": ""}, "timezone: '' is not a name of the IANA database"),
    (
        {**DAILY, "timezone": "europe/berlin"},
        "timezone: 'europe/berlin' is not a name of the IANA database; did you mean Europe/Berlin?",
    ),
    ({**DAILY, "timezone": "../UTC"}, None),
    ({**DAILY, "timezone": "/etc/localtime"}, None),
    ({**DAILY, "timezone": "localtime"}, None),
    ({**DAILY, "timezone": "right/Europe/Berlin"}, None),
    ({**DAILY, "timezone": "Europe"}, None),
    ({**DAILY, "timezone": "tzdata.zi"}, None),
    ({**DAILY, "timezone": "UTC\0"}, None),
    ({**DAILY, "timezone": "x" * 9999}, None),
    ({"every": 60, "timezone": "UTC"}, "timezone: every has no time zone; only cron has one"),
    ({"every": 9}, "every: it must be from 10s to 366d"),
    ({"every": "367d"}, "every: it must be from 10s to 366d"),
    ({"every": math.nan}, "every: it must be from 10s to 366d"),
    ({"every": math.inf}, "every: it must be from 10s to 366d"),
    ({"every": 10**9999}, "every: it must be from 10s to 366d"),
    ({"every": 10.5}, "every: 10.5 is not a number of whole seconds"),
    ({"every": "1m500ms"}, "every: '1m500ms' is not a number of whole seconds"),
    (
        {"every": "6 hours"},
        "every: '6 hours' is not a duration: write 90, 30s, 2h or 1d12h",
    ),
    (
        {"every": 60, "start": "tomorrow"},
        "start: 'tomorrow' is not a time: write 2030-01-31T08:00+01:00",
    ),
    (
        {"every": 60, "start": "2030-01-31"},
        "start: 2030-01-31 00:00:00 has no time zone: write 2030-01-31T08:00+01:00",
    ),
    (
        {"every": 60, "until": datetime(2030, 1, 31)},
        "until: 2030-01-31 00:00:00 has no time zone: write 2030-01-31T08:00+01:00",
    ),
    ({"every": 60, "start": 1.7e12}, "start: it must be from the year 1970 to 9999, in seconds"),
    ({"every": 60, "until": -1}, "until: it must be from the year 1970 to 9999, in seconds"),
    ({"every": 60, "until": math.nan}, "until: it must be from the year 1970 to 9999, in seconds"),
    ({"every": 60, "start": 100, "until": 100}, "until: it is not later than start"),
    ({"cron": "0 0 1 1 *", "start": 1, "until": 99}, "until: the rule has no time before it ends"),
]  # fmt: skip


@pytest.mark.parametrize(("given", "sentence"), REFUSED)
def test_what_is_refused(given, sentence):
    with pytest.raises(InvalidInput) as refused:
        read_rule(**given)
    if sentence is None:
        assert re.match("timezone: .* is not a name of the IANA database", str(refused.value))
    else:
        assert str(refused.value) == sentence


@pytest.mark.parametrize("name", ["Berlin", "Europe/Berln", "europe/berlim"])
def test_names_of_zones_that_are_like_an_unknown_one(name):
    with pytest.raises(InvalidInput, match=f"'{name}' .*; did you mean Europe/Berlin"):
        read_rule(**DAILY, timezone=name)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"cron": 5}, "cron: it is a text such as '30 2 * * 1-5', not int"),
        ({"every": True}, "every: it is seconds or a text such as 6h, not bool"),
        (
            {"every": timedelta(hours=1)},
            "every: it is seconds or a text such as 6h, not timedelta",
        ),
        (
            {**DAILY, "timezone": ZoneInfo(BERLIN)},
            "timezone: it is a name such as 'Europe/Berlin', not ZoneInfo",
        ),
        ({"every": 60, "start": b"1"}, "start: it is Unix seconds, a datetime or ISO text, not bytes"),
        ({"every": 60, "until": False}, "until: it is Unix seconds, a datetime or ISO text, not bool"),
    ],
)  # fmt: skip
def test_a_wrong_type_is_refused(given, sentence):
    with pytest.raises(InvalidType) as refused:
        read_rule(**given)
    assert str(refused.value) == sentence


def test_a_rule_of_a_zone_that_this_host_does_not_know():
    with pytest.raises(InvalidInput, match="timezone: 'Mars/Olympus' is not"):
        Rule("0 0 * * *", timezone="Mars/Olympus").next_after(NOW)


def test_nothing_is_planned_behind_the_year_9999():
    rule = read_rule(cron="0 0 1 * *", timezone=SANTIAGO)
    last = planned_times(rule, seconds("9999-10-15", "UTC"), math.inf, 9)
    assert [datetime.fromtimestamp(time, UTC).month for time in last] == [11, 12]
    assert rule.next_after(last[-1]) is None
    assert rule.next_after(10**15) is None


def test_the_last_times_may_be_repeated_ones():
    rule = read_rule(cron="*/30 2 31 10 *", timezone=BERLIN)
    assert walls(rule, "9999-01-01T00:00", "9999-12-31T00:00") == [
        "02:00+02",
        "02:30+02",
        "02:00+01",
        "02:30+01",
    ]
    evening = seconds("9999-12-31T20:00", "UTC")  # in Berlin, too, but not in India
    assert read_rule(cron="0 0 1 * *", timezone=BERLIN).next_after(evening) is None
    assert read_rule(cron="0 0 1 * *", timezone="Asia/Kolkata").next_after(evening) is None


CRONS = st.randoms(use_true_random=False).map(random_text) | st.text(max_size=30)
MOMENTS = st.floats(-1e6, 1e10)


def rule_or_sentence(**given) -> Rule | str:
    try:
        return read_rule(**given)
    except InvalidInput as error:
        return str(error)


@settings(max_examples=100)
@given(CRONS, st.sampled_from(ZONES), MOMENTS)
@example("30 1,2 * * *", BERLIN, 1792890000.0)
@example("9" * 900 + " * * * *", BERLIN, 0.0)
def test_any_cron_is_refused_in_a_sentence_or_has_times_that_only_get_later(cron, zone, moment):
    rule = rule_or_sentence(cron=cron, timezone=zone)
    if isinstance(rule, str):
        assert rule.startswith("cron: ")
        return
    times = planned_times(rule, moment, math.inf, 10)
    assert all(before < after for before, after in pairwise([math.floor(moment), *times]))
    assert rule.next_after(moment) == (times[0] if times else None)
    assert read_rule(cron=rule.cron, timezone=rule.timezone) == rule


ANYTHING = st.none() | st.integers() | st.floats() | st.text(max_size=12) | st.datetimes()


@settings(max_examples=100)
@given(ANYTHING | st.just("90"), ANYTHING, ANYTHING)
def test_any_interval_is_refused_in_a_sentence_or_has_times(every, start, until):
    rule = rule_or_sentence(every=every, start=start, until=until)
    if isinstance(rule, str):
        assert rule.partition(": ")[0] in ("cron", "every", "start", "until")
        return
    assert rule.next_after(-1) is not None
    assert read_rule(every=rule.every, start=rule.start, until=rule.until) == rule


def test_jitter_is_the_same_in_all_processes():
    program = (
        "from blueque.model.recurrence import jitter_of\n"
        f"print(*(jitter_of('nächtlich', planned, 600) for planned in range({NOW}, {NOW + 50})))"
    )
    here = [jitter_of("nächtlich", planned, 600) for planned in range(NOW, NOW + 50)]
    for seed in ("1", "2"):
        assert in_process(program, PYTHONHASHSEED=seed).split() == [str(part) for part in here]


def test_jitter_spreads_over_its_range():
    found = {jitter_of("a", planned, 10) for planned in range(NOW, NOW + 1000)}
    assert found == set(range(10))
    assert jitter_of("a", NOW, 0) == 0
    assert jitter_of("a", NOW, 10**6) != jitter_of("b", NOW, 10**6)
    # Written down: schedulers of two versions must agree.
    assert jitter_of("nightly", NOW, 600) == 100


def test_a_zone_is_found_without_files_of_the_system():
    program = (
        "import zoneinfo; assert zoneinfo.TZPATH == ()\n"
        "from blueque.model.recurrence import Rule\n"
        f"print(Rule('30 2 * * *', timezone='{BERLIN}').next_after(1774700000))"
    )
    assert in_process(program, PYTHONTZPATH="") == str(seconds("2026-03-29T03:00", BERLIN))
    assert find_zone(BERLIN).key == BERLIN


def test_rules_are_loaded_without_cronsim():
    program = (
        "import sys, blueque.model.recurrence\n"
        "print(*{'cronsim', 'zoneinfo', 'tzdata', 'difflib'} & sys.modules.keys())"
    )
    assert in_process(program) == ""
