"""What Spark calls of a writer, called without Spark: each object is pickled on its way, as Spark
does.
"""

from __future__ import annotations

import pickle
import uuid

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from blueque import (
    BluequeError,
    InvalidInput,
    InvalidType,
    OutcomeUnknown,
    RedisAway,
    RedisRefused,
    RunDropped,
    TooLarge,
    WrongRun,
)
from blueque.model import keys
from blueque.model.ids import id_of_run_key, octets_of
from blueque.producer.abandoned_runs import Leftovers
from blueque.spark import analytics, datasource, enqueueing, jobs
from spark.exact import is_exact

Q = "render"
SCHEMA = StructType().add("id", "long").add("scene", "string")


def batches(first=0, rows=2500, size=1000):
    """Yield rows as Spark does."""
    for start in range(first, first + rows, size):
        numbers = range(start, min(start + size, first + rows))
        yield pa.record_batch(
            {"id": list(numbers), "scene": [f"scene-{number}" for number in numbers]}
        )


@pytest.fixture
def options(url):
    return {"url": url, "queue": Q, "key": "id"}


def make(options):
    return datasource.writer(SCHEMA, options, False)


def write(writer, **rows):
    """Do what a task of Spark does, and return its message."""
    return pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(writer)).write(batches(**rows))))


def test_what_a_queue_cannot_do_is_refused_with_a_sentence(options):
    with pytest.raises(InvalidType, match="a DataFrame of Spark is needed, not builtins's list"):
        enqueueing.enqueue([1], Q, url=options["url"])
    with pytest.raises(
        InvalidType, match=r"a DataFrame is needed, as bs\.read returns it, not str"
    ):
        analytics.failures(Q)


@pytest.mark.parametrize("more", [{"run": "tonight"}, {}])
def test_a_row_that_is_refused_does_not_fail_its_task_which_would_be_tried_again_but_the_commit(
    options, client, more
):
    writer = make(options | {"max_bytes": "31", "params": "id,scene"} | more)
    messages = [write(writer, rows=500), write(writer, rows=1500)]

    with pytest.raises(
        TooLarge, match=r"row '.*1000.*': the parameters take 32 bytes; the limit is 31 bytes"
    ):
        writer.commit(messages)
    assert [record["state"] for record in client.get_runs(Q)] in ([], ["open"])


def test_a_commit_that_is_called_twice_commits_once(options, cli):
    for more in ({}, {"run": "tonight", "queue": "keyed"}):
        writer = make(options | more)
        message = write(writer)
        for _ in range(2):
            writer.commit([message])

        assert is_exact(cli, 2500, (options | more)["queue"])


def test_attempts_of_a_task_that_died_or_came_twice_double_no_key(options, cli):
    writer = make(options | {"key": "id,scene", "run": "tonight", "shards": "4"})
    with pytest.raises(ZeroDivisionError):
        writer.write(
            batch if batch["id"][0].as_py() < 2000 else 1 / 0 for batch in batches(rows=9000)
        )

    messages = [write(writer, rows=5000), write(writer, rows=5000)]
    writer.commit(messages)

    assert is_exact(cli, 5000)
    assert messages[1].report.new == 0 < messages[0].report.new <= 5000


def lose(cli, many):
    """Take tasks of the run back, as a failover to a replica that was behind does."""
    for task in cli.lrange(keys.line(Q, "0"), 0, many - 1):
        cli.lrem(keys.line(Q, "0"), 1, task)
        cli.delete(keys.task(task.decode() if isinstance(task, bytes) else task))
        cli.srem(keys.ledger(Q, "tonight", 0), uuid.UUID(task).bytes)


def test_a_run_that_has_lost_tasks_is_not_committed_before_they_are_written_again(options, cli):
    job = options | {"key": "id", "run": "tonight", "group": "g", "shards": "1"}
    writer = make(job)
    message = write(writer)
    lose(cli, 100)
    with pytest.raises(RunDropped, match="Redis has lost 100 of the tasks"):
        writer.commit([message])
    assert cli.hget(keys.group("g"), "state") == "open"

    again = make(job)
    again.commit([write(again)])

    assert is_exact(cli, 2500)
    assert cli.hget(keys.group("g"), "state") == "closed"


def test_to_overwrite_a_queue_and_to_write_a_stream_is_refused_in_few_lines(options, state):
    with pytest.raises(InvalidInput, match="mode 'overwrite' would mean to empty the queue first"):
        datasource.writer(SCHEMA, options, True)
    with pytest.raises(InvalidInput, match="a stream writes with foreachBatch") as refused:
        datasource.stream_writer(SCHEMA, options, False)

    assert state() == {}
    frames = 0
    way = refused.value.__traceback__
    while way is not None:
        frames, way = frames + 1, way.tb_next
    assert frames <= 3  # Spark shows all of that before the sentence
    assert refused.value.__suppress_context__ and refused.value.__cause__ is None


def test_who_still_writes_for_a_run_that_was_dropped_is_refused_even_if_it_is_made_anew(
    options, client, state
):
    options["run"] = "tonight"
    writer = make(options)
    message = write(writer)
    assert Leftovers(client.connections).drop(Q, "tonight")
    assert isinstance(write(writer).report.error, RunDropped)
    again = make(options)
    before = state()

    assert isinstance(write(writer).report.error, RunDropped)
    with pytest.raises(RunDropped):
        writer.commit([message])

    assert state() == before
    again.commit([])


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        (
            "An error\nTraceback (most recent call last):\n  File\nKeyError: 'x'\nSQLSTATE: 1",
            "KeyError: 'x'",
        ),
        (
            "An error\nTraceback (most recent call last):\n  File\n\tx\nmy.module.Odd: it\nand more",
            "Odd: it",
        ),
        ("An error\nTraceback (most recent call last):\n  File\nmy.Odd\n", "my.Odd"),
        ("An error\nmy.module.OddError: odd", "OddError: odd"),
        (
            "An error occurred while calling o7.save.\n: org.apache.spark.SparkException: Job aborted due to stage failure: "
            "Task 0 in stage 4.0 failed 4 times, most recent failure: Lost task 0.3 in stage 4.0 (TID 26) (localhost): "
            "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed).\n\tat org.apache",
            "Python worker exited unexpectedly (crashed).",
        ),
        (
            "[DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012\n== SQL ==",
            "[DIVIDE_BY_ZERO] Division by zero.",
        ),
        ("x" * 1000, "x" * jobs.MAX_REASON + "..."),
        ("", "Exception"),
    ],
)
def test_why_a_job_has_failed_is_one_sentence(said, sentence):
    assert jobs.reason(Exception(said)) == sentence


@pytest.mark.parametrize(
    "error",
    [
        TooLarge("row 'é'", 218, 100),
        WrongRun("tonight", "render", "its key is in use"),
        InvalidType("a value"),
        RedisRefused("OOM command not allowed"),
    ],
)
def test_an_error_of_ours_comes_whole_with_the_report_of_a_worker(options, error):
    def put(*given):
        raise error

    writer = make(options | {"run": "tonight"})
    writer._inner.put = put
    message = pickle.loads(pickle.dumps(writer.write([])))

    with pytest.raises(type(error)) as raised:
        writer.commit([message])
    assert (str(raised.value), vars(raised.value)) == (str(error), vars(error))


def test_a_frame_that_has_fewer_rows_when_it_is_written_again_does_not_hide_what_redis_has_lost(
    options, cli, client
):
    writer = make(options | {"run": "tonight", "key": "id"})._inner
    reports = [writer.write(batches(rows=5))]
    for task in [id_of_run_key(Q, "tonight", key) for key in ("3", "4")]:
        cli.lrem(keys.pending(Q), 1, task)
        cli.delete(keys.task(task))
        for shard in range(writer.record["shards"]):
            cli.srem(keys.ledger(Q, "tonight", shard), octets_of([task.encode()])[0])
    assert not writer.has_all(reports)
    reports = [writer.write(batches(rows=2))]

    assert writer.has_all(reports)
    with pytest.raises(RunDropped, match="lost 2 of the tasks"):
        writer.commit(reports)
    assert client.get_run(Q, "tonight")["state"] == "open"


def test_what_spark_has_tried_in_vain_is_known_by_its_name():
    for said, kind in [
        ("RedisAway: no Redis", RedisAway),
        ("OutcomeUnknown: no answer", OutcomeUnknown),
        ("Contended: changed under each of 9 attempts", BluequeError),
        ("Strange: x", None),
    ]:
        error = Exception(f"Traceback\nblueque.errors.{said}\n SQLSTATE: 38000")
        again = jobs.raised(error)

        assert again is None if kind is None else type(again) is kind
        if again is not None:
            assert str(again) == said.partition(": ")[2] and again.__cause__ is error
    assert jobs.raised(Exception("ValueError: x")) is None
