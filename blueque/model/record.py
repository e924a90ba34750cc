"""Records in Redis: hashes whose fields have types."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Types = Mapping[str, Callable[[str], Any]]


def parse(fields: Mapping[str, str], types: Types) -> dict[str, Any]:
    """Return the fields with their types. A field whose text does not fit its type is left out."""
    record: dict[str, Any] = {}
    for name, read in types.items():
        if name in fields:
            try:
                record[name] = read(fields[name])
            except ValueError:
                continue
    return record
