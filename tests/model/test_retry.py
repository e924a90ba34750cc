"""The retry policy: what it may say, how it is written and read, and what it decides."""

from __future__ import annotations

import copy
import json
import math
import os
import pickle

import pytest

from blueque import InvalidInput, InvalidType, Retry
from blueque.model.retry import DAY, class_names

POLICIES = [
    Retry(),
    Retry(0),
    Retry(max=5, backoff=60),
    Retry(backoff=0),
    Retry(factor=1),
    Retry(jitter=0),
    Retry(interruptions=0),
    Retry(on=[ValueError, "requests.exceptions.Timeout", "signal"]),
    Retry(not_on=[ValueError, "memory"]),
    Retry(exit_codes=(75, 3)),
    Retry(7, 0.5, 1.5, 1, [OSError], [0, 255], 9),
]
REFUSED = [
    ({"max": -1}, InvalidInput, "max"),
    ({"max": 10**7}, InvalidInput, "max"),
    ({"max": True}, InvalidType, "max"),
    ({"max": 3.0}, InvalidType, "max"),
    ({"max": "3"}, InvalidType, "max"),
    ({"max": None}, InvalidType, "max"),
    ({"backoff": -0.1}, InvalidInput, "backoff"),
    ({"backoff": math.nan}, InvalidInput, "backoff"),
    ({"backoff": math.inf}, InvalidInput, "backoff"),
    ({"backoff": DAY + 1}, InvalidInput, "backoff"),
    ({"backoff": False}, InvalidType, "backoff"),
    ({"backoff": "10"}, InvalidType, "backoff"),
    ({"factor": 0.99}, InvalidInput, "factor"),
    ({"factor": math.nan}, InvalidInput, "factor"),
    ({"factor": 10**400}, InvalidInput, "factor"),
    ({"jitter": -0.1}, InvalidInput, "jitter"),
    ({"jitter": 1.1}, InvalidInput, "jitter"),
    ({"jitter": math.nan}, InvalidInput, "jitter"),
    ({"on": ValueError}, InvalidType, "on is a list or tuple"),
    ({"on": "ValueError"}, InvalidType, "on is a list or tuple"),
    ({"on": [3]}, InvalidType, "on: 3"),
    ({"on": [int]}, InvalidType, "on: <class 'int'>"),
    ({"on": [ValueError()]}, InvalidType, "on: ValueError"),
    ({"on": [""]}, InvalidInput, "on: ''"),
    ({"on": ["Value Error"]}, InvalidInput, "on: 'Value Error'"),
    ({"on": ["x" * 501]}, InvalidInput, "on: 'xxx"),
    ({"on": [BaseException]}, InvalidInput, "leave `on` out"),
    ({"not_on": [BaseException]}, InvalidInput, "max=0"),
    ({"not_on": OSError}, InvalidType, "not_on is a list or tuple"),
    ({"not_on": [3]}, InvalidType, "not_on: 3"),
    ({"not_on": [""]}, InvalidInput, "not_on: ''"),
    ({"exit_codes": 3}, InvalidType, "exit_codes is a list or tuple"),
    ({"exit_codes": ["3"]}, InvalidType, "exit code"),
    ({"exit_codes": [True]}, InvalidType, "exit code"),
    ({"exit_codes": [-1]}, InvalidInput, "exit code"),
    ({"exit_codes": [256]}, InvalidInput, "exit code"),
    ({"interruptions": -1}, InvalidInput, "interruptions"),
    ({"interruptions": 1.5}, InvalidType, "interruptions"),
]
NO_POLICY = [
    "",
    " ",
    "yes",
    "true",
    "null",
    '"3"',
    "[3]",
    "3 times",
    "{",
    '{"max":3',
    '{"max":null}',
    '{"max":3,"tries":4}',
    "NaN",
    "1e400",
    "-1",
    "3.5",
    '{"backoff":NaN}',
    '{"backoff":Infinity}',
    '{"on":"ValueError"}',
    '{"on":[1]}',
    '{"exit_codes":5}',
    '{"on":{"ValueError":1}}',
    '{"":1}',
    "[" * 100_000,
    "9" * 5000,
    "\0",
    "\udc80",
]


class Flaky(ConnectionError):
    """An exception class of a user's."""

    class Very(Exception):
        """Another, inside."""


def failed(**record):
    return {"status": "failed", "error": "e", **record}


def delays(policy, random, monkeypatch):
    """Return the first delays of a policy when the system's random bytes are all this one."""
    monkeypatch.setattr(os, "urandom", lambda size: bytes([random]) * size)
    return [policy.delay(failures) for failures in range(4)]


def test_a_policy_says_what_it_was_made_with():
    policy = Retry(5, 60, 3, 0, ["b.Error", OSError, "b.Error"], {9, 3}, 1)

    assert (policy.max, policy.backoff, policy.factor, policy.jitter) == (5, 60.0, 3.0, 0.0)
    assert policy.interruptions == 1
    assert (policy.on, policy.exit_codes) == (("OSError", "b.Error"), (3, 9))


def test_without_a_word_a_policy_has_the_defaults_of_the_document():
    policy = Retry()

    assert (policy.max, policy.backoff, policy.factor, policy.jitter) == (3, 10.0, 2.0, 0.1)
    assert policy.interruptions == 3
    assert (policy.on, policy.exit_codes) == ((), ())


@pytest.mark.parametrize(("values", "error", "words"), REFUSED, ids=repr)
def test_a_value_that_makes_no_sense_is_refused_by_its_name(values, error, words):
    with pytest.raises(error) as refusal:
        Retry(**values)

    assert words in str(refusal.value)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (ValueError, "ValueError"),
        (Flaky, f"{__name__}.Flaky"),
        (Flaky.Very, f"{__name__}.Flaky.Very"),
        ("ValueError", "ValueError"),
        ("builtins.ValueError", "ValueError"),
        ("a.b.Error", "a.b.Error"),
        ("f.<locals>.Error", "f.<locals>.Error"),
        ("signal", "signal"),
    ],
)
def test_an_exception_class_is_known_by_the_name_that_a_record_gives_it(kind, name):
    assert Retry(on=[kind]).on == (name,)


@pytest.mark.parametrize("name", ["max", "on", "new"])
def test_a_policy_cannot_be_changed(name):
    policy = Retry()

    with pytest.raises(AttributeError, match=name):
        setattr(policy, name, 9)
    with pytest.raises(AttributeError, match=name):
        delattr(policy, name)

    assert policy == Retry()


def test_policies_are_equal_if_they_say_the_same():
    assert Retry(on=[ValueError, "a.B"]) == Retry(on=("a.B", "ValueError", ValueError))
    assert len({Retry(backoff=60), Retry(backoff=60.0), Retry(max=3, backoff=60)}) == 1
    assert Retry() != Retry(4) and Retry() != Retry(interruptions=4) and Retry() != 3


@pytest.mark.parametrize("policy", POLICIES, ids=repr)
def test_a_policy_comes_back_as_it_was(policy):
    assert Retry.from_text(policy.to_text()) == Retry.parse(policy.to_text()) == policy
    assert (
        pickle.loads(pickle.dumps(policy)) == copy.copy(policy) == copy.deepcopy(policy) == policy
    )
    assert eval(repr(policy)) == policy


def test_the_text_has_max_and_what_is_not_as_it_is_by_default():
    assert Retry().to_text() == '{"max":3}'
    assert Retry(0, backoff=10, on=[OSError]).to_text() == '{"max":0,"on":["OSError"]}'
    assert json.loads(Retry(5, 60, 3, 0, [OSError], [75], 1, [EOFError]).to_text()) == {
        "max": 5,
        "backoff": 60,
        "factor": 3,
        "jitter": 0,
        "on": ["OSError"],
        "exit_codes": [75],
        "interruptions": 1,
        "not_on": ["EOFError"],
    }


def test_the_text_holds_characters_that_redis_can_hold():
    assert Retry(on=["Ärger", "x\udc80"]).to_text().isascii()


def test_a_person_may_write_less():
    for text, policy in [
        ("3", Retry()),
        (" 0 ", Retry(0)),
        ("{}", Retry()),
        ('{"backoff": 60}', Retry(3, 60)),
    ]:
        assert Retry.from_text(text) == Retry.parse(text) == policy


@pytest.mark.parametrize("text", NO_POLICY, ids=lambda text: ascii(text[:30]))
def test_text_that_is_no_policy_is_refused_from_a_person_and_overlooked_in_redis(text):
    with pytest.raises(InvalidInput):
        Retry.from_text(text)

    assert Retry.parse(text) is None


def test_the_refusal_of_text_names_what_is_wrong():
    for text, words in [
        ('{"tries": 3, "max": 3}', "'tries'"),
        ('{"jitter": 2}', "jitter is 2"),
        ("yes", "'yes'"),
    ]:
        with pytest.raises(InvalidInput, match=words):
            Retry.from_text(text)


def test_the_default_is_for_a_task_whose_field_says_nothing():
    default = Retry(9)

    assert Retry.of(None, default) is default
    assert Retry.of("5", default) == Retry(5)
    assert Retry.of("null", default) is None and Retry.of("junk", default) is None
    assert Retry.of(None, None) is None


def test_so_many_failures_are_followed_by_another_attempt():
    assert [Retry(2).allows(failures, failed()) for failures in range(4)] == [
        True,
        True,
        False,
        False,
    ]
    assert not Retry(0).allows(0, failed())


@pytest.mark.parametrize(
    ("policy", "record", "is_allowed"),
    [
        (Retry(on=[OSError]), {"error_type": "OSError"}, True),
        (Retry(on=[OSError]), {"error_type": "ValueError"}, False),
        (
            Retry(on=[OSError]),
            {"error_type": "test_retry.Flaky", "error_types": class_names(Flaky)},
            True,
        ),
        (
            Retry(on=[Flaky]),
            {"error_type": "test_retry.Flaky", "error_types": class_names(Flaky)},
            True,
        ),
        (
            Retry(on=["Flaky"]),
            {"error_type": "test_retry.Flaky", "error_types": class_names(Flaky)},
            True,
        ),
        (
            Retry(on=["other.Flaky"]),
            {"error_type": "test_retry.Flaky", "error_types": class_names(Flaky)},
            False,
        ),
        (
            Retry(on=[Exception]),
            {"error_type": "KeyboardInterrupt", "error_types": class_names(KeyboardInterrupt)},
            False,
        ),
        (Retry(on=["signal"]), {"error_type": "signal", "signal": "SIGKILL"}, True),
        (Retry(on=["signal"]), {"error_type": "memory", "signal": "SIGKILL"}, False),
        (Retry(on=[OSError]), {}, False),
        (Retry(on=[OSError]), {"error_type": None, "error_types": "OSError"}, False),
        (Retry(on=[OSError]), {"error_types": 3}, False),
        (Retry(on=[OSError]), {"error_types": [None, 3, ["OSError"]]}, False),
        (Retry(exit_codes=[75]), {"error_type": "exit", "exit_code": 75}, True),
        (Retry(exit_codes=[75]), {"error_type": "exit", "exit_code": 1}, False),
        (Retry(exit_codes=[255]), {"error_type": "exit", "exit_code": -1}, True),
        (Retry(exit_codes=[75]), {"error_type": "exit", "exit_code": "75"}, False),
        (Retry(exit_codes=[75]), {"error_type": "ValueError"}, False),
        (Retry(on=["exit"]), {"error_type": "exit", "exit_code": 1}, True),
        (Retry(on=[OSError], exit_codes=[75]), {"error_type": "exit", "exit_code": 75}, True),
        (Retry(on=[OSError], exit_codes=[75]), {"error_type": "OSError"}, True),
        (Retry(on=[OSError], exit_codes=[75]), {"error_type": "exit", "exit_code": 1}, False),
        (Retry(not_on=[OSError]), {"error_type": "OSError"}, False),
        (Retry(not_on=[OSError]), {"error_type": "ValueError"}, True),
        (Retry(not_on=["Flaky"]), {"error_types": class_names(Flaky)}, False),
        (Retry(not_on=["memory", "signal"]), {"error_type": "memory"}, False),
        (Retry(on=[OSError], not_on=[Flaky]), {"error_types": class_names(Flaky)}, False),
        (Retry(on=[OSError], not_on=[Flaky]), {"error_types": ["OSError"]}, True),
        (Retry(on=[OSError], not_on=[Flaky]), {"error_types": ["ValueError"]}, False),
        (Retry(exit_codes=[75], not_on=["exit"]), {"error_type": "exit", "exit_code": 75}, False),
        (Retry(), {"error_type": "result"}, False),
        (Retry(not_on=[OSError]), {"error_type": "result"}, False),
        (Retry(on=["result"]), {"error_type": "result"}, True),
        (Retry(), {"retry": "never"}, False),
        (Retry(on=["Fail"]), {"error_type": "Fail", "retry": "never"}, False),
        (Retry(), {}, True),
    ],
    ids=repr,
)
def test_a_failure_is_followed_by_another_attempt_if_the_policy_names_it(
    policy, record, is_allowed
):
    assert policy.allows(0, failed(**record)) is is_allowed


def test_the_names_of_a_class_are_with_module_and_without_the_nearest_first():
    assert class_names(FileNotFoundError) == ["FileNotFoundError", "OSError", "Exception"]
    assert class_names(Flaky.Very) == [f"{__name__}.Flaky.Very", "Flaky.Very", "Exception"]
    assert class_names(Flaky)[:4] == [f"{__name__}.Flaky", "Flaky", "ConnectionError", "OSError"]


def test_of_a_deep_family_the_twenty_nearest_names_are_told():
    kind = ValueError
    for number in range(50):
        kind = type(f"E{number}", (kind,), {})

    assert class_names(kind)[:3] == [f"{__name__}.E49", "E49", f"{__name__}.E48"]
    assert len(class_names(kind)) == 20


def test_each_wait_is_longer_than_the_one_before_and_none_longer_than_a_day():
    assert [Retry(backoff=10, jitter=0).delay(failures) for failures in range(4)] == [
        10,
        20,
        40,
        80,
    ]
    assert [Retry(backoff=5, factor=1, jitter=0).delay(failures) for failures in (0, 99)] == [5, 5]
    assert [Retry(jitter=0).delay(failures) for failures in (13, 14, 10_000)] == [81920, DAY, DAY]
    assert [Retry(backoff=0).delay(failures) for failures in (0, 10_000)] == [0, 0]


def test_a_wait_is_longer_or_shorter_by_the_jitter_at_most(monkeypatch):
    policy = Retry(backoff=100, factor=2, jitter=0.25)

    assert delays(policy, 0x00, monkeypatch) == [75, 150, 300, 600]
    assert delays(policy, 0xFF, monkeypatch) == [125, 250, 500, 1000]


def test_tasks_that_failed_together_come_back_apart():
    found = [Retry(backoff=100, jitter=0.1).delay(0) for _ in range(500)]

    assert 90 <= min(found) < 93 and 107 < max(found) <= 110


def test_interruptions_are_counted_apart_from_failures():
    assert [Retry(0, interruptions=2).allows_interruption(lost) for lost in range(4)] == [
        True,
        True,
        False,
        False,
    ]
    assert not Retry(interruptions=0).allows_interruption(0)
