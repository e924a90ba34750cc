"""Which tasks wait for each other."""

from __future__ import annotations

from random import Random

import pytest

from blueque.audit.circles import circles


def found(waits: dict[str, list[str]]) -> list[list[str]]:
    return sorted(sorted(group) for group in circles(waits))


def test_a_chain_is_no_circle_however_long():
    assert found({str(number): [str(number + 1)] for number in range(50_000)}) == []


def test_a_circle_is_found_however_long():
    size = 50_000
    (group,) = circles({str(number): [str((number + 1) % size)] for number in range(size)})

    assert len(group) == size


@pytest.mark.parametrize(
    ("waits", "expected"),
    [
        ({}, []),
        ({"a": ["a"]}, [["a"]]),
        ({"a": ["b"], "b": ["a"]}, [["a", "b"]]),
        ({"a": ["b", "c"], "b": ["d"], "c": ["d"]}, []),
        ({"x": ["a"], "a": ["b"], "b": ["a", "y"]}, [["a", "b"]]),
        ({"a": ["b"], "b": ["a", "c"], "c": ["d"], "d": ["c"]}, [["a", "b"], ["c", "d"]]),
        ({"a": ["b", "c"], "b": ["a"], "c": ["a"]}, [["a", "b", "c"]]),
    ],
)
def test_groups_of_tasks_that_wait_for_each_other_are_found(waits, expected):
    assert found(waits) == expected


@pytest.mark.parametrize("seed", range(20))
def test_two_tasks_are_in_one_group_if_each_waits_for_the_other(seed):
    random, tasks = Random(seed), [str(number) for number in range(12)]
    waits = {task: random.sample(tasks, random.randint(0, 2)) for task in tasks}
    reached = {task: set(waits[task]) for task in tasks}
    for _ in tasks:
        for task in tasks:
            reached[task] |= {far for near in reached[task] for far in waits[near]}
    expected = {
        frozenset(other for other in tasks if other in reached[task] and task in reached[other])
        for task in tasks
    }

    assert found(waits) == sorted(sorted(group) for group in expected if group)
