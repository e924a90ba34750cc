"""Brings the rows of a user's frame into one form and checks them, inside Spark, without Python.

The form has the columns `parameters` (text), and `key`, `eta`, `priority` if the frame has them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from blueque.errors import InvalidInput, InvalidType, TooLarge
from blueque.model.encoding import LAST_SECOND
from blueque.model.ids import MAX_KEY_BYTES, RUN_NAMESPACE
from blueque.model.lines import HIGHEST, LOWEST
from blueque.spark.layout import Layout, shown

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

# With these options json_texts.py makes the same text.
JSON = {
    "ignoreNullFields": "false",
    "timeZone": "UTC",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
_LONGER = 6  # bytes that JSON may need for a byte of text, as \u0000


def form(frame: DataFrame, layout: Layout) -> DataFrame:
    """Return the frame in the form."""
    columns = [_parameters(layout).alias("parameters")]
    if layout.keys:
        columns.append(_key(layout).alias("key"))
    for name in ("eta", "priority"):
        source = getattr(layout, name)
        if isinstance(source, str):
            columns.append(column(source).alias(name))
    return frame.select(*columns)


def formed(layout: Layout) -> Layout:
    """Return the layout of the form."""
    return layout._replace(
        parameters=("parameters",),
        is_text=True,
        keys=("key",) if layout.keys else (),
        eta="eta" if isinstance(layout.eta, str) else layout.eta,
        priority="priority" if layout.priority else None,
    )


def by_shard(formed: DataFrame, queue: str, run: str, shards: int) -> DataFrame:
    """Return the rows so that each partition has those of one shard: a shuffle, which pays on large
    clusters.
    """
    scope = RUN_NAMESPACE.bytes + f"{queue}\0{run}\0".encode()
    digest = F.sha1(F.concat(F.lit(bytearray(scope)), F.encode("key", "utf-8")))
    shard = F.conv(F.substring(digest, 1, 4), 16, 10).cast("int") % shards
    if hasattr(formed, "repartitionById"):
        return formed.repartitionById(shards, shard)
    return formed.repartition(shards, shard)  # before Spark 4.1: a partition may have several


def check(frame: DataFrame, layout: Layout) -> None:
    """Check all rows in one job without Python, for what the writers would refuse. Raises
    InvalidInput.
    """
    whole = _parameters(layout)
    tests = dict(_tests(layout))
    looks = [F.coalesce(F.max(_size(frame, layout)), F.lit(0)).alias("size")]
    for name, (wrong, value, _) in tests.items():
        example = F.first(F.when(wrong, whole if value is None else value), ignorenulls=True)
        looks += [
            F.count_if(wrong).alias(f"wrong_{name}"),
            example.cast("string").alias(f"shown_{name}"),
        ]
    found = frame.agg(*looks).first()
    for name, (_, value, words) in tests.items():
        if count := found[f"wrong_{name}"]:
            example = shown(found[f"shown_{name}"])
            where = f"the row with the parameters {example}" if value is None else example
            kind = InvalidType if "null" in words else InvalidInput
            raise kind(f"{words}: {count:,} row{'s' * (count > 1)}, such as {where}")
    if found["size"] > layout.max_bytes:
        _require_size(frame, layout)


def _tests(layout: Layout) -> Iterable[tuple[str, tuple[Column, Column | None, str]]]:
    """Yield for each possible fault: its name, the condition, the value to show (None: the
    parameters), and the message.
    """
    if layout.is_text:
        name = layout.parameters[0]
        yield "params", (column(name).isNull(), F.lit("null"), f"params: column {name!r} is null")
    for number, name in enumerate(layout.keys):
        yield f"key_{number}", (column(name).isNull(), None, f"key: column {name!r} is null")
    if layout.keys:
        key = _key(layout)
        size = F.octet_length(key)
        yield (
            "key",
            (
                (size > MAX_KEY_BYTES) | (size == 0),
                key,
                f"key: a key takes 1 to {MAX_KEY_BYTES} bytes",
            ),
        )
    if isinstance(layout.eta, str):
        eta = column(layout.eta).cast("double")
        wrong = (eta < -LAST_SECOND) | (eta > LAST_SECOND)  # NaN is larger than all numbers
        yield (
            "eta",
            (
                wrong,
                eta,
                f"eta: column {layout.eta!r} is not a time before the year 10000: seconds, not milliseconds?",
            ),
        )
    if layout.priority:
        priority = column(layout.priority)
        yield (
            "priority",
            (
                (priority < LOWEST) | (priority > HIGHEST),
                priority,
                f"priority: column {layout.priority!r} is not between {LOWEST} and {HIGHEST}",
            ),
        )


def _size(frame: DataFrame, layout: Layout) -> Column:
    """Return an upper bound of the bytes of a row's parameters, which costs less than to make them."""
    if layout.is_text:
        return F.octet_length(column(layout.parameters[0]))
    sizes: list[Any] = [2]
    for name in layout.parameters:
        kind = frame.schema[name].dataType.typeName()
        if kind in ("string", "varchar", "char"):
            size = F.octet_length(column(name)) * _LONGER
        elif kind in ("array", "map", "struct", "binary", "variant"):
            size = F.octet_length(F.to_json(F.struct(column(name)), JSON))
        else:
            size = F.lit(50)  # for a number or a time: a decimal has at most 38 digits
        sizes.append(F.coalesce(size, F.lit(0)) + len(name.encode()) * _LONGER + 6)
    total = F.lit(sizes[0]).cast("long")
    for size in sizes[1:]:
        total = total + size
    return total


def _require_size(frame: DataFrame, layout: Layout) -> None:
    size = F.octet_length(_parameters(layout))
    largest = frame.agg(
        F.max(F.struct(size.alias("size"), F.substring(_parameters(layout), 1, 100).alias("shown")))
    ).first()
    if largest is not None and largest[0] is not None and largest[0]["size"] > layout.max_bytes:
        raise TooLarge(
            f"row {shown(largest[0]['shown'])}: the parameters",
            largest[0]["size"],
            layout.max_bytes,
        )


def _parameters(layout: Layout) -> Column:
    columns = [column(name) for name in layout.parameters]
    return columns[0] if layout.is_text else F.to_json(F.struct(*columns), JSON)


def _key(layout: Layout) -> Column:
    parts = [column(name).cast("string") for name in layout.keys]
    if len(parts) == 1:
        return parts[0]
    is_whole = F.lit(True)
    for part in parts:
        is_whole = is_whole & part.isNotNull()
    return F.when(is_whole, F.to_json(F.array(*parts)))


def column(name: str) -> Column:
    """Return the column of that name, which may have dots and spaces."""
    return F.col("`" + name.replace("`", "``") + "`")
