"""What a listener makes of a task process that has ended a task and waits for another."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

import pytest

from blueque.node.reuse import GROWTH, MOST_DESCRIPTORS, SPARED, Past, Reusable, Reuse, TaskProcess
from blueque.task_process import handshake
from blueque.task_process.handshake import Assignment, Handshake, Rest

PATH = "/spool/task/1"
MIB = 2**20
RESTS = Rest(PATH, 1.5, 100 * MIB, 10, 0, False)
PAST = Past(1, float("inf"), "", 1.0, 100 * MIB, 10, 100 * MIB)


@pytest.fixture
def ends() -> Iterator[tuple[int, int]]:
    """The ends of a handshake: that of the process, and that of its listener."""
    theirs, ours = handshake.make()
    yield theirs, ours
    for end in (theirs, ours):
        try:
            os.close(end)
        except OSError:  # the test has closed it
            pass


def process(ours: int, past: Past | None = None) -> Reusable:
    return Reusable(TaskProcess(os.getpid(), -1, ours, {}, "work", past), 100.0, "gpu=0")


def resting(ours: int, theirs: int, rest: Rest, past: Past | None) -> Reusable:
    reusable = process(ours, past)
    assert Handshake(theirs).rest(rest) and reusable.hear(PATH)
    return reusable


def test_a_large_task_does_not_travel_with_its_assignment(ends):
    theirs, ours = ends
    small = Assignment("/spool/t/1", {}, {}, task=("t", {"parameters": "\udc80"}))
    large = small._replace(task=("t", {"parameters": "x" * 16_000}))
    for assignment in (small, large):
        handshake.assign(ours, assignment)

    listener = Handshake(theirs)
    assert listener.assignment() == small
    assert listener.assignment() == small._replace(task=None)


def test_the_end_of_an_attempt_is_heard(ends):
    theirs, ours = ends
    assert Handshake(theirs).rest(RESTS)

    reusable = process(ours)

    assert reusable.hear(PATH)
    assert reusable.rest == RESTS


@pytest.mark.parametrize(
    "said",
    [
        json.dumps(RESTS._replace(path="/spool/task/2")).encode(),
        json.dumps(RESTS[:-1]).encode(),
        b"{}",
        b"7",
        b"\xff",
    ],
    ids=["another attempt", "too short", "an object", "a number", "no text"],
)
def test_what_is_not_the_end_of_this_attempt_is_not_heard(ends, said):
    """A child that the task has forked may have the end of the process, too."""
    theirs, ours = ends
    os.write(theirs, said)

    reusable = process(ours)

    assert not reusable.hear(PATH) and reusable.rest is None


def test_a_process_that_closes_its_end_takes_no_other_task(ends):
    theirs, ours = ends
    os.close(theirs)

    reusable = process(ours)

    assert not reusable.hear(PATH)
    assert reusable.why_not(None) == "it does not wait for one"


def test_a_process_without_a_listener_has_nobody_to_tell(ends):
    theirs, ours = ends
    end = Handshake(theirs)
    os.close(ours)

    assert not end.rest(RESTS)


def test_what_a_task_has_opened_in_place_of_our_end_gets_no_message_of_ours(ends, tmp_path):
    theirs, _ = ends
    end = Handshake(theirs)
    with open(tmp_path / "precious", "wb") as file:
        os.dup2(file.fileno(), theirs)

    assert not end.rest(RESTS)
    assert (tmp_path / "precious").read_bytes() == b""


MOST = int((1 + GROWTH) * PAST.memory + SPARED)


@pytest.mark.parametrize(
    ("change", "limit", "reason"),
    [
        ({}, None, None),
        ({"threads": 1}, None, "its task has left 1 thread"),
        ({"threads": 2}, None, "its task has left 2 threads"),
        ({"memory": MOST}, None, None),
        ({"memory": MOST + 1}, None, "its memory has grown from 104,857,600 to 224,395,265 bytes"),
        ({"descriptors": 10 + MOST_DESCRIPTORS}, None, None),
        (
            {"descriptors": 11 + MOST_DESCRIPTORS},
            None,
            "101 more files are open than after its first task",
        ),
        ({}, 200 * MIB, None),
        ({}, 200 * MIB - 2, "it uses 104,857,600 bytes of a memory_limit of 209,715,198"),
    ],
)
def test_a_process_that_leaks_takes_no_other_task(ends, change, limit, reason):
    theirs, ours = ends

    assert resting(ours, theirs, RESTS._replace(**change), PAST).why_not(limit) == reason


def test_what_its_first_task_keeps_is_no_leak(ends):
    theirs, ours = ends
    large = RESTS._replace(memory=10**12, descriptors=10_000)

    reusable = resting(ours, theirs, large, None)

    assert reusable.why_not(None) is None
    assert reusable.next().past == Past(1, 100.0, "gpu=0", 1.5, 10**12, 10_000, 10**12)


def test_each_further_task_counts_and_is_compared_with_the_first(ends):
    theirs, ours = ends
    rest = RESTS._replace(memory=1, descriptors=1, cpu_seconds=2.5)

    following = resting(ours, theirs, rest, PAST).next()

    assert following.past == PAST._replace(
        tasks=2, until=100.0, devices="gpu=0", cpu_seconds=2.5, resident=1
    )


@pytest.mark.parametrize(
    ("limit", "is_enough"), [(None, True), (200 * MIB, True), (200 * MIB - 2, False)]
)
def test_what_earlier_tasks_have_left_counts_against_the_limit_of_the_next(limit, is_enough):
    assert PAST.leaves_enough_of(limit) is is_enough


@pytest.mark.parametrize(
    ("said", "reuse"),
    [
        ((None, None), Reuse(1, float("inf"))),
        ((5, None), Reuse(5, float("inf"))),
        ((None, 60.0), Reuse(float("inf"), 60.0)),
        ((1, 60.0), Reuse(1, 60.0)),
    ],
)
def test_a_time_alone_is_for_any_number_of_tasks(said, reuse):
    assert Reuse.of(*said) == reuse
