"""Tables of how long tasks waited and ran, and why they failed, from `read` and `read_archive`.

Spark computes each, with a row per group. Source: Qless's statistics by queue and day.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql

from blueque.errors import InvalidInput
from blueque.model import histogram as buckets
from blueque.spark.columns import column
from blueque.spark.measures import bucket, measured, names, ordered

STATUSES = ("complete", "failed", "cancelled")
_SHARES = (0.5, 0.9, 0.99)
_ACCURACY = 1000  # the error of a rank: one in so many
_SPREAD = ("n", "mean", "variance", "max", "p50", "p90", "p99")


def stats(df: DataFrame, by: str | Iterable[str] = ("queue", "day")) -> DataFrame:
    """Return how many tasks there were, how they ended, and how long they waited and ran.

    df: a table of tasks.
    by: columns of it, or "day": the UTC day on which a task finished (of 1.0.0: was last updated).
        One row per group, with n, complete, failed, cancelled and restarted (started more than
        once). For wait, in seconds: wait_n (how many are known), wait_mean, wait_variance (of all,
        not of a sample), wait_max, wait_p50, wait_p90 and wait_p99. The quantiles are approximate:
        the rank is within 1 in 1,000. For run, the same. Null if none is known.
    Raises InvalidInput, InvalidType.
    """
    groups = names(by)
    rows = measured(df, ("wait", "run"), (*groups, "status", "attempts"))
    return ordered(summed(rows, groups), [*map(column, groups)])


def summed(rows: DataFrame, by: Sequence[str]) -> DataFrame:
    """Return `stats` of rows with measures, in no order."""
    ended = [sql.count_if(sql.col("status") == status).alias(status) for status in STATUSES]
    restarted = sql.count_if(sql.col("attempts") > 1).alias("restarted")
    spreads = [part for measure in ("wait", "run") for part in _spread(measure)]
    found = rows.groupBy(*map(column, by)).agg(
        sql.count(sql.lit(1)).alias("n"), *ended, restarted, *spreads
    )
    for measure in ("wait", "run"):
        shares = {
            f"{measure}_p{share * 100:.0f}": sql.col(f"_{measure}")[n]
            for n, share in enumerate(_SHARES)
        }
        found = found.withColumns(shares)
    durations = [f"{measure}_{part}" for measure in ("wait", "run") for part in _SPREAD]
    return found.select(*map(column, by), "n", *STATUSES, "restarted", *durations)


def histogram(
    df: DataFrame, of: Literal["run", "wait"] = "run", by: str | Iterable[str] = ("queue", "day")
) -> DataFrame:
    """Return how many tasks ran (or waited) for how long, in Qless's buckets.

    One row per group and bucket that has any. Buckets of several groups add up.
    bucket: s0 to s59, m1 to m59, h1 to h23, d1 to d366 (and longer).
    number: its place among them, from 0.
    since: the shortest duration in it, in seconds.
    n: how many tasks.
    Raises InvalidInput, InvalidType.
    """
    if of not in ("run", "wait"):
        raise InvalidInput(f"of is 'run' or 'wait', not {of!r}")
    groups = names(by)
    found = counted(measured(df, (of,), groups), of, groups)
    number = sql.col("number")
    name = sql.array(*map(sql.lit, buckets.NAMES))[number].alias("bucket")
    since = sql.array(*(sql.lit(buckets.start(place)) for place in range(len(buckets.NAMES))))[
        number
    ].alias("since")
    return ordered(
        found.select(*map(column, groups), name, "number", since, "n"),
        [*map(column, groups), number],
    )


def counted(rows: DataFrame, of: str, by: Sequence[str]) -> DataFrame:
    """Return `n` by number of bucket, of rows with measures, in no order."""
    known = rows.where(sql.col(f"_{of}").isNotNull())
    return known.groupBy(*map(column, by), bucket(f"_{of}").alias("number")).agg(
        sql.count(sql.lit(1)).alias("n")
    )


def failures(df: DataFrame, by: str | Iterable[str] = ("queue",)) -> DataFrame:
    """Return how often each type of error occurred, most frequent first.

    One row per group and type.
    error_type: as recorded; without one (1.0.0 records none) the first word of the error, or "unknown".
    n: how many tasks.
    task_id, error, last: the newest of them, its message, and when it failed.
    Raises InvalidInput, InvalidType.
    """
    groups = tuple(name for name in names(by) if name != "error_type")
    rows = measured(df, ("kind", "seen"), (*groups, "status", "task_id", "error"))
    found = grouped(rows.where(sql.col("status") == "failed"), groups)
    newest = [sql.col(f"newest.{name}").alias(name) for name in ("task_id", "error")]
    last = sql.col("newest._seen").alias("last")
    return found.select(*map(column, groups), "error_type", "n", *newest, last).orderBy(
        sql.col("n").desc(), *map(column, groups), "error_type"
    )


def grouped(failed: DataFrame, by: Sequence[str], *also: Column) -> DataFrame:
    """Return `n` and the `newest` by type of error, of rows with measures, in no order."""
    newest = sql.max(sql.struct("_seen", "task_id", "error")).alias("newest")
    return failed.groupBy(*map(column, by), sql.col("_kind").alias("error_type")).agg(
        sql.count(sql.lit(1)).alias("n"), newest, *also
    )


def _spread(measure: str) -> Iterator[Column]:
    """Yield the statistics of a column of seconds, the percentiles in one array to need one pass only."""
    seconds = sql.col(f"_{measure}")
    yield sql.count(seconds).alias(f"{measure}_n")
    yield sql.avg(seconds).alias(f"{measure}_mean")
    yield sql.var_pop(seconds).alias(f"{measure}_variance")
    yield sql.max(seconds).alias(f"{measure}_max")
    yield sql.percentile_approx(seconds, [*_SHARES], _ACCURACY).alias(f"_{measure}")
