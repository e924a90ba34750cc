"""The labels of a task: what is a good one, and what it is as a field."""

from __future__ import annotations

import pytest

from blueque import InvalidInput, InvalidType
from blueque.model import labels


def test_labels_that_are_not_given_are_no_fields():
    assert labels.fields() == {}


@pytest.mark.parametrize("title", ["a", "Render 4711, frame 3", "Größe 📦", "x" * 200, "[1]"])
def test_a_title_is_one_line_of_at_most_200_bytes(title):
    assert labels.fields(title=title) == {"title": title}


@pytest.mark.parametrize(
    ("title", "words"),
    [
        ("", "1 to 200 bytes, not 0"),
        ("x" * 201, "1 to 200 bytes, not 201"),
        ("ä" * 101, "not 202"),
        ("a\nb", "one line of printable text"),
        ("a\x1b[31m", "one line of printable text"),
        (" ", "one line of printable text"),
        ("a\udc80", "is not a character"),
    ],
)
def test_another_title_is_refused(title, words):
    with pytest.raises(InvalidInput, match=words) as refused:
        labels.fields(title=title)

    assert str(refused.value).startswith("title: ")


def test_a_title_is_text():
    with pytest.raises(InvalidType, match="title: it is text, not int"):
        labels.fields(title=5)  # type: ignore[arg-type]


def test_labels_are_taken_out_of_the_options_of_a_task():
    options = {"title": "A", "time_limit": 5}

    assert labels.take_fields(options) == {"title": "A"}
    assert options == {"time_limit": 5}
