"""Decodes tasks into a table: the commands that read them, and the record batch of their replies."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from itertools import compress
from json.encoder import encode_basestring_ascii as to_json
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from blueque.connection.redis import pack
from blueque.model import keys
from blueque.model.columns import COLUMNS, LISTED_AS, OTHER, TASK_ID
from blueque.tables import arrow

if TYPE_CHECKING:
    import pyarrow as pa

Cells = Sequence[str | None]

MOST_PLANS = 1000  # plans for hashes with other fields, or in another order

# Always read: a task has both, and without them the hash is not a task.
_PROOF = ("status", "queue")
_TASK = keys.task("").encode()


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
        self._others = _Others(self._fields) if OTHER in fields else None
        words = pack(
            ("HGETALL", "?") if self._others is not None else ("HMGET", "?", *self._fields)
        )
        self._before, self._after = words.split(b"$1\r\n?\r\n")

    def requests(self, ids: Sequence[str]) -> bytes:
        """Return the commands that read these tasks, in Redis' wire format."""
        encoded = [task.encode("utf-8", "surrogateescape") for task in ids]
        sizes = {*map(len, encoded)}
        if len(sizes) == 1:  # the usual case: UUIDs
            begin = self._before + b"$%d\r\n%b" % (len(_TASK) + sizes.pop(), _TASK)
            end = b"\r\n" + self._after
            return begin + (end + begin).join(encoded) + end
        return b"".join(
            [
                b"%b$%d\r\n%b%b\r\n%b"
                % (self._before, len(_TASK) + len(task), _TASK, task, self._after)
                for task in encoded
            ]
        )

    def batch(self, ids: Sequence[str], replies: Sequence[Any]) -> pa.RecordBatch:
        """Return the tasks with these ids, given the replies of Redis."""
        if {*map(type, replies)} != {list}:  # a key of a wrong type counts as missing
            nothing: list[None] = [] if self._others is not None else [None] * len(self._fields)
            replies = [reply if type(reply) is list else [*nothing] for reply in replies]
        others: Sequence[str | None] = ()
        rows = replies
        if self._others is not None:
            rows, others = self._others.split(replies)
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
        if self._others is not None:
            made[OTHER] = pa.array(others, pa.string())
        return pa.RecordBatch.from_arrays(
            [made[column.name] for column in self._columns], schema=self.schema
        )


class _Plan(NamedTuple):
    """Where in a reply, with a None at its end, each column is, and how to make the JSON of the
    other fields.
    """

    columns: Callable[[Sequence[Any]], tuple[str | None, ...]]
    rest: Callable[[Sequence[Any]], str | None]


class _Others:
    """Splits hashes into the fields that have a column, and a JSON object of all others.

    Most hashes have the same fields in the same order, so the plan for them is made once.
    """

    def __init__(self, fields: Sequence[str]) -> None:
        self._fields = fields
        self._plans: dict[tuple[str, ...], _Plan] = {}

    def split(
        self, replies: Sequence[list[Any]]
    ) -> tuple[list[tuple[str | None, ...]], list[str | None]]:
        rows, others = [], []
        for reply in replies:
            names = tuple(reply[::2])
            plan = self._plans.get(names) or self._plan(names)
            reply.append(None)  # the value of a missing field
            rows.append(plan.columns(reply))
            others.append(plan.rest(reply))
        return rows, others

    def _plan(self, names: tuple[str, ...]) -> _Plan:
        place = {name: 2 * number + 1 for number, name in enumerate(names)}
        columns = itemgetter(*[place.get(name, -1) for name in self._fields])
        rest = [name for name in names if name not in self._fields]
        template = ",".join([to_json(name).replace("%", "%%") + ":%s" for name in rest])
        places = [place[name] for name in rest]
        plan = _Plan(columns, _Rest("{" + template + "}", places) if rest else lambda row: None)
        if len(self._plans) < MOST_PLANS:
            self._plans[names] = plan
        return plan


class _Rest:
    def __init__(self, template: str, places: Sequence[int]) -> None:
        self._template, self._places = template, places

    def __call__(self, row: Sequence[Any]) -> str:
        return self._template % tuple([to_json(row[place]) for place in self._places])


def _with(other: str | None, field: str, text: str | None) -> str:
    """Return the JSON with one more field."""
    return json.dumps({**json.loads(other or "{}"), field: text}, separators=(",", ":"))
