"""blueque.system.outage: an outage is said at its start and at its end, whatever meets it in
between.
"""

from __future__ import annotations

import pytest

from blueque.errors import RedisAway, RedisRefused
from blueque.system.outage import Outage


@pytest.fixture
def outage():
    return Outage("Redis answers again")


@pytest.fixture
def said(caplog):
    """Return what has been said so far, each line up to the first number or semicolon."""
    return lambda: [line.partition(" after ")[0].partition(";")[0] for line in caplog.messages]


def refused(command):
    error = RedisRefused("NOPERM for a reason")
    error.command = command
    return error


def test_redis_that_is_away_is_said_once_and_is_back_with_the_first_success(outage, said):
    for _ in range(3):
        outage.note(RedisAway("it is away"), "waiting", "beat")
        outage.note(RedisAway("it is away"), "waiting", "take")
    assert outage.is_on

    outage.note(None, duty="beat")
    outage.note(None, duty="take")

    assert said() == ["it is away", "Redis answers again"]
    assert not outage.is_on


def test_a_refusal_is_over_when_the_duty_that_met_it_succeeds_and_not_with_another(outage, said):
    for _ in range(3):
        outage.note(refused("RPOPLPUSH a"), "waiting", "take")
        outage.note(None, duty="beat")
    assert outage.is_on

    outage.note(None, duty="take")

    assert said() == [
        "Redis refused RPOPLPUSH a: NOPERM for a reason",
        "Redis no longer refuses RPOPLPUSH",
    ]


def test_what_holds_for_many_commands_is_said_once_for_all(outage, said):
    for command, duty in [("HSET a", "beat"), ("LREM b", "take")]:
        error = RedisRefused("OOM no memory")
        error.command = command
        outage.note(error, "waiting", duty)
    outage.note(None, duty="beat")
    outage.note(None, duty="take")

    assert said() == ["Redis refused HSET a: OOM no memory", "Redis no longer answers OOM"]


def test_what_is_refused_for_a_while_is_said_once_though_reads_succeed_meanwhile(outage, said):
    """Most calls tell of it when their patience is over, some at once."""
    away = RedisAway("Redis is not ready: NOREPLICAS too few")
    away.__cause__ = RedisRefused("NOREPLICAS too few")
    for _ in range(2):
        outage.note(away, "waiting", "beat")
        outage.note(away.__cause__, "waiting", "orders")
        outage.note(None, duty="read")

    outage.note(None, duty="orders")
    outage.note(None, duty="beat")

    assert said() == [str(away), "Redis no longer answers NOREPLICAS"]


def test_a_refused_certificate_does_not_mean_that_redis_answers(outage, said):
    """It is named once all the same, also behind an outage of another kind."""
    for _ in range(2):
        outage.note(RedisAway("it is away"), "waiting", "take")
        outage.note(RedisRefused("TLS its certificate has expired"), "waiting", "take")
        outage.note(RedisRefused("TLS its certificate has expired"), "waiting", "beat")
    outage.note(None, duty="beat")
    outage.note(None, duty="take")

    assert said() == ["it is away", "its certificate has expired", "Redis answers again"]
    assert not outage.is_on


def test_a_duty_that_meets_another_refusal_has_done_with_the_first(outage, said):
    outage.note(refused("HSET a"), "waiting", "take")
    outage.note(refused("ZADD a"), "waiting", "take")
    outage.note(None, duty="take")

    assert [line.split(":")[0] for line in said()] == [
        "Redis refused HSET a",
        "Redis no longer refuses HSET",
        "Redis refused ZADD a",
        "Redis no longer refuses ZADD",
    ]


def test_redis_that_goes_away_meanwhile_ends_no_refusal(outage, said):
    outage.note(refused("HSET a"), "waiting", "take")
    outage.note(RedisAway("it is away"), "waiting", "take")
    outage.note(refused("HSET a"), "waiting", "take")

    assert [line.split(":")[0] for line in said()] == [
        "Redis refused HSET a",
        "it is away",
        "Redis answers again",
    ]
    assert outage.is_on


def test_pauses_grow_with_the_failures_of_a_duty_and_not_with_those_of_others(outage):
    for _ in range(10):
        outage.note(refused("HSET a"), "waiting", "take")

    assert outage.pause("take") > outage.pause("beat")
