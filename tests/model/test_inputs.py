"""The results that a task is given, as JSON."""

from __future__ import annotations

import json

import pytest

from blueque.model import inputs


def test_results_are_in_the_order_of_the_parents_and_others_come_last():
    packed = {"c": 'j{"n": 1.50}', "x": "tlast", "a": 'thas "quotes"'}

    text = inputs.to_json(packed, ["a", "b", "c"])

    assert text == '{"a": "has \\"quotes\\"", "c": {"n": 1.50}, "x": "last"}'


@pytest.mark.parametrize(
    ("result", "encoding", "value"),
    [
        ("text", None, "text"),
        ("1", None, "1"),
        ('"text"', "json", "text"),
        ("[1, null]", "json", [1, None]),
        ("no JSON", "json", "no JSON"),
        ("", "json", ""),
        (None, None, ""),
        ("Gr\u00fc\u00dfe \udcff", None, "Gr\u00fc\u00dfe \udcff"),
    ],
)
def test_a_result_is_as_the_task_has_returned_it(result, encoding, value):
    packed = inputs.pack(result, encoding)

    assert json.loads(inputs.to_json({"a": packed}, []) or "") == {"a": value}
    assert inputs.size_of(packed) == len((result or "").encode("utf-8", "surrogateescape"))


def test_there_are_all_results_or_none():
    assert inputs.to_json({"a": "j1", "b": inputs.LEFT}, ["a", "b"]) is None
