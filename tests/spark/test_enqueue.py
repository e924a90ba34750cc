"""bs.enqueue: what comes of each row, once, whatever goes wrong. The naive way is shown to fail
where ours must not.
"""

from __future__ import annotations

import logging
import re
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

import blueque.spark as bs
from blueque import InvalidInput, InvalidType, JobFailed, RedisAway, Retry, TooLarge
from blueque.model import keys
from blueque.queries import groups
from blueque.spark import enqueueing, write_options
from blueque.spark.writer import Written
from spark import mishaps
from spark.conftest import ROWS
from spark.exact import forget_tasks, is_exact, pending

Q = "render"


@pytest.fixture
def enqueue(url):
    return lambda frame, queue=Q, **said: bs.enqueue(frame, queue, url=url, **said)


# What comes of a row


def test_a_row_becomes_a_task_with_all_that_its_columns_and_the_options_say(spark, client, enqueue):
    due = datetime(2100, 1, 1, tzinfo=UTC)
    rows = [("a", 1, due, 5), ("b", 2, None, -5)]
    frame = spark.createDataFrame(rows, "scene string, frame int, due timestamp, urgent int")

    done = enqueue(
        frame,
        key=["scene", "frame"],
        group="tonight",
        eta="due",
        priority="urgent",
        retry=Retry(2),
        time_limit="2h",
        resources={"gpu": 1},
        lock=("licence", 3),
        keep="2d",
    )

    assert done[:5] == (Q, "tonight", 2, 2, 2) and not done.is_replay and done.duplicates == 0
    ids = client.connections.read(("ZRANGE", keys.tasks(Q), 0, -1))[0]
    a, b = sorted(map(client.get_task, ids), key=lambda task: task.fields["key"])
    assert (a.parameters, a.status) == ({"scene": "a", "frame": 1}, "scheduled")
    assert (a.eta, a.fields["key"], a.fields["group"]) == (due.timestamp(), '["a","1"]', "tonight")
    assert (b.parameters, b.status, b.eta) == ({"scene": "b", "frame": 2}, "pending", None)
    assert b.fields["key"] == '["b","2"]'
    shared = {"retry": '{"max":2}', "time_limit": "7200", "needs": "gpu=1,lock:licence=3"}
    for task, priority in ((a, "5"), (b, "-5")):
        assert {**shared, "priority": priority}.items() <= task.fields.items()
    assert client.group("tonight").progress().record["keep"] == 2 * 86400


def test_one_column_of_text_that_is_named_is_what_the_task_gets(spark, client, enqueue):
    frame = spark.createDataFrame([("as it is",)], "line string")

    enqueue(frame, "left over", key="line")
    enqueue(frame, "text", key="line", params="line")
    enqueue(frame.select(F.lit("[1]").alias("line")), "json", key="line", json=True)

    assert [
        client.get_task(_only(client, queue)).parameters for queue in ("left over", "text", "json")
    ] == [{"line": "as it is"}, "as it is", [1]]


def _only(client, queue):
    (ids,) = client.connections.read(("LRANGE", keys.pending(queue), 0, -1))
    (task,) = ids
    return task


def test_columns_may_be_given_as_such_and_in_any_case(spark, client, enqueue):
    frame = spark.createDataFrame([("a", 1, "p")], "scene string, frame int, note string")
    said = {"keep": "1d"}

    enqueue(frame, "plain", key=F.col("scene"), params=["SCENE", F.col("frame")], **said)
    enqueue(
        frame,
        "made",
        key=["scene", F.col("frame") + 1],
        eta=F.lit(4e9),
        priority=-F.col("frame"),
        **said,
    )
    enqueue(frame, "replaced", key="scene", params=[F.upper("scene").alias("scene")], **said)
    enqueue(frame, "alone", key="scene", params=F.lower("note"), **said)
    enqueue(frame.withColumnRenamed("note", "a.b`c"), "odd", key="a.b`c", **said)

    def task(queue):
        (ids,) = client.connections.read(("ZRANGE", keys.tasks(queue), 0, -1))
        return client.get_task(ids[0])

    plain, made, replaced, alone, odd = map(task, ("plain", "made", "replaced", "alone", "odd"))
    assert (plain.parameters, plain.fields["key"]) == ({"SCENE": "a", "frame": 1}, "a")
    assert made.parameters == {"scene": "a", "frame": 1, "note": "p"}
    assert made.fields["key"] == '["a","2"]'
    assert (made.eta, made.fields["priority"]) == (4e9, "-1")
    assert (replaced.parameters, replaced.fields["key"]) == ({"scene": "A"}, "a")
    assert alone.parameters == "p"
    assert (odd.parameters["a.b`c"], odd.fields["key"]) == ("p", "p")


def count_calls(url):
    """Return a function of Spark that counts its calls in Redis, and returns its argument."""

    def count(number):
        import redis

        with redis.Redis.from_url(url) as cli:
            cli.incr("calls")
        return number

    return F.udf(count, "int").asNondeterministic()


def test_the_check_computes_the_frame_once(spark, url, cli, enqueue):
    frame = spark.range(0, 60, 1, 2).select(
        count_calls(url)("id").alias("k"), F.lit("x").alias("p")
    )

    assert enqueue(frame, key="k", group="g").new == 60
    assert cli.get("calls") == "60"
    enqueue(frame, key="k", group="without", check=False)
    assert cli.get("calls") == "120"

    with pytest.raises(InvalidInput):
        enqueue(frame, key="k", group="bad", params=[F.lit("x" * 99).alias("p")], max_bytes=10)
    assert spark.sparkContext._jsc.getPersistentRDDs().isEmpty()


def test_without_a_group_a_key_counts_in_the_queue_whoever_enqueues(spark, client, cli, enqueue):
    queue = client.get_queue(Q)
    first = queue.enqueue("here before", key="3")
    frame = spark.range(5).select(F.col("id"), F.lit(time.time() + 1000).alias("due"))

    done = enqueue(frame, key="id", eta="due", priority=2)

    assert (done.group, done.rows, done.new, done.duplicates) == (None, 5, 4, 1)
    assert not queue.enqueue("and after", key="4").is_new
    assert (cli.lrange(keys.pending(Q), 0, -1), cli.zcard(keys.scheduled(Q))) == ([first], 4)


def test_a_timestamp_of_the_last_century_is_a_time_that_is_past(spark, cli, enqueue):
    due = datetime(1985, 1, 1, tzinfo=UTC)
    frame = spark.createDataFrame([("a", due)], "scene string, due timestamp")

    assert enqueue(frame, key="scene", eta="due").new == 1
    assert (cli.llen(keys.pending(Q)), cli.zcard(keys.scheduled(Q))) == (1, 0)


def test_rows_that_make_no_task_for_their_key_is_that_of_another_are_counted_in_a_warning(caplog):
    to = write_options.Target(Q, "redis://localhost", ("camera",), "g")

    for written in ((40, 3, 3), (40, 3, 0), (40, 40, 40)):
        enqueueing._outcome(to, Written(*written), time.monotonic())

    warnings = [one.getMessage() for one in caplog.records if one.levelname == "WARNING"]
    assert warnings == [
        f"group g of queue {Q}: 37 of 40 rows have the key of another row, and made no task",
        f"group g of queue {Q}: every row had its task already, so nothing was written",
    ]


def test_a_frame_without_rows_is_a_group_without_tasks(spark, client, enqueue):
    empty = spark.createDataFrame([], "scene string, frame int")

    for said in ({"group": "named"}, {}):
        assert enqueue(empty, key="scene", **said)[2:5] == (0, 0, 0)
    assert client.group("named").progress().state == "ended"


def test_a_frame_that_was_written_makes_nothing_again_and_says_so(df, cli, enqueue, caplog):
    said = {"group": "keyed", "key": "scene"}
    first = enqueue(df.where("frame < 100"), **said)
    forget_tasks(cli)
    with caplog.at_level(logging.WARNING, "blueque"):
        again = enqueue(df.where("frame < 100"), **said)

    assert (first.new, *again[2:5], again.is_replay) == (100, 100, 100, 0, True)
    assert "group keyed of queue render: every row had its task already" in caplog.text
    assert pending(cli) == Counter()


# What is refused, here and in words of ours, and before anything is written


@pytest.mark.parametrize(
    ("said", "kind", "sentence"),
    [
        ({"key": None}, InvalidInput, "a key is needed: name the columns whose values tell each"),
        ({"key": "id"}, InvalidInput, "key: there is no column 'id'; there are 'scene', 'frame'"),
        ({"group": "a\0b"}, InvalidInput, r"the group name 'a\\x00b' holds a NUL character"),
        ({"key": 7}, InvalidType, "key: the name of a column, or a list of such, is needed"),
        ({"params": 7}, InvalidType, "params: the name of a column, or a list of such, is needed"),
        ({"retry": 1.5}, InvalidType, "retry"),
        ({"append": True}, InvalidInput, "option 'append' is for the tasks of a group"),
    ],
)
def test_what_cannot_be_meant_is_refused_without_a_job(df, enqueue, state, said, kind, sentence):
    with pytest.raises(kind, match=sentence):
        enqueue(df, **{"key": "scene"} | said)
    assert state() == {}


@pytest.mark.parametrize(
    ("columns", "said", "kind", "sentence"),
    [
        (
            ["if(id = 3000, null, id) as k", "id"],
            {},
            InvalidType,
            "key: column 'k' is null: 1 row, such as .*3000",
        ),
        (
            ["if(id < 2000, '', 'x') as k"],
            {},
            InvalidInput,
            "key: a key takes 1 to 1000 bytes: 2,000 rows, such as ''",
        ),
        (
            ["id as k", "repeat('x', int(id)) as p"],
            {"max_bytes": 3000, "params": "p"},
            TooLarge,
            "take 3,999 bytes; the limit is 3,000",
        ),
        (
            ["id as k", "repeat('\"', int(id)) as s", "1"],
            {"max_bytes": 5000},
            TooLarge,
            "take 8,021 bytes",
        ),
        (
            ["id as k", "1", "id * 1e12 as e"],
            {"eta": "e"},
            InvalidInput,
            "eta: column 'e' is not a time before",
        ),
        (
            ["id as k", "1", "id as e"],
            {"eta": "e"},
            InvalidInput,
            "eta: column 'e' is a time before the year 2000: Unix seconds, not a delay.: 3,999 rows",
        ),
        (
            ["id as k", "1", "int(id) as n"],
            {"priority": "n"},
            InvalidInput,
            "priority: column 'n' is not .*: 3,899 rows",
        ),
        (
            ["id as k", "if(id = 7, null, 'x') as p"],
            {"params": "p"},
            InvalidType,
            "params: column 'p' is null: 1 row",
        ),
    ],
)
def test_values_that_no_task_may_have_are_found_before_any_row_is_written(
    spark, enqueue, state, columns, said, kind, sentence
):
    frame = spark.range(0, 4000, 1, 2).selectExpr(*columns)

    with pytest.raises(kind, match=sentence):
        enqueue(frame, group="tonight", key="k", **said)
    assert state() == {}


def test_what_a_worker_has_refused_is_the_cause_where_rows_may_be_written_already(df, enqueue):
    with pytest.raises(
        JobFailed, match="bytes; the limit is 10 bytes; what was written stays"
    ) as failed:
        enqueue(df, key="scene", params=["scene"], group="tonight", max_bytes=10, check=False)

    assert isinstance(failed.value.__cause__, TooLarge) and failed.value.__cause__.limit == 10


def test_a_frame_that_cannot_be_computed_fails_in_a_sentence(spark, enqueue, request):
    ansi = "spark.sql.ansi.enabled"  # in Spark 3.5 it is not the default
    spark.conf.set(ansi, "true")
    request.addfinalizer(lambda: spark.conf.unset(ansi))
    frame = spark.range(4).selectExpr("id", "cast(1 / (id - 2) as timestamp) as due")
    sentence = r"^the Spark job for queue 'render' has failed: \[DIVIDE_BY_ZERO\] Division by zero.*; nothing was written$"
    with pytest.raises(JobFailed, match=sentence) as failed:
        enqueue(frame, key="id", eta="due")
    assert "\n" not in str(failed.value) and isinstance(failed.value.__cause__, PySparkException)


def test_redis_that_does_not_answer_is_said_at_once_and_by_us(df, monkeypatch):
    monkeypatch.setattr(write_options, "PATIENCE", 0.1)
    for said in ({}, {"group": "tonight", "check": False}):
        with pytest.raises(RedisAway, match="no Redis at"):
            bs.enqueue(df, Q, key="scene", url="redis://127.0.0.1:1/0", **said)


# What goes wrong on the way


@pytest.mark.parametrize("act", ["raise", "kill"])
def test_a_task_of_spark_that_dies_midway_and_is_tried_again_doubles_nothing(
    df, url, cli, enqueue, mishap, act
):
    mishap(act, "after chunk", 2, queue="naive")
    df.foreachPartition(mishaps.naive(url, "naive"))
    assert mishaps.struck(cli, "naive") == 1
    # the naive way doubles what was there
    assert sum(pending(cli, "naive").values()) == ROWS + 2 * mishaps.CHUNK
    cli.flushdb()

    mishap(act, "after enqueue_members", 1)
    done = enqueue(df, key="scene", group="tonight")

    assert mishaps.struck(cli) == 1
    assert is_exact(cli, ROWS) and done[2:5] == (ROWS, ROWS, ROWS)


def test_keys_of_the_queue_double_nothing_either_when_a_worker_dies(df, cli, enqueue, mishap):
    mishap("kill", "after create", 5)
    done = enqueue(df, key="scene")

    assert mishaps.struck(cli) == 1
    assert is_exact(cli, ROWS) and done.rows == ROWS


def test_the_same_frame_twice_at_once_doubles_nothing(df, url, cli, enqueue):
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: df.foreachPartition(mishaps.naive(url, "naive")), range(2)))
        assert sum(pending(cli, "naive").values()) == 2 * ROWS
        cli.flushdb()

        done = list(pool.map(lambda _: enqueue(df, key="scene", group="tonight"), range(2)))
        assert is_exact(cli, ROWS) and {(one.rows, one.tasks) for one in done} == {(ROWS, ROWS)}


def test_a_write_tried_again_when_its_tasks_are_done_and_deleted_makes_only_what_is_missing(
    df, url, client, cli, enqueue
):
    df.foreachPartition(mishaps.naive(url, "naive"))
    forget_tasks(cli, "naive")
    df.foreachPartition(mishaps.naive(url, "naive"))
    assert sum(pending(cli, "naive").values()) == ROWS  # the naive way makes all of them once more
    cli.flushdb()

    broken = df.withColumn("scene", F.expr(f"if(frame = {ROWS - 1}, null, scene)"))
    sentence = "key: column 'scene' is null in the row .*; what was written stays, and counts"
    with pytest.raises(JobFailed, match=sentence) as failed:
        enqueue(broken, key="scene", group="tonight", check=False)
    assert (failed.value.queue, failed.value.group) == (Q, "tonight")
    assert client.group("tonight").progress().state == "open"
    done = forget_tasks(cli)
    again = enqueue(df, key="scene", group="tonight")

    assert ROWS // 2 <= done < ROWS
    assert (again.new, again.tasks, sum(pending(cli).values())) == (ROWS - done, ROWS, ROWS - done)


# What is no frame that can be enqueued, and what Spark may refuse


@pytest.mark.parametrize(
    ("key", "maker"),
    [
        (F.monotonically_increasing_id, "monotonically_increasing_id"),
        (lambda: F.concat(F.lit("a"), F.expr("uuid()")), "uuid"),
        (lambda: (F.rand() * 1e9).cast("long"), "rand"),
    ],
)
def test_a_key_that_spark_makes_anew_with_each_try_is_refused(df, client, enqueue, key, maker):
    made = df.withColumn("id", key()).where("frame < 100").select("scene", F.col("id").alias("n"))
    words = f"is made by {maker}, again each time that Spark computes the frame"

    for frame, name in ((made, "n"), (made.cache(), ["scene", "n"]), (df, key())):
        with pytest.raises(InvalidInput, match=words):
            enqueue(frame, key=name, group="g")
    assert groups.load(client.connections, "g") is None
    made.unpersist()


def test_a_key_of_the_data_is_taken_whatever_chooses_its_rows(df, enqueue):
    place = "row_number() over (partition by scene order by other)"
    frame = (
        df.withColumn("other", F.monotonically_increasing_id())
        .withColumn("chosen", F.rand(1))
        .withColumn("place", F.expr(place))
        .where("place = 1 and chosen < 2")
        .select(F.upper("scene").alias("scene"))
    )

    assert enqueue(frame, key="scene", group="g").new == ROWS


def test_a_spark_that_keeps_no_frame_enqueues_all_the_same(df, enqueue, monkeypatch):
    def refuse(frame):
        raise PySparkException("PERSIST TABLE is not supported on serverless compute.")

    monkeypatch.setattr(type(df), "persist", refuse)

    assert enqueue(df, key="scene", group="g").new == ROWS


def test_the_rows_of_a_call_that_appends_are_its_own(spark, enqueue):
    said = {"key": "id", "group": "g"}
    enqueue(spark.range(100), **said)

    done = enqueue(spark.range(110), append=True, **said)

    assert (done.rows, done.new, done.duplicates, done.tasks) == (110, 10, 100, 110)
    assert enqueue(spark.range(110), append=True, **said)[2:5] == (110, 110, 0)


def test_a_column_that_differs_from_another_only_in_case_is_refused(spark, enqueue):
    frame = spark.createDataFrame([(1, 2, 3)], "a int, A int, b int")

    with pytest.raises(InvalidInput, match="column 'a': another one differs from it only in case"):
        enqueue(frame, key="a")
    assert enqueue(frame, key="b", params="b").new == 1


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("pandas", "not pandas's DataFrame: make one with spark.createDataFrame, "),
        (
            "pyspark",
            "not pyspark's DataFrame: make one with spark.createDataFrame, or with to_spark()",
        ),
        ("list", "not builtins's list: make one with spark.createDataFrame, "),
    ],
)
def test_what_is_no_frame_of_spark_is_refused_with_what_to_do(spark, enqueue, given, words):
    made = {
        "pandas": lambda: spark.range(1).toPandas(),
        "pyspark": lambda: spark.range(1).pandas_api(),
        "list": lambda: [{"scene": "a"}],
    }[given]()

    with pytest.raises(InvalidType, match=re.escape(f"a DataFrame of Spark is needed, {words}")):
        enqueue(made)
