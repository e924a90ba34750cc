"""The fields of the objects that `--json` prints, and a function that turns a record into an object.

fields.txt lists them; docs/json_page.py writes docs/json.md from it.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from blueque.text.format import times


class Field(NamedTuple):
    """A field, or a path to it, such as `queues[].lost`. type: as in fields.txt."""

    name: str
    type: str
    text: str
    is_optional: bool


class Shape(NamedTuple):
    """A part of several kinds, or kinds that have the same fields.

    kinds: none for a part. verbs: that print it. lines: the groups of fields.
    """

    name: str
    kinds: list[str]
    verbs: list[str]
    note: str
    lines: list[list[Field]]


def read() -> list[Shape]:
    """Return all shapes in the order of fields.txt."""
    text = Path(__file__).with_name("fields.txt").read_text(encoding="utf-8")
    return [_shape(section) for section in re.split(r"^\[", text, flags=re.MULTILINE)[1:]]


def to_object(name: str, record: Any, /, **more: Any) -> dict[str, Any]:
    """Return a record as JSON: each field of the shape is the value of its name in `more`, or else
    of the record.

    name: of the shape, such as `one task`, or of its kind. record: its attributes, or items, have
        the names of the fields.
    """
    found: dict[str, Any] = {}
    for field in _fields_by_shape()[name]:
        if field.name in more:
            value = more[field.name]
        elif isinstance(record, Mapping):
            value = record.get(field.name)
        else:
            value = getattr(record, field.name)
        if field.is_optional and value is None:
            continue
        found |= times(**{field.name: value}) if field.type == "time" else {field.name: value}
    return found


@functools.cache
def _fields_by_shape() -> dict[str, list[Field]]:
    return {
        name: [field for line in shape.lines for field in line if "[" not in field.name]
        for shape in read()
        for name in shape.kinds or [shape.name]
    }


def _shape(section: str) -> Shape:
    head, _, body = section.partition("]\n")
    names, _, verbs = head.partition(": ")
    rows = [line for line in body.splitlines() if line.startswith("| ")]
    note = " ".join(line for line in body.splitlines() if line and not line.startswith("| "))
    kinds = names.split(", ") if verbs else []
    return Shape(names, kinds, verbs.split(", ") if verbs else [], note, [*map(_fields, rows)])


def _fields(row: str) -> list[Field]:
    names, kind, *text = row.removeprefix("| ").split(" | ", 2)
    return [
        Field(name.rstrip("?"), kind, text[0] if text else "", name.endswith("?"))
        for name in names.split(", ")
    ]
