"""df.write.format("blueque") and SQL: each row once, whatever goes wrong; and what a user is told."""

from __future__ import annotations

from collections import Counter

import pytest
from pyspark.errors import PySparkException

from spark import mishaps
from spark.conftest import ROWS
from spark.exact import is_exact, pending
from spark.test_enqueue import Q


@pytest.fixture
def write(url, sources):
    def write(frame, queue=Q, mode="append", source="blueque", key="id", **options):
        options = {"url": url, "queue": queue, "key": key} | options
        frame.write.format(source).options(**options).mode(mode).save()

    return write


# Everywhere, without being told of it


def test_it_is_known_in_every_session_and_in_sql(spark, url, cli, write):
    other = spark.newSession()
    options = f"queue 'sql', url '{url}', key 'k', params 'parameters'"
    other.sql(
        f"create temporary view t (parameters string, k int) using blueque options ({options})"
    )
    other.sql("insert into t select concat('p', id), id from range(10)")
    other.sql("insert into t select concat('p', id), id from range(12)")
    write(other.range(3), "frame")

    assert pending(cli, "sql") == Counter(f"p{number}" for number in range(12))
    assert pending(cli, "frame") == Counter(f'{{"id":{number}}}' for number in range(3))


def test_what_is_refused_is_refused_before_there_is_a_job_in_a_few_lines(df, write, state):
    with pytest.raises(
        PySparkException, match="InvalidInput: mode 'overwrite' would mean to empty the queue"
    ) as refused:
        write(df, mode="overwrite", key="scene")
    with pytest.raises(PySparkException, match="InvalidInput: a key is needed: name the columns"):
        df.write.format("blueque").option("queue", Q).mode("append").save()

    assert len(str(refused.value).splitlines()) <= 9
    assert state() == {}


def test_a_row_that_is_refused_leaves_nothing_and_is_not_tried_again(df, write, state):
    with pytest.raises(
        PySparkException, match=r"row .*: the parameters take 33 bytes; the limit is 10 bytes"
    ):
        write(df, key="scene", max_bytes="10")

    assert state() == {}


# What goes wrong on the way


@pytest.mark.parametrize("act", ["raise", "kill"])
def test_a_task_of_spark_that_dies_midway_and_is_tried_again_doubles_nothing(
    df, write, cli, mishap, act
):
    mishap(act, "after create", 1)  # that the naive way fails this is in test_enqueue.py
    write(df, source="mishap", key="scene")

    assert mishaps.struck(cli) == 1
    assert is_exact(cli, ROWS)
