"""The content of a report, aggregated in Spark, so that little data comes back from a large table."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as sql

from blueque.report.lanes import STEPS, add_up
from blueque.report.phrases import natural
from blueque.report.scales import step_of
from blueque.report.summary import Bar, Failure, Group, Host, Spread, Summary, Timeline
from blueque.spark.analytics import counted, grouped, summed
from blueque.spark.measures import measured

QUEUES, DRAWN_QUEUES, TYPES, HOSTS, BARS = 200, 12, 50, 30, 2000
DAY = 86400
_LAST_DAY = 2_932_896  # 9999-12-31: Python has no later date
_APART = 366  # days; a clock that differs by more was wrong
_LONGEST = 300  # characters of a message


def summarise(df: DataFrame, title: str, source: str, made: float, keep: bool = True) -> Summary:
    """Return the content of a report about a table of tasks. Raises InvalidInput when it lacks a column.

    keep: read the table once and cache what is needed. A live Redis would give other rows each
        time. Files give the same rows, and reading a few columns again is faster than caching them.
    """
    rows = _rows(df)
    if keep:
        with suppress(PySparkException):  # serverless Spark keeps nothing
            rows.persist()
    try:
        (total,) = _groups(rows, ())
        empty = Summary(title, source, made, total)
        return _summary(rows, empty) if total.n else empty
    finally:
        if keep:
            with suppress(PySparkException):
                rows.unpersist()


def _summary(rows: DataFrame, empty: Summary) -> Summary:
    days = _main_days(_groups(rows.where(sql.col("day").between(0, _LAST_DAY)), ("day",)))
    queues = _groups(rows, ("queue",), QUEUES)
    drawn = rows.where(
        sql.col("queue").isin(
            [group.queue for group in queues if group.queue is not None][:DRAWN_QUEUES]
        )
    )
    failures, types = _failures(rows) if empty.total.failed else ([], 0)
    return replace(
        empty,
        days=days,
        strays=empty.total.n - sum(group.n for group in days),
        queues=queues,
        all_queues=rows.select("queue").distinct().count()
        if len(queues) == QUEUES
        else len(queues),
        by_day=_by_queue(_groups(_of_days(drawn, days), ("queue", "day"))) if days else {},
        run_times=_histograms(drawn),
        failures=failures,
        all_types=types,
        timeline=_timeline(rows, days),
    )


def _rows(df: DataFrame) -> DataFrame:
    """Return what a report needs of each task. Columns of failures are null for all other tasks."""
    rows = measured(
        df,
        ("wait", "run", "seen", "kind"),
        ("task_id", "queue", "status", "attempts", "node", "day", "error", "started", "finished"),
    )
    failed = sql.col("status") == "failed"
    return rows.select(
        "task_id",
        "queue",
        "status",
        "attempts",
        "_wait",
        "_run",
        sql.unix_date("day").alias("day"),
        "node",
        *((sql.unix_micros(name) / 1e6).alias(name) for name in ("started", "finished", "_seen")),
        sql.when(failed, sql.left("error", sql.lit(_LONGEST))).alias("error"),
        sql.when(failed, sql.col("_kind")).alias("_kind"),
    )


def _groups(rows: DataFrame, by: Sequence[str], most: int = 0) -> list[Group]:
    """Return the groups in order; with `most`, only the largest, largest first."""
    found = summed(rows, by)
    if most:
        found = found.orderBy(sql.col("n").desc(), *by).limit(most)
    groups = [_group(row) for row in found.collect()]
    return groups if most else sorted(groups, key=lambda group: (group.queue or "", group.day or 0))


def _group(row: Row) -> Group:
    told = row.asDict()
    return Group(
        told.get("queue"),
        told.get("day"),
        row.n,
        row.complete,
        row.failed,
        row.cancelled,
        row.restarted,
        _spread(told, "wait"),
        _spread(told, "run"),
    )


def _spread(told: dict[str, Any], measure: str) -> Spread | None:
    parts = [told[f"{measure}_{part}"] for part in ("n", "mean", "max", "p50", "p90", "p99")]
    return Spread(*parts) if parts[0] else None


def _main_days(days: Sequence[Group]) -> Sequence[Group]:
    """Return the days that belong together, without those of a clock that was wrong by years."""
    parts: list[list[Group]] = []
    for group in days:
        if not parts or (group.day or 0) - (parts[-1][-1].day or 0) > _APART:
            parts.append([])
        parts[-1].append(group)
    return max(parts, key=lambda part: sum(group.n for group in part), default=[])


def _of_days(rows: DataFrame, days: Sequence[Group]) -> DataFrame:
    return rows.where(sql.col("day").between(days[0].day, days[-1].day))


def _by_queue(groups: Iterable[Group]) -> dict[str, list[Group]]:
    found: dict[str, list[Group]] = {}
    for group in groups:
        found.setdefault(group.queue or "", []).append(group)
    return found


def _histograms(rows: DataFrame) -> dict[str, dict[int, int]]:
    found: dict[str, dict[int, int]] = {}
    for row in counted(rows, "run", ("queue",)).collect():
        found.setdefault(row.queue, {})[row.number] = row.n
    return found


def _failures(rows: DataFrame) -> tuple[Sequence[Failure], int]:
    """Return the most frequent types of failure, and how many types there are."""
    queues = [sql.count_distinct("queue").alias("queues"), sql.mode("queue").alias("queue")]
    found = grouped(rows.where(sql.col("status") == "failed"), (), *queues)
    failures = [
        Failure(
            row.error_type,
            row.n,
            row.queues,
            row.queue,
            row.newest.task_id,
            row.newest.error,
            row.newest._seen,
        )
        for row in found.orderBy(sql.col("n").desc(), "error_type").limit(TYPES).collect()
    ]
    return failures, len(failures) if len(failures) < TYPES else found.count()


def _timeline(rows: DataFrame, days: Sequence[Group]) -> Timeline | None:
    """Return what ran where: the hosts with the most work, aggregated when there are too many runs."""
    if not days:
        return None
    runs = _of_days(rows, days).where("finished >= started and node is not null")
    runs = runs.withColumn("host", sql.regexp_replace("node", "_[0-9]+$", ""))
    found = _hosts(runs)
    if not found:
        return None
    more = runs.select("host").distinct().count() - HOSTS if len(found) == HOSTS else 0
    hosts = sorted(
        (Host(row.host, row.nodes, row.n, row.work) for row in found),
        key=lambda host: natural(host.name),
    )
    runs = runs.where(sql.col("host").isin([host.name for host in hosts]))
    # A run that began long before the first day is cut, so that the days have at least half of the
    # width.
    first, last = days[0].day or 0, days[-1].day or 0
    since = max(min(row.since for row in found), (first - (last - first + 1)) * DAY)
    until = max(max(row.until for row in found), since + 1)
    if sum(host.n for host in hosts) <= BARS:
        return Timeline(since, until, hosts, bars=_bars(runs), more=more)
    step = step_of(until - since, STEPS)
    since = math.floor(since / step) * step
    return Timeline(
        since, until, hosts, profiles=_profiles(runs, since, until, step), step=step, more=more
    )


def _hosts(runs: DataFrame) -> list[Row]:
    """Return the hosts with the most work. Aggregates listeners first: there are fewer of them than rows."""
    nodes = runs.groupBy("host", "node").agg(
        sql.count(sql.lit(1)).alias("n"),
        sql.sum("_run").alias("work"),
        sql.min("started").alias("since"),
        sql.max("finished").alias("until"),
    )
    hosts = nodes.groupBy("host").agg(
        sql.sum("n").alias("n"),
        sql.count(sql.lit(1)).alias("nodes"),
        sql.sum("work").alias("work"),
        sql.min("since").alias("since"),
        sql.max("until").alias("until"),
    )
    return hosts.orderBy(sql.col("work").desc(), "host").limit(HOSTS).collect()


def _bars(runs: DataFrame) -> dict[str, list[Bar]]:
    found: dict[str, list[Bar]] = {}
    for row in runs.select(
        "host", "started", "finished", "status", "task_id", "queue", "node"
    ).collect():
        found.setdefault(row.host, []).append(
            Bar(
                row.started,
                row.finished,
                row.status or "",
                row.task_id or "",
                row.queue or "",
                row.node,
            )
        )
    return found


def _profiles(
    runs: DataFrame, since: float, until: float, step: float
) -> dict[str, dict[str, list[float]]]:
    """Return how many ran at the same time, by host and status, in each step.

    Each run counts at its start and its end only, so a long run costs no more than a short one.
    """
    at = f"greatest({{}} - {since!r}D, 0D) / {step!r}D as at"
    both = f"struct({at.format('started')}, 1 as sign), struct({at.format('finished')}, -1 as sign)"
    turns = runs.select("host", "status", sql.expr(f"explode(array({both})) as turn")).select(
        "host",
        "status",
        "turn.sign",
        "turn.at",
        sql.expr("cast(floor(turn.at) as int)").alias("place"),
    )
    found = turns.groupBy("host", "status", "place").agg(
        sql.sum(sql.expr("sign * (place + 1 - at)")).alias("part"), sql.sum("sign").alias("whole")
    )
    changes: dict[str, dict[str, dict[int, tuple[float, int]]]] = {}
    for row in found.collect():
        changes.setdefault(row.host, {}).setdefault(row.status or "", {})[row.place] = (
            row.part,
            row.whole,
        )
    steps = math.ceil((until - since) / step)
    return {
        host: {status: add_up(places, steps) for status, places in statuses.items()}
        for host, statuses in changes.items()
    }
