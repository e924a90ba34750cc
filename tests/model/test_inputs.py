"""The results that a task is given, as JSON."""

from __future__ import annotations

from blueque.model import inputs


def test_results_are_in_the_order_of_the_parents_and_others_come_last():
    packed = {"c": 'j{"n": 1.50}', "x": "tlast", "a": 'thas "quotes"'}

    text = inputs.to_json(packed, ["a", "b", "c"])

    assert text == '{"a": "has \\"quotes\\"", "c": {"n": 1.50}, "x": "last"}'


def test_there_are_all_results_or_none():
    assert inputs.to_json({"a": "j1", "b": inputs.LEFT}, ["a", "b"]) is None
