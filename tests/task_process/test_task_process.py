"""The exit record of an exception: what the listener needs to know to decide whether the task runs
again.
"""

from __future__ import annotations

import json

import pytest

from blueque import Fail, Retry, RetryLater
from blueque.spool.outcome_record import record_of as _record_of


class Busy(ConnectionError):
    """An exception class of a user's."""


class Hopeless(Fail):
    """A verdict of a user's."""


class Forgetful(RetryLater):
    """A verdict of a user's that is never told its seconds."""

    def __init__(self) -> None:
        Exception.__init__(self, "soon")


def record_of(error):
    """Return the record of an error that was raised, as it comes back from the spool."""
    try:
        raise error
    except BaseException as raised:
        return json.loads(json.dumps(_record_of(raised)))


def test_the_record_of_an_exception_names_all_its_classes():
    record = record_of(Busy("no slot"))

    assert (record["status"], record["error_type"]) == ("failed", f"{__name__}.Busy")
    assert record["error"] == "Busy: no slot"
    assert record["error_types"] == [
        f"{__name__}.Busy",
        "Busy",
        "ConnectionError",
        "OSError",
        "Exception",
    ]
    assert Retry(on=[OSError]).allows(0, record) and not Retry(on=[ValueError]).allows(0, record)


def test_names_that_redis_cannot_hold_or_that_never_end_do_not_spoil_the_record():
    record = record_of(type("x" * 100_000, (Exception,), {"__module__": "m\udc80"})("why"))

    assert record["error_types"][0].startswith("m\\udc80.xxx")
    assert all(len(name) <= 500 for name in record["error_types"])


@pytest.mark.parametrize(
    ("error", "text"), [(Fail("no codec"), "no codec"), (Fail(), "Fail"), (Hopeless("é"), "é")]
)
def test_the_record_of_a_fail_says_never_again(error, text):
    record = record_of(error)

    assert (record["status"], record["error"], record["error_type"]) == ("failed", text, "Fail")
    assert record["retry"] == "never"
    assert "in record_of\n" in record["traceback"]
    assert not Retry().allows(0, record)


def test_the_record_of_a_wish_says_when_and_is_no_failure_with_a_traceback():
    assert record_of(RetryLater(30)) == {
        "status": "failed",
        "error": "to be run again in 30 s",
        "error_type": "RetryLater",
        "retry_after": 30,
    }
    assert record_of(RetryLater(0.5, "full"))["error"] == "full"


@pytest.mark.parametrize("seconds", [None, -1, float("nan"), object()])
def test_a_wish_that_cannot_be_granted_is_a_failure_like_any_other(seconds):
    error = RetryLater(30)
    error.seconds = seconds

    record = record_of(error)

    assert record["status"] == "failed"
    assert record["error_type"] == "blueque.model.outcomes.RetryLater"
    assert "retry_after" not in record


def test_a_wish_without_its_seconds_is_a_failure_like_any_other():
    record = record_of(Forgetful())

    assert record["error_type"] == f"{__name__}.Forgetful"
    assert "retry_after" not in record


@pytest.mark.parametrize(("status", "code"), [(3, 3), ("why", 1)])
def test_the_record_of_an_exit_has_a_code_and_no_classes(status, code):
    record = record_of(SystemExit(status))

    assert (record["error_type"], record["exit_code"], "error_types" in record) == (
        "exit",
        code,
        False,
    )
