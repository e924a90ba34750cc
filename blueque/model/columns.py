"""The columns of a table of tasks: name, kind, and field of the hash. Works without pyarrow."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from blueque.errors import InvalidInput, InvalidType
from blueque.model.encoding import LAST_SECOND

FIRST_SECOND = -62135596800.0  # of the year 1

TASK_ID, LISTED_AS, OTHER = "task_id", "listed_as", "other"


class Column(NamedTuple):
    """One column.

    kind: string, int (32 bits), long (64 bits) or timestamp (microseconds, UTC; Unix seconds in Redis).
    field: of the task hash; empty: the column is not a single field.
    """

    name: str
    kind: str
    field: str = ""


def _columns(kind: str, *names: str) -> list[Column]:
    return [Column(name, kind, name) for name in names]


# listed_as is the status by whose list the task was found; its hash is read later, and may say
# another.
_DEFAULT = [
    Column(TASK_ID, "string"),
    *_columns("string", "queue", "status", "parameters", "result", "error", "error_type", "node"),
    Column("pid", "long", "pid"),
    Column("attempts", "int", "attempt"),
    Column("priority", "int", "priority"),
    *_columns("string", "key", "group"),
    *_columns("timestamp", "created", "updated", "started", "finished", "eta"),
    Column(LISTED_AS, "string"),
]
# A JSON object of all other fields: an archive holds the whole task.
COLUMNS = {column.name: column for column in [*_DEFAULT, Column(OTHER, "string")]}
DEFAULT_FIELDS = tuple(column.name for column in _DEFAULT)
ARCHIVE_FIELDS = tuple(COLUMNS)


def require_fields(fields: Sequence[str] | None) -> tuple[str, ...]:
    """Return names of columns, each once; for None the default ones. Raises InvalidInput, InvalidType."""
    if fields is None:
        return DEFAULT_FIELDS
    if isinstance(fields, str) or not all(isinstance(name, str) for name in fields):
        raise InvalidType(
            f"fields are the names of columns, such as ['task_id', 'created'], not {fields!r}"
        )
    unknown = [name for name in fields if name not in COLUMNS]
    if unknown:
        raise InvalidInput(f"there is no column {unknown[0]!r}; there are {', '.join(COLUMNS)}")
    twice = [name for number, name in enumerate(fields) if name in fields[:number]]
    if twice or not fields:
        raise InvalidInput(
            f"the column {twice[0]!r} is named twice" if twice else "no column is named"
        )
    return tuple(fields)


def to_microseconds(text: str) -> int | None:
    """Return Unix seconds as microseconds; None: malformed, or not in the years 1 to 9999."""
    try:
        seconds = float(text)
    except ValueError:
        return None
    return (
        round(seconds * 1e6)
        if math.isfinite(seconds) and FIRST_SECOND <= seconds <= LAST_SECOND
        else None
    )


def to_whole(text: str, bits: int = 32) -> int | None:
    """Return a whole number; None: malformed, or too large for so many bits."""
    try:
        number = int(text)
    except ValueError:
        return None
    return number if -(2 ** (bits - 1)) <= number < 2 ** (bits - 1) else None
