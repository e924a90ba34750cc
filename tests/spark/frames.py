"""Tables of tasks as `bs.read` returns them, of rows that a test makes up: no Redis, no workers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as sql

from blueque.model.columns import COLUMNS, DEFAULT_FIELDS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# What is needed of tasks for numbers and reports.
FIELDS = (
    *("task_id", "queue", "status", "error", "error_type", "node", "attempts"),
    *("created", "updated", "started", "finished", "eta"),
)
TYPES = {"string": "string", "int": "int", "long": "bigint", "timestamp": "bigint"}


def frame(
    spark: SparkSession, rows: Iterable[dict[str, Any]], fields: Iterable[str] = DEFAULT_FIELDS
) -> DataFrame:
    """Return a table of tasks. rows: times in Unix seconds; what a row does not name is null."""
    columns = [COLUMNS[name] for name in fields]
    values = [
        tuple(_value(column.kind, row.get(column.name)) for column in columns) for row in rows
    ]
    schema = ", ".join(f"`{column.name}` {TYPES[column.kind]}" for column in columns)
    found = spark.createDataFrame(values, schema)
    times = {
        column.name: sql.timestamp_micros(column.name)
        for column in columns
        if column.kind == "timestamp"
    }
    return found.withColumns(times) if times else found


def _value(kind: str, value: Any) -> Any:
    return round(value * 1_000_000) if kind == "timestamp" and value is not None else value
