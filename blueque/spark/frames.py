"""Checks the rows of a user's frame before any is written, inside Spark, without Python."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from blueque.errors import InvalidInput, InvalidType, TooLarge
from blueque.model.encoding import FIRST_ETA, LAST_SECOND
from blueque.model.ids import MAX_KEY_BYTES
from blueque.model.lines import HIGHEST, LOWEST
from blueque.spark.columns import column
from blueque.spark.layout import Layout, shown
from blueque.text.format import count

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

# For messages, and to estimate sizes: the workers make the parameters, see json_texts.py.
JSON = {
    "ignoreNullFields": "false",
    "timeZone": "UTC",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
# functions that return something else each time that Spark computes a frame
_ANEW = re.compile(r"(?i)\b(monotonically_increasing_id|uuid|randn?|shuffle|spark_partition_id)\(")
_LONGER = 6  # bytes that JSON may need for a byte of text, as \u0000


def form(frame: DataFrame, layout: Layout) -> tuple[DataFrame, Layout]:
    """Return the columns of the frame that make tasks, and their layout."""
    # Python in Spark's workers takes no name that SQL would have to quote.
    odd = [name for name in layout.columns if "." in name or "`" in name]
    names = {name: f"_{number}" for number, name in enumerate(odd)}
    columns = [column(name).alias(names.get(name, name)) for name in layout.columns]
    return frame.select(*columns), layout.renamed(names)


def require_stable(frame: DataFrame, keys: Sequence[str]) -> None:
    """Refuse keys that change whenever Spark computes the frame: a retry would make other tasks.

    Raises InvalidInput.
    """
    chosen = frame.select(*map(column, keys))
    if hasattr(chosen, "_explain_string"):  # of Spark Connect
        plan = chosen._explain_string(mode="extended")
    else:
        plan = chosen._jdf.queryExecution().optimizedPlan().toString()
    makers: dict[str, str] = {}  # the function by the number of the column that it is in
    for line in reversed(plan.splitlines()):  # what a line uses is made below it
        for made in re.finditer(r" AS (.+?)#(\d+)", line):
            expression = _ending_at(made.start(), line)
            used = [makers[one] for one in re.findall(r"#(\d+)", expression) if one in makers]
            if used := [*_ANEW.findall(expression), *used]:
                makers[made[2]] = used[0]
                if made[1] in keys:
                    raise InvalidInput(
                        f"key: column {made[1]!r} is made by {used[0]}, again each time that Spark computes "
                        "the frame, so a second try would make other tasks: name columns of your data"
                    )


def _ending_at(end: int, line: str) -> str:
    """Return the expression that ends there in a line of a plan."""
    depth = 0
    for place in range(end - 1, -1, -1):
        depth += (line[place] in ")]") - (line[place] in "([")
        if depth < 0 or (depth == 0 and line[place] == ","):
            return line[place + 1 : end]
    return line[:end]


@contextmanager
def checked(frame: DataFrame, layout: Layout) -> Iterator[tuple[DataFrame, Layout]]:
    """Yield what `form` returns, once all rows are checked. Raises InvalidInput.

    Meanwhile Spark keeps them in the memory and on the disks of its workers. So it computes the
    frame once, and the checked rows are the written rows.
    """
    kept, layout = form(frame, layout)
    is_ours = not getattr(frame, "is_cached", False)
    if is_ours:
        with suppress(PySparkException):  # serverless Spark keeps nothing, and computes it twice
            kept = kept.persist()
    try:
        check(kept, layout)
        yield kept, layout
    finally:
        if is_ours:
            with suppress(PySparkException, Py4JError, OSError):  # Java may be dead
                kept.unpersist()


def check(frame: DataFrame, layout: Layout) -> None:
    """Check all rows for what the writers would refuse, in one job. Raises InvalidInput."""
    whole = _parameters(layout)
    faults = [*_faults(frame, layout)]
    looks = [F.coalesce(F.max(_size(frame, layout)), F.lit(0)).alias("size")]
    for name, wrong, value, _ in faults:
        example = F.first(F.when(wrong, whole if value is None else value), ignorenulls=True)
        looks += [
            F.count_if(wrong).alias(f"wrong_{name}"),
            example.cast("string").alias(f"shown_{name}"),
        ]
    found = frame.agg(*looks).first()
    for name, _, value, words in faults:
        if number := found[f"wrong_{name}"]:
            example = shown(found[f"shown_{name}"])
            where = f"the row with the parameters {example}" if value is None else example
            kind = InvalidType if "null" in words else InvalidInput
            raise kind(f"{words}: {count(number, 'row')}, such as {where}")
    if found["size"] > layout.max_bytes:
        _require_size(frame, layout)


class Fault(NamedTuple):
    """A possible fault of a row. value: to show; None: the parameters."""

    name: str
    wrong: Column
    value: Column | None
    words: str


def _faults(frame: DataFrame, layout: Layout) -> Iterator[Fault]:
    """Yield each possible fault of a row."""
    if layout.is_text:
        name = layout.parameters[0]
        words = f"params: column {layout.label(name)!r} is null"
        yield Fault("params", column(name).isNull(), F.lit("null"), words)
    for number, name in enumerate(layout.keys):
        words = f"key: column {layout.label(name)!r} is null"
        yield Fault(f"key_{number}", column(name).isNull(), None, words)
    key = _key(layout)
    size = F.octet_length(key)
    words = f"key: a key takes 1 to {MAX_KEY_BYTES} bytes"
    yield Fault("key", (size > MAX_KEY_BYTES) | (size == 0), key, words)
    if isinstance(layout.eta, str):
        eta = column(layout.eta).cast("double")
        wrong = (eta < -LAST_SECOND) | (eta > LAST_SECOND)  # NaN is larger than all numbers
        words = f"eta: column {layout.label(layout.eta)!r} is not a time before the year 10000"
        yield Fault("eta", wrong, eta, f"{words}: seconds, not milliseconds?")
        if not frame.schema[layout.eta].dataType.typeName().startswith("timestamp"):
            wrong = (eta > 0) & (eta < FIRST_ETA)
            words = f"eta: column {layout.label(layout.eta)!r} is a time before the year 2000"
            yield Fault("early", wrong, eta, f"{words}: Unix seconds, not a delay?")
    if layout.priority:
        priority = column(layout.priority)
        wrong = (priority < LOWEST) | (priority > HIGHEST)
        where = f"priority: column {layout.label(layout.priority)!r}"
        words = f"{where} is not between {LOWEST} and {HIGHEST}"
        yield Fault("priority", wrong, priority, words)


def _size(frame: DataFrame, layout: Layout) -> Column:
    """Return an upper bound of the size of a row's parameters, cheaper than creating them."""
    if layout.is_text:
        return F.octet_length(column(layout.parameters[0]))
    types = {field.name: field.dataType for field in frame.schema}
    sizes: list[Any] = [2]
    for name in layout.parameters:
        kind = types[name].typeName()
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
    if layout.is_text:
        return column(layout.parameters[0])
    columns = zip(layout.parameters, layout.names, strict=True)
    return F.to_json(F.struct(*[column(name).alias(shown) for name, shown in columns]), JSON)


def _key(layout: Layout) -> Column:
    parts = [column(name).cast("string") for name in layout.keys]
    if len(parts) == 1:
        return parts[0]
    is_whole = F.lit(True)
    for part in parts:
        is_whole = is_whole & part.isNotNull()
    return F.when(is_whole, F.to_json(F.array(*parts)))
