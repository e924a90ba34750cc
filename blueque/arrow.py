"""From the texts in Redis to columns of Apache Arrow, with little work for each row.

pyarrow is imported when first needed: it takes 200 ms and 60 MB, and who only enqueues and runs tasks never needs it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from blueque.columns import COLUMNS
from blueque.errors import NotInstalled
from blueque.values import LAST_SECOND

if TYPE_CHECKING:
    import pyarrow as pa

Texts = Sequence[str | None]

_FIRST_SECOND = -62135596800.0                         # of the year 1


class Made(NamedTuple):
    """A column, and the numbers of the rows whose text it does not hold as it was."""

    array: pa.Array
    odd: Sequence[int] = ()


@cache
def pyarrow() -> ModuleType:
    """Return pyarrow. Raises NotInstalled."""
    try:
        import pyarrow
        import pyarrow.compute
    except ImportError as error:
        raise NotInstalled("reading tasks into tables", "pyarrow", "arrow") from error
    return pyarrow


@cache
def types() -> dict[str, pa.DataType]:
    """Return the type of each kind of column."""
    pa = pyarrow()
    return {"string": pa.string(), "int": pa.int32(), "long": pa.int64(), "timestamp": pa.timestamp("us", tz="UTC")}


def schema(fields: Sequence[str]) -> pa.Schema:
    """Return the schema of these columns."""
    return pyarrow().schema([(name, types()[COLUMNS[name].kind]) for name in fields])


def column(kind: str, texts: Texts) -> Made:
    """Return the texts as a column of this kind; what makes no number, or none that it can hold, is null."""
    pa = pyarrow()
    try:
        strings = pa.array(texts, pa.string())
    except UnicodeError:                               # another program's: we write UTF-8 only
        return _column_of_odd(kind, texts)
    if kind == "string":
        return Made(strings)
    if strings.null_count == len(strings):
        return Made(pa.nulls(len(strings), types()[kind]))
    try:
        return Made(_times(strings) if kind == "timestamp" else strings.cast(pa.int64()).cast(types()[kind]))
    except pa.ArrowInvalid:
        return _column_of_odd(kind, texts)


def _times(seconds: pa.Array) -> pa.Array:
    """Return Unix seconds as times. Raises ArrowInvalid if one of them is none."""
    pa = pyarrow()
    numbers = seconds.cast(pa.float64())
    extremes = pa.compute.min_max(numbers).as_py()
    if not _FIRST_SECOND <= extremes["min"] <= extremes["max"] <= LAST_SECOND:
        raise pa.ArrowInvalid("not in any year of the calendar")
    return pa.compute.round(pa.compute.multiply(numbers, 1e6)).cast(pa.int64()).cast(types()["timestamp"])


def _column_of_odd(kind: str, texts: Texts) -> Made:
    """Return the same one by one, for there is something odd among them."""
    make = _MAKERS[kind]
    values = [None if text is None else make(text) for text in texts]
    is_text = kind == "string"
    odd = [
        row for row, (text, value) in enumerate(zip(texts, values, strict=True))
        if (text != value if is_text else value is None and text is not None)
    ]
    return Made(pyarrow().array(values, types()[kind]), odd)


def _to_readable(text: str) -> str:
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _to_whole(bits: int) -> Callable[[str], int | None]:
    def to_whole(text: str) -> int | None:
        try:
            number = int(text)
        except ValueError:
            return None
        return number if -(2 ** (bits - 1)) <= number < 2 ** (bits - 1) else None

    return to_whole


def _to_microseconds(text: str) -> int | None:
    try:
        seconds = float(text)
    except ValueError:
        return None
    return round(seconds * 1e6) if math.isfinite(seconds) and _FIRST_SECOND <= seconds <= LAST_SECOND else None


_MAKERS: dict[str, Callable[[str], Any]] = {
    "string": _to_readable, "int": _to_whole(32), "long": _to_whole(64), "timestamp": _to_microseconds,
}
