"""Makes columns of Apache Arrow from the texts in Redis, with little work per row.

pyarrow is imported when first needed: it takes 200 ms and 60 MB, and programs that only enqueue and
run tasks never need it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from blueque.errors import NotInstalled
from blueque.model.columns import COLUMNS, FIRST_SECOND, to_microseconds, to_whole
from blueque.model.encoding import LAST_SECOND

if TYPE_CHECKING:
    import pyarrow as pa

Texts = Sequence[str | None]


class Made(NamedTuple):
    """A column, and the numbers of the rows whose text it could not hold unchanged."""

    array: pa.Array
    odd: Sequence[int] = ()


@functools.cache
def pyarrow() -> ModuleType:
    """Return the module pyarrow. Raises NotInstalled."""
    try:
        import pyarrow
        import pyarrow.compute
    except ImportError as error:
        raise NotInstalled("reading tasks into tables", "pyarrow", "arrow") from error
    return pyarrow


@functools.cache
def types() -> dict[str, pa.DataType]:
    """Return the type of each kind of column."""
    pa = pyarrow()
    return {
        "string": pa.string(),
        "int": pa.int32(),
        "long": pa.int64(),
        "timestamp": pa.timestamp("us", tz="UTC"),
    }


def schema(fields: Sequence[str]) -> pa.Schema:
    """Return the schema of these columns."""
    return pyarrow().schema([(name, types()[COLUMNS[name].kind]) for name in fields])


def column(kind: str, texts: Texts) -> Made:
    """Return the texts as a column of this kind. A number that is malformed or out of range becomes null."""
    pa = pyarrow()
    try:
        strings = pa.array(texts, pa.string())
    except UnicodeError:  # written by another program: we write UTF-8 only
        return _column_of_odd(kind, texts)
    if kind == "string":
        return Made(strings)
    if strings.null_count == len(strings):
        return Made(pa.nulls(len(strings), types()[kind]))
    try:
        return Made(
            _times(strings) if kind == "timestamp" else strings.cast(pa.int64()).cast(types()[kind])
        )
    except pa.ArrowInvalid:
        return _column_of_odd(kind, texts)


def _times(seconds: pa.Array) -> pa.Array:
    """Return Unix seconds as times. Raises ArrowInvalid if one is not a time."""
    pa = pyarrow()
    numbers = seconds.cast(pa.float64())
    extremes = pa.compute.min_max(numbers).as_py()
    if not FIRST_SECOND <= extremes["min"] <= extremes["max"] <= LAST_SECOND:
        raise pa.ArrowInvalid("not in any year of the calendar")
    return (
        pa.compute.round(pa.compute.multiply(numbers, 1e6))
        .cast(pa.int64())
        .cast(types()["timestamp"])
    )


def _column_of_odd(kind: str, texts: Texts) -> Made:
    """Do the same one by one, because some texts are malformed."""
    make = _MAKERS[kind]
    values = [None if text is None else make(text) for text in texts]
    is_text = kind == "string"
    odd = [
        row
        for row, (text, value) in enumerate(zip(texts, values, strict=True))
        if (text != value if is_text else value is None and text is not None)
    ]
    return Made(pyarrow().array(values, types()[kind]), odd)


def _to_readable(text: str) -> str:
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


_MAKERS: dict[str, Callable[[str], Any]] = {
    "string": _to_readable,
    "int": to_whole,
    "long": functools.partial(to_whole, bits=64),
    "timestamp": to_microseconds,
}
