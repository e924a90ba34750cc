"""The measures of each task in a table: its day, how long it waited and ran, and why it failed.

wait: from `created`, or from `eta` if that is later, to `started`, in seconds. run: from `started`
    to `finished`. Both are of the attempt that started last. They are null where a time is missing
    (1.0.0 records none), and at least 0, because clocks differ.
day: in UTC, of `finished`; of `updated` if that is missing. kind: the error type, or the first word
    of the error. Nothing depends on the time zone of the session or on ANSI mode.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql

from blueque.errors import InvalidInput, InvalidType
from blueque.model import histogram
from blueque.spark.columns import column

_BETWEEN = (
    "case when {to} < {since} then 0D else (unix_micros({to}) - unix_micros({since})) / 1e6D end"
)
# Each with the columns that it needs, and what it is. Their names have an underscore: a table has a
# column `run`.
_MEASURES = {
    "_wait": (
        ("created", "eta", "started"),
        _BETWEEN.format(since="greatest(created, eta)", to="started"),
    ),
    "_run": (("started", "finished"), _BETWEEN.format(since="started", to="finished")),
    "_seen": (("finished", "updated"), "coalesce(finished, updated)"),
    "_kind": (
        ("error", "error_type"),
        # The beginning only: a regular expression over megabytes would exhaust the stack of the JVM.
        "coalesce(nullif(error_type, ''), "
        r"nullif(regexp_extract(left(error, 200), r'(?U)^\W*(\w+(?:\.\w+)*)', 1), ''), 'unknown')",
    ),
    "day": (
        ("finished", "updated"),
        "date_from_unix_date(cast(floor(unix_micros(coalesce(finished, updated)) / 864e8D) as int))",
    ),
}


def measured(df: DataFrame, measures: Iterable[str], columns: Iterable[str] = ()) -> DataFrame:
    """Return these measures of each row, and some columns of the table, "day" among them. No other
    column is read.

    measures: wait, run, seen, kind; the columns are named _wait and so on.
    Raises InvalidInput if the table lacks a column; it names the `fields=` that are needed.
    """
    derived = [f"_{name}" for name in measures]
    wanted = [*dict.fromkeys(columns)]
    parts = {
        name: _MEASURES[name] for name in [*wanted, *derived] if name in derived or name == "day"
    }
    _require(
        df,
        [name for name in wanted if name not in parts]
        + [needed for part in parts.values() for needed in part[0]],
    )
    return df.select(
        *(
            sql.expr(parts[name][1]).alias(name) if name in parts else column(name)
            for name in [*wanted, *derived]
        )
    )


def names(by: str | Iterable[str]) -> tuple[str, ...]:
    """Return the names of columns to group by. Raises InvalidType, InvalidInput."""
    found = (by,) if isinstance(by, str) else tuple(by) if isinstance(by, Iterable) else (by,)
    if not all(isinstance(name, str) for name in found):
        raise InvalidType(f"by is the name of a column, or names of several, not {by!r}")
    twice = [name for number, name in enumerate(found) if name in found[:number]]
    if twice:
        raise InvalidInput(f"the column {twice[0]!r} is named twice")
    return found


def bucket(duration: str) -> Column:
    """Return the number of the bucket for a column of seconds, see model/histogram.py."""
    units = [("d", 86400), ("h", 3600), ("m", 60)]
    cases = " ".join(
        f"when {duration} >= {size} then {histogram.NAMES.index(f'{unit}1') - 1} + cast({duration} / {size} as int)"
        for unit, size in units
    )
    last = f"when {duration} >= {histogram.LAST_DAY * 86400} then {len(histogram.NAMES) - 1}"
    return sql.expr(f"case {last} {cases} else cast({duration} as int) end")


def ordered(df: DataFrame, by: Sequence[Column]) -> DataFrame:
    """Return the rows in an order. Spark refuses an order without columns."""
    return df.orderBy(*by) if by else df


def _require(df: DataFrame, needed: Sequence[str]) -> None:
    if not hasattr(df, "columns"):
        raise InvalidType(f"a DataFrame is needed, as bs.read returns it, not {type(df).__name__}")
    missing = [name for name in dict.fromkeys(needed) if name not in df.columns]
    if missing:
        raise InvalidInput(
            f"the table has no column {', '.join(map(repr, missing))}; it has {', '.join(map(repr, df.columns)) or 'none'}. "
            f"Read it with at least fields={[*dict.fromkeys(needed)]!r}"
        )
