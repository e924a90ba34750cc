"""df.write.format("blueque") and SQL: all rows of a frame at once or none, whatever goes wrong; and
what a user is told.
"""

from __future__ import annotations

import json
from collections import Counter

import pytest
from pyspark.errors import PySparkException
from transactions import protocol

import blueque.spark as bs
from blueque import JobFailed, RedisAway
from blueque.model import keys
from spark import mishaps
from spark.conftest import ROWS
from spark.exact import is_exact, leftovers, pending
from spark.test_enqueue import Q


@pytest.fixture
def write(url, sources):
    def write(frame, queue=Q, mode="append", source="blueque", **options):
        frame.write.format(source).options(**{"url": url, "queue": queue} | options).mode(
            mode
        ).save()

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
        write(df, mode="overwrite")
    with pytest.raises(PySparkException, match="'checkpointLocation' is for streams"):
        write(df, checkpointLocation="checkpoints/a")

    assert len(str(refused.value).splitlines()) <= 9
    assert state() == {}


def test_a_row_that_is_refused_leaves_nothing_and_is_not_tried_again(df, write, state):
    with pytest.raises(
        PySparkException, match=r"row .*: the parameters take 33 bytes; the limit is 10 bytes"
    ):
        write(df, max_bytes="10")

    assert state() == {keys.QUEUES: {Q: 0.0}}


def test_rows_are_taken_in_the_order_of_the_frame(spark, cli, write):
    write(spark.range(0, 5000, 1, 3).coalesce(2))

    ids = cli.lrange(keys.pending(Q), 0, -1)[::-1]
    assert [
        json.loads(cli.hget(keys.task(task), "parameters"))["id"] for task in ids[::500]
    ] == list(range(0, 5000, 500))


# What goes wrong on the way


@pytest.mark.parametrize("act", ["raise", "kill"])
def test_a_task_of_spark_that_dies_midway_and_is_tried_again_doubles_nothing(
    df, write, cli, mishap, act
):
    mishap(act, "after stage", 1)  # that the naive way fails this is in test_enqueue.py
    write(df, source="mishap")

    assert mishaps.struck(cli) == 1
    assert is_exact(cli, ROWS)


def test_nothing_is_visible_before_all_is_decided_and_nothing_is_left_when_it_is_not(
    df, write, cli, mishap
):
    mishap("raise", "before commit_run")
    with pytest.raises(PySparkException, match="RuntimeError: struck"):
        write(df, source="mishap")

    assert mishaps.struck(cli) == 1
    assert set(cli.keys("*")) == {mishaps.key(Q), keys.QUEUES}


def test_a_commit_that_fails_midway_is_finished_by_a_second_run_and_aborts_nothing(
    df, write, cli, mishap, client
):
    mishap("raise", "after publish", 3)  # each of its steps is in test_killed.py
    with pytest.raises(PySparkException, match="RuntimeError: struck"):
        write(df, source="mishap", run="tonight")  # Spark aborts now
    assert client.get_run(Q, "tonight")["state"] == "committing"
    mishaps.forget(cli)
    write(df, run="tonight")

    assert is_exact(cli, ROWS)
    assert (
        client.get_run(Q, "tonight").items()
        >= {"state": "committed", "rows": ROWS, "tasks": ROWS}.items()
    )


def test_bs_enqueue_finishes_what_was_decided_when_its_commit_fails(df, cli, mishap, url):
    mishap("raise", "after publish", 2)
    done = bs.enqueue(df, Q, url=url)

    assert mishaps.struck(cli) == 1
    assert is_exact(cli, ROWS) and done[2:5] == (ROWS, ROWS, ROWS)


@pytest.mark.parametrize(
    ("said", "advice"),
    [
        ({"run": "tonight"}, "the same again under this run settles it"),
        ({}, "see what `blueque runs"),
    ],
)
def test_bs_enqueue_does_not_say_that_nothing_is_visible_where_nobody_can_know(
    df, url, monkeypatch, said, advice
):
    def publish(*given):
        raise RedisAway("no Redis there")

    monkeypatch.setattr(protocol, "publish", publish)

    with pytest.raises(
        JobFailed, match="has failed: no Redis there; whether it is decided is not known"
    ) as failed:
        bs.enqueue(df.limit(10), Q, url=url, **said)

    assert advice in str(failed.value)
    assert isinstance(failed.value.__cause__, RedisAway)


@pytest.mark.parametrize("run", [None, "tonight"])
def test_bs_enqueue_says_in_a_sentence_why_nothing_is_visible_and_discards_what_was_staged(
    df, cli, mishap, url, run
):
    mishap("raise", "after stage", 2, again=True)
    with pytest.raises(
        JobFailed, match="has failed: RuntimeError: struck; nothing of it is visible"
    ):
        bs.enqueue(df, Q, url=url, run=run)

    assert leftovers(cli) == []
    assert len(cli.keys("blueque_run_*")) == (run is not None)
