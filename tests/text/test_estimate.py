"""Estimate: how far a task is, and how long it will take yet, in words."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blueque.spool.progress_file import Told
from blueque.text.eta import (
    LATE,
    Progress,
    bar,
    left_words,
    percent,
    read_progress,
    roughly,
    seconds_left,
)
from blueque.text.format import ago, one_line, span

SHARES = st.floats(0, 1)
SECONDS = st.floats(0, 1e9)


@pytest.mark.parametrize(
    ("text", "progress"),
    [
        ("450/1500 frames encoding", Progress(0.3, "450/1500 frames encoding")),
        ("0.960078/8 seconds", Progress(0.960078 / 8, "0.96/8 seconds")),
        ("1234.5678/2000.00 of 1.2345", Progress(0.6172839, "1234.57/2000.00 of 1.2345")),
        ("0.0001234/1", Progress(0.0001234, "0.0001234/1")),
        ("1.2k/10k", Progress(0.12, "1.2k/10k")),
        ("9/6 parts", Progress(1.0, "9/6 parts")),
        ("3/0 parts", Progress(None, "3/0 parts")),
        ("41 % encoding", Progress(0.41, "encoding")),
        ("45%", Progress(0.45, "")),
        ("0.4", Progress(0.4, "")),
        ("0.4 encoding", Progress(0.4, "encoding")),
        ("1", Progress(1.0, "")),
        ("0", Progress(0.0, "")),
        ("1 rows", Progress(None, "1 rows")),
        ("1e-05", Progress(1e-05, "")),
        ("450 frames", Progress(None, "450 frames")),
        ("1.5 GB", Progress(None, "1.5 GB")),
        ("waiting for a licence", Progress(None, "waiting for a licence")),
        ("1/2024 is the month", Progress(1 / 2024, "1/2024 is the month")),
        ("", Progress(None, "")),
        (
            "41 % \x1b[31mred\x1b[0m\x07\nalert " + "x" * 300,
            Progress(0.41, "red alert " + "x" * 185),
        ),
    ],
)
def test_what_a_task_tells_is_read_as_a_share_where_it_says_one(text, progress):
    assert read_progress(text) == progress


@given(st.floats(0, 1e12), st.floats(1e-3, 1e12))
def test_what_a_handler_tells_of_a_total_is_read_back(done, total):
    share = read_progress(str(Told(1, done, total, "", ""))).share

    assert share == pytest.approx(min(done / total, 1.0), rel=1e-4, abs=1e-9)


@given(st.text())
def test_no_words_are_too_strange_to_be_read(text):
    share, words = read_progress(text)

    assert share is None or 0 <= share <= 1
    assert words in one_line(text)


@given(SHARES, SECONDS, SECONDS)
def test_time_left_is_about_right_or_late_and_never_negative(share, elapsed, age):
    left = seconds_left(share, elapsed, age)
    words = left_words(left)

    assert left is None or left >= 0
    assert (words is None) == (left is None)
    assert words is None or words == LATE or re.fullmatch(r"~\d+ [smhd]( \d+ [smh])?", words)
    assert words is None or not words.startswith("~0")


@given(SHARES, st.floats(0, 29.9))
def test_nothing_is_estimated_in_the_first_half_minute(share, elapsed):
    assert left_words(seconds_left(share, elapsed, 0.0)) is None


def test_two_percent_are_enough_for_an_estimate():
    assert left_words(seconds_left(0.019, 60, 0)) is None
    assert left_words(seconds_left(0.02, 60, 0)) == "~49 m"


def test_time_goes_by_while_nothing_is_told_until_the_task_is_late():
    assert left_words(seconds_left(0.5, 1000 + 400, 400)) == "~10 m"
    assert left_words(seconds_left(0.5, 1000 + 1000, 1000)) == LATE
    assert left_words(seconds_left(1.0, 1000, 0)) == LATE


def test_what_was_done_before_the_first_report_does_not_make_a_task_faster():
    assert seconds_left(0.9, 1000, 0, before=0.8) == pytest.approx(1000)
    assert seconds_left(0.819, 1000, 0, before=0.8) is None


@given(st.floats(0, 1e9))
def test_a_rough_duration_is_within_a_quarter_of_it_or_five_seconds(seconds):
    words = roughly(seconds)
    units = {"s": 1, "m": 60, "h": 3600, "d": 86400}
    said = sum(int(number) * units[unit] for number, unit in re.findall(r"(\d+) ([smhd])", words))

    assert abs(said - seconds) <= max(seconds / 4, 5)


@given(SHARES)
def test_all_is_said_to_be_done_when_it_is_and_nothing_when_nothing_is(share):
    words = percent(share)

    assert (words == "100 %") == (share >= 1 - 1e-9)
    assert (words == "0 %") == (share == 0)


@given(SHARES, st.integers(0, 200))
def test_a_bar_has_its_width_and_is_full_only_at_the_end(share, columns):
    drawn = bar(share, columns)

    assert len(drawn) == columns
    assert set(drawn) <= {"#", "."}
    assert "." in drawn or columns == 0 or share >= 1 - 1e-6


def test_how_old_something_is_is_never_said_as_younger_than_now():
    assert (ago(-3), ago(12), ago(None)) == (f"{span(0)} ago", "12 s ago", "-")
