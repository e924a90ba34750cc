"""The labels of a task: what is a good one, and what it is as a field."""

from __future__ import annotations

import pytest

from blueque import InvalidInput, InvalidType, Task, TooLarge
from blueque.model import labels


def test_labels_that_are_not_given_are_no_fields():
    assert labels.fields() == {}


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


def test_tags_are_written_in_their_order_each_once():
    assert labels.fields(tags=["customer:17", "ü", "customer:17"]) == {"tags": "customer:17 ü"}
    assert labels.fields(tags=iter(["a"])) == {"tags": "a"}
    assert labels.fields(tags=[]) == {}
    assert labels.fields(tags={"c", "a", "b"}) == {"tags": "a b c"}
    assert labels.fields("A", ["b"]) == {"title": "A", "tags": "b"}


@pytest.mark.parametrize(
    ("tags", "words"),
    [
        ([""], "a tag takes 1 to 200 bytes, not 0"),
        (["x" * 201], "not 201"),
        (["a b"], "a space or a character that cannot be printed"),
        (["a\u00a0b"], "a space or a character that cannot be printed"),
        (["a\n"], "a space or a character that cannot be printed"),
        (["\udc80"], "is not a character"),
        ([str(number) for number in range(21)], "a task has 20 at most, not 21"),
    ],
)
def test_other_tags_are_refused(tags, words):
    with pytest.raises(InvalidInput, match=words) as refused:
        labels.fields(tags=tags)

    assert str(refused.value).startswith("tags: ")


@pytest.mark.parametrize("tags", ["customer:17", b"a", 5, [5], {"a": 1}.values(), {"a": 1}])
def test_tags_are_a_list_of_texts(tags):
    with pytest.raises(InvalidType, match="tags: "):
        labels.fields(tags=tags)


@pytest.mark.parametrize(
    ("context", "error", "words"),
    [
        ("trace", InvalidType, "it is a dict, not str"),
        ([1], InvalidType, "it is a dict, not list"),
        ({1: 2}, InvalidType, "it has the key 1, not a string"),
        ({"a": b"x"}, InvalidType, "bytes"),
        ({"a": float("nan")}, InvalidInput, "JSON"),
        ({"a": "x" * 65536}, TooLarge, "65,544 bytes"),
    ],
)
def test_another_context_is_refused(context, error, words):
    with pytest.raises(error, match=words) as refused:
        labels.fields(context=context)

    assert str(refused.value).startswith("context")


@pytest.mark.parametrize("text", ["", "[1]", "5", "{", "[" * 100_000])
def test_a_malformed_context_is_none(text):
    assert Task("t", {"context": text}).context is None


def test_a_context_counts_to_the_size_of_the_parameters():
    assert labels.bytes_left_for_parameters({}, 100) == 100
    assert labels.bytes_left_for_parameters({"context": '{"a":"ä"}'}, 100) == 90
    with pytest.raises(TooLarge, match="context takes 10 bytes; the limit is 9 bytes"):
        labels.bytes_left_for_parameters({"context": '{"a":"ä"}'}, 9)
