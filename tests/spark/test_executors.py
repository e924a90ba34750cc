"""executors.run: what workers return, and what they raise, for each thing."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from pyspark.errors import PySparkException

from blueque import SnapshotGone
from blueque.spark import executors


def double(number):
    return 2 * number, os.getpid()


def refuse(number):
    if number == 2:
        raise SnapshotGone("the-key")
    return number


def fail(number):
    raise ValueError(f"number {number}")


def die_at_first(marker):
    if not Path(marker).exists():
        Path(marker).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return "done"


def test_every_thing_is_worked_on_elsewhere_and_answers_are_in_order(spark):
    answers = executors.run(spark, double, [5, 3, 9, 1])

    assert [number for number, _ in answers] == [10, 6, 18, 2]
    assert os.getpid() not in {pid for _, pid in answers}
    assert executors.run(spark, double, []) == []


def test_our_errors_come_back_as_they_were(spark):
    with pytest.raises(SnapshotGone, match="the-key") as caught:
        executors.run(spark, refuse, [1, 2, 3])

    assert caught.value.key == "the-key"


def test_other_errors_come_back_in_the_words_of_spark(spark):
    with pytest.raises(PySparkException, match="ValueError: number 7"):
        executors.run(spark, fail, [7])


def test_a_worker_that_dies_is_replaced(spark, tmp_path):
    assert executors.run(spark, die_at_first, [str(tmp_path / "marker")]) == ["done"]
