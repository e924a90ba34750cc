"""What Spark calls of a writer, called without Spark: each object is pickled on its way, as Spark
does.
"""

from __future__ import annotations

import multiprocessing
import pickle

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from blueque import (
    BluequeError,
    InvalidInput,
    InvalidType,
    NoSuchGroup,
    OutcomeUnknown,
    RedisAway,
    RedisRefused,
    TooLarge,
    WrongGroup,
)
from blueque.model import keys
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


@pytest.mark.parametrize("more", [{"group": "tonight"}, {}])
def test_a_row_that_is_refused_does_not_fail_its_task_which_would_be_tried_again_but_the_commit(
    options, cli, more
):
    writer = make(options | {"max_bytes": "31", "params": "id,scene"} | more)
    messages = [write(writer, rows=500), write(writer, rows=1500)]

    with pytest.raises(
        TooLarge, match=r"row '.*1000.*': the parameters take 32 bytes; the limit is 31 bytes"
    ):
        writer.commit(messages)
    assert cli.hget(keys.group("tonight"), "state") in (None, "open")


def test_a_commit_that_is_called_twice_commits_once(options, cli):
    for more in ({}, {"group": "tonight", "queue": "keyed"}):
        writer = make(options | more)
        message = write(writer)
        for _ in range(2):
            writer.commit([message])

        assert is_exact(cli, 2500, (options | more)["queue"])


def test_attempts_of_a_task_that_died_or_came_twice_double_no_key(options, cli):
    writer = make(options | {"key": "id,scene", "group": "tonight"})
    with pytest.raises(ZeroDivisionError):
        writer.write(
            batch if batch["id"][0].as_py() < 2000 else 1 / 0 for batch in batches(rows=9000)
        )

    messages = [write(writer, rows=5000), write(writer, rows=5000)]
    writer.commit(messages)

    assert is_exact(cli, 5000)
    assert messages[1].report.new == 0 < messages[0].report.new <= 5000


def test_four_processes_that_write_the_same_rows_make_each_task_once(options, cli):
    writer, context = make(options | {"group": "tonight"}), multiprocessing.get_context("fork")
    meeting, messages = context.Barrier(4), context.Queue()

    def race():
        meeting.wait(60)
        messages.put(write(writer))

    racers = [context.Process(target=race) for _ in range(4)]
    for racer in racers:
        racer.start()
    found = [messages.get(timeout=60) for _ in racers]
    for racer in racers:
        racer.join()
    writer.commit(found)

    assert [message.report.error for message in found] == [None] * 4
    assert sum(message.report.new for message in found) == 2500
    assert is_exact(cli, 2500)


def lose(cli, tasks):
    """Take members of the group back, as a failover to a replica that was behind does."""
    for task in tasks:
        cli.lrem(keys.line(Q, "0"), 1, task)
        cli.lrem(keys.pending(Q), 1, task)
        cli.delete(keys.task(task))
        cli.srem(keys.open_members("tonight"), task)
        cli.zrem(keys.members("tonight"), task)


def test_a_group_that_has_lost_tasks_is_not_closed_before_they_are_written_again(options, cli):
    job = options | {"group": "tonight"}
    writer = make(job)
    message = write(writer)
    lose(cli, cli.zrange(keys.members("tonight"), 0, 99))
    with pytest.raises(WrongGroup, match="it has 2,400 tasks, 2,500 are expected: put all"):
        writer.commit([message])
    assert cli.hget(keys.group("tonight"), "state") == "open"

    again = make(job)
    again.commit([write(again)])

    assert is_exact(cli, 2500)
    assert cli.hget(keys.group("tonight"), "state") == "closed"


def test_new_keys_for_a_group_that_is_closed_are_refused_and_known_ones_are_not(options, cli):
    job = options | {"group": "tonight"}
    writer = make(job)
    writer.commit([write(writer)])

    again = make(job)
    again.commit([write(again)])
    late = make(job)
    with pytest.raises(WrongGroup, match="it is closed"):
        late.commit([write(late, rows=2501)])
    more = make(job | {"append": "true"})
    more.commit([write(more, rows=2501)])

    assert is_exact(cli, 2501)
    assert cli.hget(keys.group("tonight"), "state") == "closed"


def test_a_group_that_another_program_has_opened_is_left_open_and_what_it_loses_is_found(
    options, cli, client
):
    group = client.group("tonight").open()
    writer = make(options | {"group": "tonight"})
    writer.commit([message := write(writer)])
    assert (group.progress().state, group.progress().members) == ("open", 2500)

    lose(cli, cli.zrange(keys.members("tonight"), 0, 6))
    with pytest.raises(WrongGroup, match="it has 2,493 tasks, 2,500 are expected: put all"):
        writer.commit([message])


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


def test_who_still_writes_for_a_group_that_was_cancelled_or_deleted_is_refused(
    options, client, state
):
    options["group"] = "tonight"
    writer, group = make(options), client.group("tonight")
    group.cancel()
    assert isinstance(write(writer).report.error, WrongGroup)
    client.connections.read(("DEL", keys.group("tonight")))
    before = state()

    message = write(writer)

    assert isinstance(message.report.error, NoSuchGroup)
    with pytest.raises(NoSuchGroup):
        writer.commit([message])
    assert state() == before


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
        WrongGroup("tonight", "it is closed"),
        InvalidType("a value"),
        RedisRefused("OOM command not allowed"),
    ],
)
def test_an_error_of_ours_comes_whole_with_the_report_of_a_worker(options, error):
    def put(*given):
        raise error

    writer = make(options | {"group": "tonight"})
    writer._inner.put = put
    message = pickle.loads(pickle.dumps(writer.write(batches(rows=1))))

    with pytest.raises(type(error)) as raised:
        writer.commit([message])
    assert (str(raised.value), vars(raised.value)) == (str(error), vars(error))


def test_a_frame_that_has_fewer_rows_when_it_is_written_again_does_not_hide_what_redis_has_lost(
    options, cli, client
):
    writer = make(options | {"group": "tonight"})._inner
    reports = [writer.write(batches(rows=5))]
    lose(cli, [task.decode() for task in writer.opened.ids_of([b"3", b"4"])])
    assert not writer.has_all(reports)
    reports = [writer.write(batches(rows=2))]

    assert writer.has_all(reports)
    with pytest.raises(WrongGroup, match="it has 3 tasks, 5 are expected"):
        writer.commit(reports)
    assert client.group("tonight").progress().state == "open"


def test_what_spark_has_tried_in_vain_is_known_by_its_name():
    for said, kind in [
        ("RedisAway: no Redis", RedisAway),
        ("OutcomeUnknown: no answer", OutcomeUnknown),
        ("Contended: changed the keys at each of 9 tries", BluequeError),
        ("Strange: x", None),
    ]:
        error = Exception(f"Traceback\nblueque.errors.{said}\n SQLSTATE: 38000")
        again = jobs.raised(error)

        assert again is None if kind is None else type(again) is kind
        if again is not None:
            assert str(again) == said.partition(": ")[2] and again.__cause__ is error
    assert jobs.raised(Exception("ValueError: x")) is None
