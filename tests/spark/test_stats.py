"""bs.stats, bs.histogram and bs.failures, compared with Python's statistics of the same rows."""

from __future__ import annotations

import datetime
import math
import random
import statistics
from collections import Counter, defaultdict

import pytest
from pyspark.sql import functions as sql

import blueque.spark as bs
from blueque import InvalidInput, InvalidType
from blueque.model import histogram as buckets
from spark.frames import FIELDS, frame

pytestmark = pytest.mark.usefixtures("compiled")
DAY = 86400
MIDNIGHT = 1795132800.0  # 20 November 2026, in UTC


def made_up(count: int, seed: int = 7) -> list[dict]:
    """Return tasks of three queues and four days; some by 1.0.0, which has no times, some
    scheduled, some tried again.
    """
    chance = random.Random(seed)
    rows = []
    for number in range(count):
        finished = MIDNIGHT + round(chance.uniform(-2 * DAY, 2 * DAY), 3)
        ran, waited = round(chance.lognormvariate(4, 2), 3), round(chance.lognormvariate(2, 1.5), 3)
        status = chance.choices(["complete", "failed", "cancelled"], [90, 8, 2])[0]
        row = {
            "task_id": f"task-{number}",
            "queue": chance.choice(["a", "b", "ünï'\"`code"]),
            "status": status,
            "created": finished - ran - waited,
            "updated": finished,
            "node": "host_1",
        }
        if chance.random() < 0.2:
            row |= {"eta": row["created"], "created": row["created"] - 1000}
        if chance.random() < 0.9:
            row |= {
                "started": finished - ran,
                "finished": finished,
                "attempts": chance.choice([1, 1, 1, 2, 3]),
            }
        if status == "failed":
            row |= {
                "error": "ValueError: no",
                "error_type": chance.choice(["ValueError", "lost", None]),
            }
        rows.append(row)
    return rows


def waits(rows):
    return [
        row["started"] - max(row["created"], row.get("eta") or 0)
        for row in rows
        if "started" in row
    ]


def runs(rows):
    return [row["finished"] - row["started"] for row in rows if "started" in row]


def day(row):
    return datetime.datetime.fromtimestamp(row.get("finished", row["updated"]), datetime.UTC).date()


def grouped(rows, key):
    found = defaultdict(list)
    for row in rows:
        found[key(row)].append(row)
    return found


def test_what_is_said_of_each_queue_and_day_is_what_python_says_of_its_rows(spark):
    rows = made_up(600)
    expected = grouped(rows, lambda row: (row["queue"], day(row)))

    found = bs.stats(frame(spark, rows, FIELDS)).collect()

    assert [(row.queue, row.day) for row in found] == sorted(expected)
    for row in found:
        theirs = expected[row.queue, row.day]
        statuses = Counter(task["status"] for task in theirs)
        assert row.n == len(theirs)
        assert (row.complete, row.failed, row.cancelled) == tuple(
            statuses[it] for it in ("complete", "failed", "cancelled")
        )
        assert row.restarted == sum(task.get("attempts", 0) > 1 for task in theirs)
        for measure, seconds in (("wait", waits(theirs)), ("run", runs(theirs))):
            said = {
                name.removeprefix(f"{measure}_"): row[name]
                for name in row.asDict()
                if name.startswith(measure)
            }
            assert said.pop("n") == len(seconds)
            assert said == pytest.approx(
                {
                    "mean": statistics.fmean(seconds),
                    "variance": statistics.pvariance(seconds),
                    "max": max(seconds),
                    "p50": ranked(seconds, 0.5),
                    "p90": ranked(seconds, 0.9),
                    "p99": ranked(seconds, 0.99),
                },
                rel=1e-6,
                abs=1e-5,
            )


def ranked(seconds, share):
    """Return the smallest value that this share of all does not exceed."""
    return sorted(seconds)[max(math.ceil(share * len(seconds)) - 1, 0)]


def test_groups_are_what_was_asked_for(spark):
    rows = made_up(60)
    df = (
        frame(spark, rows, (*FIELDS, "group"))
        .withColumn("group", sql.lit("nightly"))
        .withColumn("a.b `c`", sql.col("queue"))
    )

    assert [(row.group, row.n) for row in bs.stats(df, by="group").collect()] == [("nightly", 60)]
    assert [(row["a.b `c`"], row.n) for row in bs.stats(df, by="a.b `c`").collect()] == sorted(
        Counter(row["queue"] for row in rows).items()
    )


def test_of_tasks_without_times_only_the_number_is_known(spark):
    row = (
        bs.stats(
            frame(spark, [{"queue": "a", "status": "complete", "updated": MIDNIGHT}]), by="day"
        )
        .collect()[0]
        .asDict()
    )

    assert row.pop("day") == datetime.date(2026, 11, 20)
    assert {name: value for name, value in row.items() if value is not None} == {
        "n": 1,
        "complete": 1,
        "failed": 0,
        "cancelled": 0,
        "restarted": 0,
        "wait_n": 0,
        "run_n": 0,
    }


def test_a_day_is_one_of_utc_and_begins_at_midnight_whatever_the_time_zone_of_the_session(spark):
    df = frame(
        spark,
        [
            {"queue": "a", "finished": MIDNIGHT - 0.000001},
            {"queue": "b", "finished": MIDNIGHT},
            {"queue": "c", "updated": MIDNIGHT + DAY - 0.000001},
            {"queue": "d", "finished": MIDNIGHT, "updated": MIDNIGHT + DAY},
            {"queue": "e", "finished": -1.0},
            {"queue": "f"},
        ],
    )
    spark.conf.set("spark.sql.session.timeZone", "Pacific/Auckland")
    try:
        found = {row.queue: row.day and row.day.isoformat() for row in bs.stats(df).collect()}
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")

    assert found == {
        "a": "2026-11-19",
        "b": "2026-11-20",
        "c": "2026-11-20",
        "d": "2026-11-20",
        "e": "1969-12-31",
        "f": None,
    }


def test_nobody_waits_or_runs_for_less_than_no_time(spark):
    df = frame(
        spark,
        [
            {"created": 100.0, "started": 99.0, "finished": 98.0},
            {"started": 99.0, "finished": 104.0},
        ],
    )

    (row,) = bs.stats(df, by=()).collect()

    assert (row.wait_n, row.wait_max, row.run_n, row.run_mean, row.run_max) == (1, 0.0, 2, 2.5, 5.0)


EDGES = [
    0.0,
    0.999999,
    1.0,
    59.999,
    60.0,
    3599.999999,
    3600.0,
    86399.999,
    86400.0,
    365 * DAY,
    366 * DAY,
    9000 * DAY,
]


def test_durations_fall_into_the_same_buckets_as_in_python(spark):
    df = frame(
        spark,
        [{"queue": "a", "started": MIDNIGHT, "finished": MIDNIGHT + seconds} for seconds in EDGES],
    )

    found = bs.histogram(df, by="queue").collect()

    expected = Counter(map(buckets.bucket, EDGES))
    assert [(row.queue, row.number, row.n) for row in found] == [
        ("a", *item) for item in sorted(expected.items())
    ]
    assert all(
        (row.bucket, row.since) == (buckets.NAMES[row.number], buckets.start(row.number))
        for row in found
    )
    assert [row.bucket for row in found] == [
        "s0",
        "s1",
        "s59",
        "m1",
        "m59",
        "h1",
        "h23",
        "d1",
        "d365",
        "d366",
    ]


def test_histograms_of_queues_and_days_add_up_to_that_of_all(spark):
    rows = made_up(300)
    df = frame(spark, rows, FIELDS)

    parts = Counter()
    for row in bs.histogram(df, of="wait").collect():
        parts[row.number] += row.n

    assert parts == {row.number: row.n for row in bs.histogram(df, of="wait", by=()).collect()}
    assert parts == Counter(map(buckets.bucket, (round(seconds, 6) for seconds in waits(rows))))


def test_failures_are_counted_by_type_with_the_newest_as_an_example(spark):
    failed = [
        ("a", "ValueError", "ValueError: 1", 5.0),
        ("a", "ValueError", "ValueError: 2", 9.0),
        ("b", "ValueError", "3", 1.0),
        ("a", "lost", None, 3.0),
        ("a", None, "requests.Timeout: 30 s", 2.0),
        ("a", "", "Échec: rien", 2.0),
        ("a", None, "  [Errno 2] none", 2.0),
        ("a", None, None, None),
        ("a", None, "!?", 2.0),
        ("a", None, "x" * 300, 2.0),
    ]
    df = frame(
        spark,
        [
            {
                "task_id": str(n),
                "queue": queue,
                "status": "failed",
                "error_type": kind,
                "error": error,
                "updated": MIDNIGHT - 99,
                "finished": seconds and MIDNIGHT + seconds,
            }
            for n, (queue, kind, error, seconds) in enumerate(failed)
        ]
        + [{"queue": "a", "status": "complete", "error": "an earlier one", "error_type": "lost"}],
    )

    found = bs.failures(df).withColumn("last", sql.unix_micros("last") / 1e6 - MIDNIGHT).collect()

    assert [(row.queue, row.error_type, row.n) for row in found] == [
        ("a", "ValueError", 2),
        ("a", "unknown", 2),
        ("a", "Errno", 1),
        ("a", "lost", 1),
        ("a", "requests.Timeout", 1),
        ("a", "x" * 200, 1),
        ("a", "Échec", 1),
        ("b", "ValueError", 1),
    ]
    assert tuple(found[0])[3:] == ("1", "ValueError: 2", 9.0)
    assert tuple(found[1])[3:] == ("8", "!?", 2.0)
    assert [
        tuple(row) for row in bs.failures(df, by=()).select("error_type", "n", "task_id").head(2)
    ] == [("ValueError", 3, "1"), ("unknown", 2, "8")]


@pytest.mark.parametrize("function", ["stats", "histogram", "failures"])
def test_what_cannot_be_grouped_by_is_refused_with_what_there_is(spark, function):
    df = frame(spark, [], ("queue", "status", "attempts", "started"))
    ask = getattr(bs, function)

    with pytest.raises(
        InvalidInput, match=r"no column .*'finished'.* it has 'queue', 'status', .* fields=\["
    ):
        ask(df)
    with pytest.raises(InvalidInput, match="no column 'colour'"):
        ask(frame(spark, [], FIELDS), by=("queue", "colour"))
    with pytest.raises(InvalidInput, match="'queue' is named twice"):
        ask(df, by=("queue", "queue"))
    with pytest.raises(InvalidType, match="not 7"):
        ask(df, by=7)
    with pytest.raises(InvalidInput, match="not 'life'"):
        bs.histogram(df, of="life")
