"""Settings of a queue: their text in Redis, what it means, and who wins."""

from __future__ import annotations

import pytest

from blueque import InvalidInput, Retry
from blueque.model.limits import Limits
from blueque.model.queue_settings import (
    NAMES,
    malformed,
    read_setting,
    read_settings,
    write_setting,
)
from blueque.model.units import RETENTION, Keep
from blueque.settings.file import check_setting, require_setting
from blueque.settings.in_effect import InEffect, OfQueue

TEXTS = [
    ("weight", 2.5, "2.5"),
    ("weight", 5, "5"),
    ("retry", Retry(max=2, backoff=0), '{"max":2,"backoff":0.0}'),
    ("retry", {"max": 1, "backoff": "1m"}, '{"max":1,"backoff":60.0}'),
    ("retry", 4, '{"max":4}'),
    ("retry", False, "null"),
    ("time_limit", "2h", "7200"),
    ("time_limit", False, "none"),
    ("stall_limit", 0.5, "0.5"),
    ("memory_limit", "8GiB", "8589934592"),
    ("grace", 0, "0"),
    ("lead", "5m", "300"),
    ("retention.complete", {"age": "1d", "newest": 7}, '{"age":86400,"newest":7}'),
    ("retention.failed", "never", "{}"),
    ("retention.cancelled", 90, '{"age":90}'),
    ("max_running", 8, "8"),
    ("max_pending", 0, "0"),
    ("discard", "oldest", "oldest"),
]


def test_each_setting_has_a_text_from_which_its_value_is_read_again():
    assert {name for name, _, _ in TEXTS} == set(NAMES)
    for name, given, text in TEXTS:
        value = check_setting(name, given)
        assert write_setting(name, value) == text
        read = read_setting(name, text)
        if isinstance(value, Retry):
            read, value = read.to_text(), value.to_text()
        assert read == value


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("time_limit", "soon", "time_limit: "),
        ("grace", False, "grace: "),
        (
            "retry",
            "often",
            "retry: must be a number, a retry policy as a table, or false, not text",
        ),
        ("weight", 0, "weight: a weight is above 0"),
        ("max_pending", "many", "max_pending: 'many' is not a whole number"),
        ("discard", "newest", "discard: it is 'oldest' or not set, not 'newest'"),
        ("retention.failed", {"old": 1}, "retention.failed: unknown key"),
    ],
)
def test_a_wrong_value_is_refused_with_its_name(name, value, message):
    with pytest.raises(InvalidInput) as caught:
        check_setting(name, value)
    assert str(caught.value).startswith(message)


def test_an_unknown_setting_is_refused_with_the_name_that_is_like_it():
    with pytest.raises(
        InvalidInput, match=r"time_limt: unknown setting; did you mean time_limit\?"
    ):
        require_setting("time_limt")


def test_what_is_malformed_says_nothing_and_the_rest_counts():
    wrong = {
        "weight": "-1",
        "retry": "7x",
        "time_limit": "soon",
        "grace": "none",
        "retention.failed": "[]",
        "retention.complete": '{"age":true}',
        "max_pending": "1_000",
        "discard": "newest",
    }
    fields = {**wrong, "lead": "5", "paused": "1.0"}

    assert malformed(fields) == wrong
    assert read_settings(fields) == read_settings({"lead": "5"})


def test_what_is_nearer_goes_first_and_what_is_unset_is_as_before():
    farther = {
        "retry": '{"max":1}',
        "time_limit": "9",
        "grace": "3",
        "retention.failed": '{"age":5}',
    }
    own = OfQueue(
        {"retry": '{"max":2}', "time_limit": "7", "retention.failed": '{"age":6}'}, farther
    )
    in_effect = InEffect(queues={"own": own}, otherwise=OfQueue(farther=farther))
    fields = {
        "retry": "null",
        "time_limit": "none",
        "memory_limit": "7",
        "retention.failed": "{}",
        "retention.complete": '{"age":1}',
        "weight": "4",
        "grace": "soon",
    }

    assert in_effect.take({"own": fields, "free": fields, "plain": {}}) == ["own", "free"]

    held, free = in_effect.of("own"), in_effect.of("free")
    assert (held.retry, free.retry) == (Retry(max=2), None)
    assert held.limits == Limits(time=7, memory=7, grace=3)
    assert free.limits == Limits(time=None, memory=7, grace=3)
    kept = {"cancelled": RETENTION["cancelled"], "complete": Keep(1.0)}
    assert held.retention == {**kept, "failed": Keep(6.0)}
    assert free.retention == {**kept, "failed": Keep()}
    assert held.weight == 4.0
    assert in_effect.take({"own": dict(fields)}) == []
    assert in_effect.take({"free": {}}) == ["free"]
    assert in_effect.of("free") == in_effect.of("plain")
    assert in_effect.of("plain").retry == Retry(max=1)
