"""The limits of a task: what may be given, and what is read from Redis."""

from __future__ import annotations

import math

import pytest

from blueque import InvalidInput, InvalidType
from blueque.model import limits
from blueque.model.limits import Limits

DEFAULT = Limits(time=100.0, stall=10.0, memory=1000, grace=5.0, lead=1.0)
DURATIONS = ["time_limit", "stall_limit", "grace", "lead"]


def test_what_is_not_given_has_no_field():
    assert limits.fields() == {}
    assert limits.fields(grace=0, lead=None) == {"grace": 0}


@pytest.mark.parametrize("name", DURATIONS)
@pytest.mark.parametrize(
    ("given", "text"),
    [(7200, "7200"), (72.0, "72"), ("2h", "7200"), (0.5, "0.5"), ("500ms", "0.5")],
)
def test_a_duration_is_given_as_a_number_or_as_text(name, given, text):
    assert {key: str(value) for key, value in limits.fields(**{name: given}).items()} == {
        name: text
    }


@pytest.mark.parametrize(
    ("given", "size"), [(65536, 65536), ("64KiB", 65536), ("8GiB", 2**33), ("1.5MB", 1_500_000)]
)
def test_a_size_is_given_as_a_number_or_as_text(given, size):
    assert limits.fields(memory_limit=given) == {"memory_limit": size}


@pytest.mark.parametrize("name", DURATIONS)
@pytest.mark.parametrize(
    ("value", "error"),
    [
        (-1, InvalidInput),
        (math.nan, InvalidInput),
        (math.inf, InvalidInput),
        (1e10, InvalidInput),
        ("soon", InvalidInput),
        ("", InvalidInput),
        ("-5", InvalidInput),
        ("9" * 400, InvalidInput),
        (True, InvalidType),
        (b"2h", InvalidType),
    ],
)
def test_a_duration_that_makes_no_sense_is_refused_by_its_name(name, value, error):
    with pytest.raises(error, match=name):
        limits.fields(**{name: value})


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (0, InvalidInput),
        (-1, InvalidInput),
        (2**63, InvalidInput),
        ("0", InvalidInput),
        ("much", InvalidInput),
        ("9" * 400, InvalidInput),
        (1.5, InvalidType),
        (True, InvalidType),
    ],
)
def test_a_size_that_makes_no_sense_is_refused_by_its_name(value, error):
    with pytest.raises(error, match="memory_limit"):
        limits.fields(memory_limit=value)


@pytest.mark.parametrize("name", ["time_limit", "stall_limit"])
def test_no_time_at_all_is_no_limit_but_no_grace_and_no_lead_are_fine(name):
    with pytest.raises(InvalidInput, match=name):
        limits.fields(**{name: 0})

    assert limits.fields(grace="0", lead="0") == {"grace": 0, "lead": 0}


def test_without_defaults_there_is_no_limit_and_no_warning():
    assert limits.of({}, Limits()) == Limits(None, None, None, 30.0, 0.0)


def test_a_task_has_what_its_fields_say_and_else_the_defaults():
    written = limits.fields(time_limit="2h", stall_limit=0.5, memory_limit="8GiB", grace=0, lead=60)

    assert limits.of({name: str(value) for name, value in written.items()}, DEFAULT) == Limits(
        7200.0, 0.5, 2**33, 0.0, 60.0
    )
    assert limits.of({"stall_limit": "3"}, DEFAULT) == DEFAULT._replace(stall=3.0)
    assert limits.of({"status": "reserved"}, DEFAULT) == DEFAULT


@pytest.mark.parametrize(
    "text", ["", "much", "nan", "inf", "-1", "1e300", "2h", "9" * 5000, "\0", "\udc80"]
)
def test_the_default_holds_where_another_program_has_left_no_sense(text):
    assert limits.of(dict.fromkeys([*DURATIONS, "memory_limit"], text), DEFAULT) == DEFAULT


def test_a_limit_of_nothing_in_redis_is_none():
    assert limits.of(dict.fromkeys([*DURATIONS, "memory_limit"], "0"), DEFAULT) == DEFAULT._replace(
        grace=0.0, lead=0.0
    )
