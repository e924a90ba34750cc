"""Decodes tasks into a table: the commands that read them, and the record batch of their replies."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import compress
from typing import TYPE_CHECKING, Any

from blueque.connection.packing import pack_each
from blueque.connection.redis import as_hash
from blueque.model import keys
from blueque.model.columns import COLUMNS, LISTED_AS, OTHER, TASK_ID
from blueque.tables import arrow

if TYPE_CHECKING:
    import pyarrow as pa

Cells = Sequence[str | None]

# Always read: a task has both, and without them the hash is not a task.
_PROOF = ("status", "queue")
_to_json = json.JSONEncoder(separators=(",", ":")).encode


class Shape:
    """A table with some columns, of tasks from the list of one status.

    keeps_missing: an entry whose task is gone, or is malformed, becomes a row with an id only; else
        it is left out.
    """

    def __init__(self, fields: Sequence[str], listed_as: str, keeps_missing: bool) -> None:
        self.schema = arrow.schema(fields)
        self._columns = [COLUMNS[name] for name in fields]
        self._listed_as, self._keeps_missing = listed_as, keeps_missing
        self._fields = tuple(
            dict.fromkeys([*_PROOF, *[column.field for column in self._columns if column.field]])
        )
        self._has_others = OTHER in fields

    def requests(self, ids: Sequence[str]) -> list[bytes]:
        """Return the commands that read these tasks, in Redis' wire format."""
        if self._has_others:
            return pack_each(("HGETALL",), keys.task(""), ids)
        return pack_each(("HMGET",), keys.task(""), ids, self._fields)

    def batch(self, ids: Sequence[str], replies: Sequence[Any]) -> pa.RecordBatch:
        """Return the tasks with these ids, given the replies of Redis."""
        if {*map(type, replies)} != {list}:  # a key of a wrong type counts as missing
            nothing: list[None] = [] if self._has_others else [None] * len(self._fields)
            replies = [reply if type(reply) is list else nothing for reply in replies]
        others: Sequence[str | None] = ()
        rows = replies
        if self._has_others:
            hashes = list(map(as_hash, replies))
            rows = [[fields.pop(name, None) for name in self._fields] for fields in hashes]
            others = [_to_json(fields) if fields else None for fields in hashes]
        cells: list[Cells] = list(zip(*rows, strict=True))
        if None in cells[0] and not self._keeps_missing:
            is_there = [
                status is not None or queue is not None
                for status, queue in zip(*cells[:2], strict=True)
            ]
            ids, others = list(compress(ids, is_there)), list(compress(others, is_there))
            cells = [list(compress(row, is_there)) for row in cells]
        return self._assemble(ids, dict(zip(self._fields, cells, strict=True)), list(others))

    def _assemble(
        self, ids: Sequence[str], cells: dict[str, Cells], others: list[str | None]
    ) -> pa.RecordBatch:
        pa = arrow.pyarrow()
        made: dict[str, Any] = {}
        for column in self._columns:
            if column.name == LISTED_AS:
                made[LISTED_AS] = pa.repeat(pa.scalar(self._listed_as, pa.string()), len(ids))
            elif column.name != OTHER:
                texts = ids if column.name == TASK_ID else cells[column.field]
                made[column.name], odd = arrow.column(column.kind, texts)
                for row in odd if others and column.field else ():
                    others[row] = _with(others[row], column.field, texts[row])
        if self._has_others:
            made[OTHER] = pa.array(others, pa.string())
        return pa.RecordBatch.from_arrays(
            [made[column.name] for column in self._columns], schema=self.schema
        )


def _with(other: str | None, field: str, text: str | None) -> str:
    """Return the JSON with one more field."""
    return _to_json({**json.loads(other or "{}"), field: text})
