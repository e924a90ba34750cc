"""Names of lines: the same for the same needs, and read back as they were written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blueque.errors import InvalidInput, InvalidType
from blueque.model import lines
from blueque.model.lines import Needs

NAMES = st.from_regex(r"[a-z][a-z0-9.-]{0,10}", fullmatch=True)
LOCKS = st.text(min_size=1, max_size=30).filter(
    lambda name: "\0" not in name and name.isprintable()
)


@given(
    st.dictionaries(NAMES, st.integers(1, 2**40), max_size=4),
    st.none() | LOCKS,
    st.integers(1, 100),
)
def test_needs_are_read_as_they_were_written(resources, lock, limit):
    text = lines.write_needs(resources, lock, limit)
    expected = Needs(tuple(sorted(resources.items())), lock, limit if lock is not None else 1)
    assert lines.parse_needs(text) == expected
    assert lines.needs_of(lines.line_of("-7", text)) == expected
    assert lines.priority_of(lines.line_of("-7", text)) == -7


@given(NAMES, LOCKS, st.integers(-100, 100))
def test_the_name_of_a_line_holds_no_underscore(resource, lock, priority):
    assert "_" not in lines.line_of(str(priority), lines.write_needs({resource: 1}, lock))


def test_a_task_without_priority_and_needs_is_in_the_line_of_1_0_0():
    assert lines.line_of(None, None) == lines.line_of("0", "") == lines.DEFAULT


MEANINGLESS = [
    "gpu",
    "gpu=",
    "gpu=0",
    "gpu=-1",
    "gpu=x",
    "GPU=1",
    "lock:a=1,lock:b=1",
    "=1",
    ",",
    f"gpu={2**61}",
]


@pytest.mark.parametrize("text", MEANINGLESS)
def test_needs_that_make_no_sense_are_none(text):
    assert lines.parse_needs(text) is None


@pytest.mark.parametrize("priority", [-101, 101])
def test_a_priority_out_of_range_is_refused(priority):
    with pytest.raises(InvalidInput, match=str(priority)):
        lines.require_priority(priority)


def test_amounts_are_numbers_or_sizes():
    assert lines.require_resources({"gpu": 2, "memory": "8GiB"}) == {"gpu": 2, "memory": 8 * 2**30}


MANY = dict.fromkeys("abcdefghi", 1)


@pytest.mark.parametrize(
    "resources", [{"GPU": 1}, {"gpu": -1}, {"memory": "much"}, {"a_b": 1}, {1: 1}, MANY]
)
def test_bad_resources_are_refused(resources):
    with pytest.raises(InvalidInput):
        lines.require_resources(resources)


@pytest.mark.parametrize("resources", ["gpu=1", {"gpu": 0.5}, {"gpu": True}])
def test_resources_of_a_wrong_type_are_refused(resources):
    with pytest.raises(InvalidType):
        lines.require_resources(resources)


@pytest.mark.parametrize("lock", ["", "x" * 201, "a\0b", ("licence", 0), "\ud800"])
def test_a_bad_lock_is_refused(lock):
    with pytest.raises(InvalidInput):
        lines.require_lock(lock)


@pytest.mark.parametrize("lock", [1, ("a",), ("a", "b"), ("a", True), ["a", 1]])
def test_a_lock_of_a_wrong_type_is_refused(lock):
    with pytest.raises(InvalidType):
        lines.require_lock(lock)
