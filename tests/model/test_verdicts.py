"""What a handler may raise to say what its failure means."""

from __future__ import annotations

import math

import pytest

from blueque import BluequeError, Fail, InvalidInput, InvalidType, RetryLater


@pytest.mark.parametrize(
    ("seconds", "error"),
    [
        (-1, InvalidInput),
        (math.nan, InvalidInput),
        (math.inf, InvalidInput),
        (1e12, InvalidInput),
        (True, InvalidType),
        ("30", InvalidType),
        (None, InvalidType),
    ],
)
def test_a_wish_for_a_time_that_means_nothing_is_refused(seconds, error):
    with pytest.raises(error, match="seconds"):
        RetryLater(seconds)


def test_a_wish_says_its_message_or_else_when():
    assert str(RetryLater(30, "the licence server is full")) == "the licence server is full"
    assert str(RetryLater(1.5)) == "to be run again in 1.5 s"


@pytest.mark.parametrize("verdict", [Fail("no such codec"), RetryLater(30)])
def test_a_handler_that_catches_our_errors_does_not_catch_its_verdicts(verdict):
    assert isinstance(verdict, Exception) and not isinstance(verdict, BluequeError)
