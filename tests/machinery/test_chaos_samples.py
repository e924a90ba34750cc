"""The samples of chaos: what grows with each task is found, and what goes up and down is not."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable

import pytest
from chaos_samples import GROWTH, Usage

TASKS = 100  # of a short run


def leak_descriptors(kept: list[object]) -> None:
    kept.append(os.fdopen(os.dup(0)))


def leak_memory(kept: list[object]) -> None:
    mapped = mmap.mmap(
        -1, 100_000, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    )  # what this process has freed before is not used again
    mapped.write(bytes(100_000))
    kept.append(mapped)


def leak_nothing(kept: list[object]) -> None:
    os.close(os.dup(0))


@pytest.mark.parametrize(
    ("leak", "found"),
    [(leak_descriptors, ["descriptors"]), (leak_memory, ["memory"]), (leak_nothing, [])],
)
def test_what_a_process_keeps_of_each_task_is_found(
    leak: Callable[[list[object]], None], found: list[str]
) -> None:
    usage, kept = Usage(), list[object]()

    for task in range(TASKS):
        leak(kept)
        usage.processes("slots", [os.getpid()], task)
    for each in kept:
        each.close()  # type: ignore[attr-defined]

    wrong = usage.wrong()
    assert [sentence.partition(" of ")[0] for sentence in wrong] == found, wrong


def test_what_goes_up_and_down_has_not_grown() -> None:
    usage = Usage()

    for task in range(TASKS):
        usage.take("Redis", "keys", task, 300 + (task % 10) * 20)

    assert usage.wrong() == []
    ((*_, slope),) = usage.rows()
    assert abs(slope) < 1000 * GROWTH["keys"] / TASKS


def test_what_grew_at_first_alone_has_not_grown() -> None:
    usage = Usage()

    for task in range(TASKS):
        usage.take("page", "memory", task, min(task, TASKS // 2) * (1 << 20))

    assert usage.wrong() == []
    ((*_, last, slope),) = usage.rows()
    assert (last, slope) == (50 << 20, 0.0)
