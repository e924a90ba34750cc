"""spark.read.format("blueque") and bs.read: which rows there are, and what is in them."""

from __future__ import annotations

import pickle

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

import blueque.spark as bs
from blueque import InvalidInput, InvalidType
from blueque.model import keys
from blueque.model.columns import DEFAULT_FIELDS
from spark.seeds import NODE, NOON, seed, task_id


def rows(frame):
    """Return the rows as dicts, in the order of their ids; times as Unix seconds, whatever the time
    zone here.
    """
    columns = [
        (F.unix_micros(name) / 1e6).alias(name) if type_ == "timestamp" else F.col(name)
        for name, type_ in frame.dtypes
    ]
    return sorted(
        (row.asDict() for row in frame.select(*columns).collect()),
        key=lambda row: row.get("task_id") or "",
    )


def listed(frame):
    return sorted((row.task_id, row.listed_as, row.status) for row in frame.collect())


@pytest.fixture
def queue(client):
    return client.get_queue("render")


@pytest.fixture
def run(client):
    """Have a task run and end."""

    def run(**end):
        task = client.get_listener("render").listen()
        processor = client.get_processor(task)
        processor.start(4711)
        if "result" in end:
            processor.complete(end["result"])
        elif "error" in end:
            processor.fail(end["error"])
        return task.id

    return run


def test_a_task_of_any_status_is_a_row(spark, url, client, queue, run):
    ids = {"complete": queue.enqueue("a")}
    run(result="done")
    ids["failed"] = queue.enqueue("b")
    run(error="broken")
    ids["started"] = queue.enqueue("c")
    run()
    ids["reserved"] = queue.enqueue("d")
    client.get_listener("render").listen()
    ids["cancelled"] = queue.enqueue("e")
    queue.cancel(ids["cancelled"])
    ids["pending"] = queue.enqueue("f")
    ids["scheduled"] = queue.schedule("g", 4e9)
    urgent = queue.enqueue("h", priority=5)

    found = listed(bs.read(spark, "render", url=url))

    assert found == sorted(
        [(id_, status, status) for status, id_ in ids.items()] + [(urgent, "pending", "pending")]
    )


def test_columns_have_types_and_times_are_in_utc(spark, url, client, queue, run):
    task = client.get_task(queue.enqueue({"scene": "Ä"}, key="k-1", priority=3))
    run(result=[1, 2])
    task = client.get_task(task.id)

    frame = bs.read(spark, "render", url=url)

    assert frame.columns == list(DEFAULT_FIELDS)
    types = dict(frame.dtypes)
    assert (types["pid"], types["attempts"], types["priority"]) == ("bigint", "int", "int")
    assert {types[name] for name in ("created", "updated", "started", "finished", "eta")} == {
        "timestamp"
    }
    (row,) = rows(frame)
    assert row == {
        "task_id": task.id,
        "queue": "render",
        "status": "complete",
        "parameters": '{"scene":"Ä"}',
        "result": "[1,2]",
        "error": None,
        "error_type": None,
        "node": task.node,
        "pid": 4711,
        "attempts": 1,
        "priority": 3,
        "key": "k-1",
        "group": None,
        "created": pytest.approx(task.created, abs=1e-6),
        "updated": pytest.approx(task.updated, abs=1e-6),
        "started": pytest.approx(task.started, abs=1e-6),
        "finished": pytest.approx(task.finished, abs=1e-6),
        "eta": None,
        "listed_as": "complete",
    }


def test_ids_are_of_one_instant_and_what_is_told_of_them_is_later(spark, url, queue):
    complete = seed(url, "render", 3)
    failed = seed(url, "render", 3, "failed", first=3)
    frame = bs.read(spark, "render", ["complete", "failed"], url=url)

    queue.requeue(failed[0])
    queue.enqueue("later")
    seed(url, "render", 5, first=6)

    assert listed(frame) == sorted(
        [(task, "complete", "complete") for task in complete]
        + [(failed[0], "failed", "pending")]
        + [(task, "failed", "failed") for task in failed[1:]]
    )


def test_several_queues_are_read_as_one_whatever_their_names(spark, url):
    names = ["render", 'a,b "c"', '["x"]', "größe"]
    for number, name in enumerate(names):
        seed(url, name, 2, first=2 * number)

    found = bs.read(spark, names, "complete", url=url, fields=["task_id", "queue"])

    assert [(row["task_id"], row["queue"]) for row in rows(found)] == sorted(
        (task_id(number), names[number // 2]) for number in range(8)
    )


def test_partitions_share_out_the_tasks(spark, url):
    ids = seed(url, "render", 2500)
    seed(url, "render", 7, "failed", first=2500)

    frame = bs.read(spark, "render", ("complete", "failed"), ["task_id"], partitions=5, url=url)

    sizes = [
        row["count"]
        for row in frame.groupBy(F.spark_partition_id().alias("part")).count().collect()
    ]
    assert len(sizes) == 6 and max(sizes) == 502
    found = [row.task_id for row in frame.collect()]
    assert len(found) == 2507 and {*ids} < {*found} and len({*found}) == 2507


def test_only_the_fields_asked_for_are_there_in_that_order(spark, url):
    (task,) = seed(url, "render", 1)

    frame = bs.read(spark, "render", "complete", ["finished", "status", "other"], url=url)

    assert frame.columns == ["finished", "status", "other"]
    ((finished, status, other),) = [tuple(row.values()) for row in rows(frame)]
    assert (finished, status) == (NOON, "complete")
    assert '"memory_peak":"52428800"' in other and task not in frame.columns


def test_tasks_of_1_0_0_and_foreign_records_break_nothing(spark, url, cli):
    ours = seed(url, "render", 2)
    cli.hset(
        keys.task("of-1.0.0"),
        mapping={
            "status": "complete",
            "queue": "render",
            "parameters": "plain",
            "result": "ok",
            "created": "1.5",
            "updated": f"{NOON!r}",
            "node": "old host_7",
            "pid": "12",
        },
    )
    cli.hset(
        keys.task("odd"),
        mapping={
            "status": "complete",
            "queue": "render",
            "pid": "none",
            "created": "yesterday",
            "finished": "1e300",
            "attempt": "",
            "result": b"\xff\xfe",
            "mine": "x",
        },
    )
    cli.set(keys.task("text"), "no hash")
    cli.lpush(keys.complete("render"), "of-1.0.0", "odd", "text", "gone", b"\xc3\x28")

    found = {row["task_id"]: row for row in rows(bs.read(spark, "render", "complete", url=url))}

    assert {*found} == {*ours, "of-1.0.0", "odd"}
    assert (
        found["of-1.0.0"]["result"],
        found["of-1.0.0"]["created"],
        found["of-1.0.0"]["finished"],
    ) == ("ok", 1.5, None)
    odd = found["odd"]
    assert (odd["pid"], odd["created"], odd["finished"], odd["attempts"]) == (
        None,
        None,
        None,
        None,
    )
    assert odd["result"] == "\\xff\\xfe"


def test_a_task_that_is_gone_is_a_row_of_nothing_but_its_id_if_that_is_wanted(spark, url, cli):
    (there, gone) = seed(url, "render", 2)
    cli.delete(keys.task(gone))

    frame = bs.read(
        spark, "render", "complete", ["task_id", "status", "listed_as"], missing="null", url=url
    )

    assert sorted(map(tuple, frame.collect())) == sorted(
        [(there, "complete", "complete"), (gone, None, "complete")]
    )


@pytest.mark.parametrize(
    ("wish", "error", "words"),
    [
        ({"fields": ["task_id", "wait"]}, InvalidInput, "there is no column 'wait'"),
        ({"fields": "task_id"}, InvalidType, "names of columns"),
        ({"status": "done"}, InvalidInput, "there is no status 'done'"),
        ({"status": []}, InvalidInput, "no status"),
        ({"queue": []}, InvalidInput, "no queue"),
        ({"queue": "a\0b"}, InvalidInput, "NUL"),
        ({"missing": "keep"}, InvalidInput, "missing is"),
        ({"partitions": 0}, InvalidInput, "partitions is 0"),
        ({"keep": 0}, InvalidInput, "keep is 0"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_spark_hears_of_it(wish, error, words):
    with pytest.raises(error, match=words):
        bs.read(None, **{"queue": "render", **wish})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"queue": "render", "feilds": "task_id"},
            "InvalidInput: there is no option 'feilds' for reading",
        ),
        ({"queue": "render", "status": "done"}, "InvalidInput: there is no status 'done'"),
        (
            {"queue": "render", "partitions": "many"},
            "InvalidInput: partitions is a whole number, not 'many'",
        ),
        ({"status": "failed"}, "InvalidInput: the option 'queue' is needed"),
    ],
)
def test_options_are_refused_when_spark_loads(spark, sources, options, words):
    with pytest.raises(PySparkException, match=words):
        spark.read.format("blueque").options(**options).load()


def test_sql_reads_a_queue_and_a_schema_of_ones_own_chooses_the_columns(spark, url, sources):
    seed(url, "render", 4, "failed", spread=3.0)
    options = f"url '{url}', queue 'render', status 'failed'"
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW failures USING blueque OPTIONS ({options})")

    (row,) = spark.sql(
        "SELECT error_type, count(*) AS n, min(node) AS node FROM failures GROUP BY error_type"
    ).collect()
    assert (row.error_type, row.n, row.node) == ("ValueError", 4, NODE)

    reading = spark.read.format("blueque").option("url", url).option("queue", "render")
    assert reading.schema("task_id string, pid bigint").load().count() == 4
    with pytest.raises(PySparkException, match="the column 'pid' is bigint, not int"):
        reading.schema("task_id string, pid int").load().count()


def test_a_queue_that_redis_does_not_know_is_named_in_a_warning(spark, url, caplog):
    seed(url, "render", 3)

    with caplog.at_level("WARNING", "blueque"):
        assert bs.read(spark, ["render", "rendr", "r\x1b"], url=url).count() == 3

    assert [record.getMessage() for record in caplog.records] == [
        "Redis has no queue 'rendr', 'r\\x1b': its table has no rows until tasks are enqueued there"
    ]


def test_a_snapshot_that_has_expired_is_an_error_and_not_an_empty_table(spark, url, cli):
    seed(url, "render", 10)
    frame = bs.read(spark, "render", "complete", url=url, keep=60)
    frozen = [key for key in cli.keys("*") if "frozen" in key]
    assert len(frozen) == 2 and all(0 < cli.ttl(key) <= 60 for key in frozen)

    cli.delete(*frozen)  # as if the minute were over

    with pytest.raises(PySparkException, match=r"SnapshotGone: the snapshot \S+ is gone"):
        frame.collect()


def test_a_reader_can_be_pickled_and_its_address_is_settled_where_it_is_made(monkeypatch, sources):
    from blueque.spark import datasource  # here: see conftest.sources

    monkeypatch.setenv("BLUEQUE_REDIS_URL", "redis://elsewhere:1/0")
    options = {"QUEUE": "render"}

    made = pickle.loads(pickle.dumps(datasource.reader(datasource.schema(options), options)))

    monkeypatch.delenv("BLUEQUE_REDIS_URL")
    assert made._wish.url == "redis://elsewhere:1/0"
    assert list(made.read(datasource.InputPartition(None))) == []
