"""Checks the rows of a user's frame before any is written, inside Spark, without Python; and finds
the columns that the user means.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from blueque.errors import InvalidInput, InvalidType, TooLarge
from blueque.model.encoding import LAST_SECOND
from blueque.model.ids import MAX_KEY_BYTES
from blueque.model.lines import HIGHEST, LOWEST
from blueque.spark.layout import Layout, shown

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


class Named(NamedTuple):
    """A frame, and which of its columns are meant."""

    frame: DataFrame
    key: str | Sequence[str] | None
    params: str | Sequence[str] | None
    eta: Any
    priority: Any


def named(frame: DataFrame, key: Any, params: Any, eta: Any, priority: Any) -> Named:
    """Return the frame with a column for each Column that is given, and names in their place."""
    columns = [one for one in [*_list(key), *_list(params), eta, priority] if is_column(one)]
    if not columns:
        return Named(frame, key, params, eta, priority)
    chosen = _Chosen(frame, columns)
    if params is not None:
        names = [chosen.parameter(one) for one in _list(params)]
        params = names if isinstance(params, list | tuple) else names[0]
    keys = [chosen.other(one, "key") for one in _list(key)]
    found = Named(
        frame,
        keys if isinstance(key, list | tuple) else keys[0] if keys else None,
        params,
        chosen.other(eta, "eta"),
        chosen.other(priority, "priority"),
    )
    if params is None:
        found = found._replace(
            params=[name for name in frame.columns if name not in (found.eta, found.priority)]
        )
    return found._replace(frame=frame.withColumns(chosen.added) if chosen.added else frame)


class _Chosen:
    """The columns that a user has given as Columns, and those that the frame needs for them."""

    def __init__(self, frame: DataFrame, columns: Sequence[Any]) -> None:
        self.added: dict[str, Column] = {}
        self._there = frame.columns
        self._names = dict(zip(map(id, columns), frame.select(*columns).columns, strict=True))

    def parameter(self, given: Any) -> Any:
        """Return the name in the parameters; a Column may take the place of one of its name."""
        if not is_column(given) or self._is_plain(given):
            return self._names.get(id(given), given)
        self.added[self._names[id(given)]] = given
        return self._names[id(given)]

    def other(self, given: Any, option: str) -> Any:
        """Return the name of a column that holds this, whatever took the place of its own."""
        name = self._names.get(id(given), given)
        if is_column(given) and not self._is_plain(given):
            column_of_it = given
        elif isinstance(name, str) and name in self.added and name in self._there:
            column_of_it = column(name)
        else:
            return name
        while name in self._there or name in self.added:
            name = f"{name} ({option})"
        self.added[name] = column_of_it
        return name

    def _is_plain(self, given: Any) -> bool:
        name = self._names[id(given)]
        return name in self._there and str(given) == f"Column<'{name}'>"


def is_column(given: Any) -> bool:
    """Tell whether it is a Column, of a session here or of Spark Connect."""
    return type(given).__module__.startswith("pyspark.sql") and hasattr(given, "alias")


def form(frame: DataFrame, layout: Layout) -> tuple[DataFrame, Layout]:
    """Return the columns of the frame that make tasks, and their layout."""
    # Python in Spark's workers takes no name that SQL would have to quote.
    odd = [name for name in layout.columns if "." in name or "`" in name]
    names = {name: f"_{number}" for number, name in enumerate(odd)}
    columns = [column(name).alias(names.get(name, name)) for name in layout.columns]
    return frame.select(*columns), layout.renamed(names)


def require_stable(frame: DataFrame, keys: Sequence[str]) -> None:
    """Refuse keys that Spark makes anew each time that it computes the frame: a write that is repeated
    would make other tasks. Raises InvalidInput.
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
                        f"key: column {made[1]!r} is made by {used[0]}, anew each time that Spark computes "
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

    Spark keeps them meanwhile, in the memory and on the disks of its workers: it computes the frame
    once, and what was checked is what is written.
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
        yield (
            "params",
            (
                column(name).isNull(),
                F.lit("null"),
                f"params: column {layout.label(name)!r} is null",
            ),
        )
    for number, name in enumerate(layout.keys):
        yield (
            f"key_{number}",
            (column(name).isNull(), None, f"key: column {layout.label(name)!r} is null"),
        )
    key = _key(layout)
    size = F.octet_length(key)
    yield (
        "key",
        ((size > MAX_KEY_BYTES) | (size == 0), key, f"key: a key takes 1 to {MAX_KEY_BYTES} bytes"),
    )
    if isinstance(layout.eta, str):
        eta = column(layout.eta).cast("double")
        wrong = (eta < -LAST_SECOND) | (eta > LAST_SECOND)  # NaN is larger than all numbers
        yield (
            "eta",
            (
                wrong,
                eta,
                f"eta: column {layout.label(layout.eta)!r} is not a time before the year 10000: seconds, not milliseconds?",
            ),
        )
    if layout.priority:
        priority = column(layout.priority)
        yield (
            "priority",
            (
                (priority < LOWEST) | (priority > HIGHEST),
                priority,
                f"priority: column {layout.label(layout.priority)!r} is not between {LOWEST} and {HIGHEST}",
            ),
        )


def _size(frame: DataFrame, layout: Layout) -> Column:
    """Return an upper bound of the bytes of a row's parameters, which costs less than to make them."""
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


def column(name: str) -> Column:
    """Return the column of that name, which may have dots and spaces."""
    return F.col("`" + name.replace("`", "``") + "`")


def _list(given: Any) -> Sequence[Any]:
    if given is None:
        return []
    return given if isinstance(given, list | tuple) else [given]
