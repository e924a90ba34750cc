"""What lists say of a task: its key, or its parameters."""

from __future__ import annotations

import json

import pytest

from blueque.model.task import Task
from blueque.text.redaction import HIDDEN, hider
from blueque.text.what import is_named, what


def task(parameters=None, **fields):
    if parameters is not None:
        fields |= {"parameters": json.dumps(parameters), "parameters_encoding": "json"}
    return Task("t", fields)


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"scene": "intro-17", "camera": 2}, "intro-17, camera=2"),
        ({"frame": 17, "scene": "intro"}, "frame=17, scene=intro"),
        ({"frames": [1, 2], "fast": True}, "frames=[1,2], fast=true"),
        ({"scene": "", "camera": 2}, "scene=, camera=2"),
        ({}, None),
        (["a.mov", 3, None], "a.mov, 3, null"),
        (17, "17"),
        ({"lr": 0.1 * 3, "warm-up": 1.0}, "lr=0.3, warm-up=1.0"),
        ("one\nline", "one line"),
        ({"token": "x"}, HIDDEN),
        ({"scene": "a", "db": "postgres://ada:pw@db"}, f"a, db=postgres://ada:{HIDDEN}@db"),
        ("x" * 100, "x" * 57 + "..."),
    ],
)
def test_a_task_without_a_name_is_told_by_the_beginning_of_its_parameters(parameters, words):
    assert what(task(parameters), hider()) == words


def test_parameters_that_are_null_say_nothing():
    assert what(Task("t", {"parameters": "null", "parameters_encoding": "json"}), hider()) is None


def test_text_that_is_not_json_stands_for_itself():
    assert what(Task("t", {"parameters": "feed/today.csv"}), hider()) == "feed/today.csv"


def test_the_key_is_better_than_parameters():
    named = task({"scene": "intro"}, key="scene-17")

    assert (what(named, hider()), is_named(named)) == ("scene-17", True)


def test_the_title_is_better_than_the_key():
    assert what(task(1, key="scene-17", title="Intro, take 2"), hider()) == "Intro, take 2"


def test_without_key_and_parameters_nothing_is_known():
    assert (what(task(), hider()), is_named(task())) == (None, False)
