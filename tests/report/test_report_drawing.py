"""Axes, lanes and words of a report: what is drawn where, and how it is said."""

from __future__ import annotations

import itertools
import math
import random
import re
from collections import Counter
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from blueque.model import histogram
from blueque.report import lanes, phrases, scales, svg, timeline
from blueque.report.summary import Bar, Host, Timeline
from blueque.report.timeline import Look

DAY = 86400
TODAY = 20777  # 20 November 2026


@settings(max_examples=100)
@given(st.lists(st.floats(0, 1e12), min_size=1, max_size=5))
@example([1.0, 5000.0, 6000.0])
def test_an_axis_of_durations_holds_every_duration(seconds):
    scale = scales.Durations(seconds)

    assert [0 <= scale.at(value) <= 1 for value in seconds] == [True] * len(seconds)
    drawn = sorted(value for value in seconds if 0.001 <= value <= 3650 * DAY)
    for shorter, longer in itertools.pairwise(drawn):
        assert scale.at(shorter) < scale.at(longer) or longer < shorter * 1.001
    assert 1 <= len(scale.ticks()) <= 5
    assert_ticks(scale.ticks())


@settings(max_examples=100)
@given(st.integers(1, 10**12), st.integers(2, 6))
def test_an_axis_of_counts_ends_just_above_the_most(most, ticks):
    scale = scales.Counts(most, ticks)

    assert scale.at(0) == 0 < scale.at(most) <= 1
    assert 2 <= len(scale.ticks()) <= ticks + 1
    assert_ticks(scale.ticks())


@settings(max_examples=100)
@given(st.floats(0, 2e9), st.floats(1, 1e9), st.integers(2, 10))
def test_an_axis_of_time_has_few_ticks_at_whole_steps(since, length, most):
    times = scales.Times(since, since + length)

    ticks = times.ticks(most)
    assert len(ticks) <= most + 1
    # After a midnight, which is shown as a date, the same times of a day come again.
    dates = itertools.accumulate(":" not in tick.label for tick in ticks)
    assert_ticks(
        [
            tick._replace(label=f"{date} {tick.label}")
            for date, tick in zip(dates, ticks, strict=True)
        ]
    )
    assert times.at(since - 1) == 0
    assert times.at(since + 2 * length) == 1


def test_an_axis_of_time_is_labelled_in_its_zone_also_after_the_clocks_have_changed():
    berlin = scales.Times(1792854000.0, 1792854000.0 + 24 * 3600, ZoneInfo("Europe/Berlin"))

    labels = [tick.label for tick in berlin.ticks(9)]

    assert labels == ["18:00", "21:00", "25 Oct", "02:00", "05:00", "08:00", "11:00", "14:00"]


@pytest.mark.parametrize("hours", [1, 6, 12, 24, 72, 168])
def test_no_label_of_an_axis_touches_the_word_now(hours):
    for minute in range(0, 24 * 60, 7):
        until = 1795255200.0 + 60 * minute
        look = Look(scales.Times(until - hours * 3600, until), str, is_live=True)
        drawn = timeline.axis(look)
        for x, kind in re.findall(r'<text x="([\d.]+)%" y="12" class="tick mid([^"]*)"', drawn):
            # A label has 36 pixels, "now" has 24. Pictures of less than 724 have no minor labels; the
            # narrowest, of a screen of 320, has 292 and no odd ones.
            width = 724 if "minor" in kind else 384 if "odd" in kind else 292
            assert float(x) / 100 * width + 18 < width - 24, (until, kind)


@settings(max_examples=100)
@given(st.integers(0, 100_000), st.integers(0, 3000))
def test_an_axis_of_days_says_the_newest(first, more):
    days = scales.Days(first, first + more)

    ticks = days.ticks(5)

    assert 1 <= len(ticks) <= 6
    assert ticks[0].at == days.at(first + more) < 1
    assert days.at(first) > 0
    assert_ticks(ticks[::-1])


def assert_ticks(ticks):
    assert [0 <= tick.at <= 1 for tick in ticks] == [True] * len(ticks)
    assert [tick.at for tick in ticks] == sorted({tick.at for tick in ticks})
    labels: Counter[tuple[int, str]] = Counter()
    days = 0  # a time of the day may come again on the next one
    for tick in ticks:
        is_time = ":" in tick.label
        days += not is_time
        labels[days if is_time else 0, tick.label] += 1
    assert labels.most_common(1)[0][1] == 1 if labels else True, labels


@settings(max_examples=100)
@given(
    st.dictionaries(
        st.integers(0, len(histogram.NAMES) - 1), st.integers(1, 100), min_size=1, max_size=20
    )
)
def test_bins_hold_whole_buckets_and_all_that_was_counted(counts):
    bins = scales.Bins(counts)

    assert sum(bins.counts) == sum(counts.values())
    for number in counts:
        since, until = histogram.start(number), histogram.end(number)
        place = next(
            n for n in range(len(bins.counts)) if bins.edges(n)[0] <= since < bins.edges(n)[1]
        )
        assert until <= bins.edges(place)[1]
        assert 0 <= bins.at(since) <= 1
    assert_ticks(bins.ticks())


def some_bars(count, seed):
    chance = random.Random(seed)
    return [
        Bar(start, start + chance.expovariate(0.2), chance.choice(["complete", "failed"]))
        for start in (chance.uniform(0, 100) for _ in range(count))
    ]


@pytest.mark.parametrize("seed", range(5))
def test_lanes_are_as_few_as_ran_at_the_same_time(seed):
    bars = some_bars(60, seed)

    packed = lanes.lanes(bars)

    assert sorted(bar for lane in packed for bar in lane) == sorted(bars)
    assert all(
        left.end <= right.start for lane in packed for left, right in itertools.pairwise(lane)
    )
    assert len(packed) == max(
        sum(other.start <= bar.start < other.end for other in bars) for bar in bars
    )


@pytest.mark.parametrize("seed", range(5))
def test_a_profile_holds_as_much_work_in_each_step_as_the_bars_do(seed):
    bars, since, step, steps = some_bars(60, seed), 7.0, 2.5, 60

    found = lanes.profile(bars, since, step, steps)

    for status in ("complete", "failed"):
        for place in range(steps):
            low, high = since + place * step, since + (place + 1) * step
            work = sum(
                max(min(bar.end, high) - max(bar.start, low), 0)
                for bar in bars
                if bar.status == status
            )
            assert found[status][place] == pytest.approx(work / step, abs=1e-9)


def drawing(whole):
    return "".join(row.picture for row in timeline.rows(whole))


def test_runs_too_thin_to_see_are_drawn_as_one_that_says_how_many():
    many = [Bar(n * 10.0, n * 10.0 + 9, "failed" if n == 500 else "complete") for n in range(1000)]
    whole = Timeline(0.0, 1e6, [Host("h", 1, 1000, 9000.0)], bars={"h": many})

    drawn = drawing(whole)

    assert [
        int(said.replace(",", "")) for said in re.findall(r"<title>([\d,]+) runs, complete", drawn)
    ] == [500, 499]
    assert drawn.count("<rect") == 3


def test_the_last_run_is_seen_however_short():
    whole = Timeline(0.0, 1e6, [Host("h", 1, 1, 0.0)], bars={"h": [Bar(1e6, 1e6, "failed")]})

    ((x, width),) = re.findall(r'x="([\d.]+)%" y="0" width="([\d.]+)%" height="9"', drawing(whole))

    assert float(x) + float(width) == 100
    assert float(width) > 0.1


def test_a_host_that_ran_more_at_once_than_there_is_room_for_is_summed_up():
    many = [Bar(0.0, 50.0, "complete") for _ in range(timeline.LANES + 1)]
    whole = Timeline(0.0, 100.0, [Host("h", 13, 13, 650.0)], bars={"h": many})

    drawn = drawing(whole)

    assert "at most 13 at the same time" in drawn
    assert "<path" in drawn
    assert "<rect" not in drawn


def test_an_outline_goes_around_what_there_is_and_skips_what_is_not():
    assert "".join(timeline._area([0, 0, 0, 1], [2, 2, 0, 2], 2)) == (
        "M0 30V2H250V2H500V30H250V30H0ZM750 16V2H1000V16H750Z"
    )


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (phrases.share(0, 0), "0 %"),
        (phrases.share(1, 3000), "<0.1 %"),
        (phrases.share(1, 40), "2.5 %"),
        (phrases.share(1, 3), "33 %"),
        (phrases.short(0), "0"),
        (phrases.short(1500), "1,500"),
        (phrases.short(25_000), "25k"),
        (phrases.short(3.5e6), "3.5M"),
        (phrases.work(99 * DAY), "99 d"),
        (phrases.work(1956.2 * DAY), "1,956 d"),
        (phrases.work(4e12 * DAY), "4,000,000M d"),
        (phrases.day(TODAY), "20 Nov"),
        (phrases.month(TODAY), "Nov 2026"),
        (phrases.iso_day(TODAY), "2026-11-20"),
        (phrases.stamp(TODAY * DAY + 3660.0), "2026-11-20 01:01"),
        (phrases.stamp(1e300), "-"),
        (phrases.stamp(None), "-"),
        (phrases.stamp(TODAY * DAY + 3660.5, 59), "2026-11-20 01:01:00"),
        (phrases.span(0), "0.0 s"),
        (phrases.span(0.0004), "<1 ms"),
        (phrases.span(0.0123), "12 ms"),
        (phrases.span(0.0994), "99 ms"),
        (phrases.span(0.0996), "0.1 s"),
        (phrases.span(None), "-"),
        (phrases.tick(TODAY * DAY, 3600), "20 Nov"),
        (phrases.tick(TODAY * DAY + 3600.0, 3600), "01:00"),
        (phrases.tick(TODAY * DAY + 61.0, 1), "00:01:01"),
        (phrases.tick(TODAY * DAY + 3600.0, 7 * DAY), "20 Nov"),
        (svg.number(-0.0001), "0"),
        (svg.number(0.5), "0.5"),
        (svg.number(100.0), "100"),
        (svg.percent(1 / 3), "33.333%"),
    ],
)
def test_numbers_are_said_as_people_say_them(said, words):
    assert said == words


def test_a_host_goes_without_its_domain_where_no_other_has_its_name():
    assert phrases.hosts(["a.farm.org", "b.farm.org", "b.example.org", "10.0.0.7"]) == {
        "a.farm.org": "a",
        "b.farm.org": "b.farm.org",
        "b.example.org": "b.example.org",
        "10.0.0.7": "10.0.0.7",
    }
    names = ["gpu-10", "gpu-2", "gpu", "7", "gpu-2b"]
    assert sorted(names, key=phrases.natural) == ["7", "gpu", "gpu-2", "gpu-2b", "gpu-10"]


def test_a_share_of_nothing_is_no_number_that_breaks():
    assert math.isfinite(scales.Bins({0: 1}).at(0.0))
    assert lanes.add_up({}, 2) == [0.0, 0.0]
