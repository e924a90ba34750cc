"""What a handler may raise to say what its failure means."""

from __future__ import annotations

import math
import pickle

import pytest

from blueque import BluequeError, Fail, InvalidInput, InvalidType, RetryLater


@pytest.mark.parametrize("seconds", [0, 30, 0.5, 86400 * 365])
def test_a_wish_knows_after_how_many_seconds(seconds):
    assert RetryLater(seconds).seconds == seconds


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


def test_verdicts_come_out_of_a_child_as_they_were():
    wish = pickle.loads(pickle.dumps(RetryLater(30, "full")))

    assert (type(wish), wish.seconds, str(wish)) == (RetryLater, 30, "full")
    assert str(pickle.loads(pickle.dumps(Fail("no such codec")))) == "no such codec"


@pytest.mark.parametrize("verdict", [Fail("no such codec"), RetryLater(30)])
def test_a_handler_that_catches_our_errors_does_not_catch_its_verdicts(verdict):
    assert isinstance(verdict, Exception) and not isinstance(verdict, BluequeError)
