"""JSON of Arrow columns: a text for each value, as Spark's `to_json` makes it with the options in
frames.py.

A null is null, a time is ISO 8601 in UTC with microseconds, a day is 2030-01-31, bytes are base64,
a map is an object. A number that JSON does not have becomes text: "NaN", "Infinity".
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from json import encoder as json_encoder
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

quoted: Callable[[str], str] = json_encoder.encode_basestring
# as a whole: what follows an escaped backslash is not an escape
_ESCAPE = re.compile(r"\\(?:u00..|.)")


def objects(names: Sequence[str], columns: Sequence[pa.Array]) -> list[str]:
    """Return a JSON object for each row."""
    fields = ",".join(quoted(name).replace("%", "%%") + ":%s" for name in names)
    template = f"{{{fields}}}"
    return [template % row for row in zip(*map(texts, columns), strict=True)]


def texts(column: pa.Array) -> list[str]:
    """Return the JSON of each value."""
    made = _maker(column.type)(column)
    if not column.null_count:
        return made
    return [
        text if valid else "null"
        for text, valid in zip(made, column.is_valid().to_pylist(), strict=True)
    ]


def as_in_java(text: str) -> str:
    """Return JSON that is made here as Spark makes it, byte by byte: it escapes with capitals, as \\u001F."""
    return (
        _ESCAPE.sub(lambda escape: escape[0][:2] + escape[0][2:].upper(), text)
        if "\\u00" in text
        else text
    )


def _maker(kind: pa.DataType) -> Callable[[Any], list[str]]:
    for is_it, make in _MAKERS:
        if is_it(kind):
            return make
    raise TypeError(f"no JSON is made of {kind}")  # `rows.require_json` lets none through


def _plain(column: pa.Array) -> list[str]:
    return pc.cast(column, pa.string()).to_pylist()


def _strings(column: pa.Array) -> list[str]:
    if column.null_count:
        column = pc.fill_null(column, "")
    return list(map(quoted, column.to_pylist()))


def _floats(column: pa.Array) -> list[str]:
    # A float has a shorter text than its double: 0.1 would be 0.10000000149011612.
    values = (
        map(float, _plain(column.fill_null(0)))
        if column.type == pa.float32()
        else column.fill_null(0).to_pylist()
    )
    return [
        json.dumps(value) if value - value == 0 else _NO_NUMBERS[str(value)] for value in values
    ]


def _times(column: pa.Array) -> list[str]:
    zone = "Z" if column.type.tz is not None else ""
    if zone:
        column = column.cast(pa.timestamp("us", tz="UTC"))
    plain = _plain(column.cast(pa.timestamp("us")))
    return [f'"{text.replace(" ", "T")}{zone}"' if text else "null" for text in plain]


def _days(column: pa.Array) -> list[str]:
    return [f'"{text}"' for text in _plain(column)]


def _bytes(column: pa.Array) -> list[str]:
    return [f'"{base64.b64encode(value or b"").decode()}"' for value in column.to_pylist()]


def _nulls(column: pa.Array) -> list[str]:
    return ["null"] * len(column)


def _structs(column: pa.Array) -> list[str]:
    names = [field.name for field in column.type]
    return objects(names, column.flatten()) if names else ["{}"] * len(column)


def _lists(column: pa.Array) -> list[str]:
    values = texts(column.values)
    return [f"[{','.join(values[start:end])}]" for start, end in _spans(column)]


def _maps(column: pa.Array) -> list[str]:
    names = [text if text.startswith('"') else f'"{text}"' for text in texts(column.keys)]
    pairs = [f"{name}:{value}" for name, value in zip(names, texts(column.items), strict=True)]
    return [f"{{{','.join(pairs[start:end])}}}" for start, end in _spans(column)]


def _spans(column: pa.Array) -> Iterator[tuple[int, int]]:
    offsets = column.offsets.to_pylist()
    return pairwise(offsets)


_NO_NUMBERS = {"nan": '"NaN"', "inf": '"Infinity"', "-inf": '"-Infinity"'}
_MAKERS: list[tuple[Callable[[Any], bool], Callable[[Any], list[str]]]] = [
    (pa.types.is_string, _strings),
    (pa.types.is_large_string, _strings),
    (pa.types.is_integer, _plain),
    (pa.types.is_boolean, _plain),
    (pa.types.is_floating, _floats),
    (pa.types.is_decimal, _plain),
    (pa.types.is_timestamp, _times),
    (pa.types.is_date, _days),
    (pa.types.is_binary, _bytes),
    (pa.types.is_large_binary, _bytes),
    (pa.types.is_null, _nulls),
    (pa.types.is_struct, _structs),
    (pa.types.is_map, _maps),
    (pa.types.is_list, _lists),
    (pa.types.is_large_list, _lists),
]
