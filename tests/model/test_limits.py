"""The limits of a task: what may be given, and what is read from Redis."""

from __future__ import annotations

import math

import pytest

from blueque import InvalidInput, InvalidType
from blueque.model import limits
from blueque.model.limits import Limits

DEFAULT = Limits(time=100.0, stall=10.0, memory=1000, grace=5.0, lead=1.0)
DURATIONS = ["time_limit", "stall_limit", "grace", "lead"]


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


@pytest.mark.parametrize(
    "text", ["", "much", "nan", "inf", "-1", "1e300", "2h", "9" * 5000, "\0", "\udc80"]
)
def test_the_default_holds_where_another_program_has_left_no_sense(text):
    assert limits.of(dict.fromkeys([*DURATIONS, "memory_limit"], text), DEFAULT) == DEFAULT
