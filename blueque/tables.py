"""Tasks as tables: reads the hashes of a slice of a snapshot into record batches of Apache Arrow.

One round trip for each batch, and the next is on its way while the columns of this one are made.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from itertools import compress
from json.encoder import encode_basestring_ascii as to_json
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Literal

from blueque import arrow, columns, keys
from blueque.columns import COLUMNS, LISTED_AS, OTHER, TASK_ID
from blueque.connection import Command, Connection, Patience, Redis, pack, raise_refusal
from blueque.errors import InvalidInput, RedisAway, SnapshotGone
from blueque.snapshots import Slice

if TYPE_CHECKING:
    import pyarrow as pa

Missing = Literal["drop", "null"]
Row = Sequence[str | None]

FIRST_ROWS, LEAST_ROWS, MOST_ROWS = 100, 16, 2000      # of a batch
BYTES = 8 * 2**20                                      # about what a batch takes at most
MOST_WAYS = 1000                                       # to take hashes apart that are remembered

# Read in any case: a task has both, and without them there is none.
_PROOF = ("status", "queue")


def schema(fields: Sequence[str] | None = None) -> pa.Schema:
    """Return the schema of a table with these columns; None: those of `columns.DEFAULT_FIELDS`."""
    return arrow.schema(columns.require_fields(fields))


def read(
    redis: Redis, piece: Slice, fields: Sequence[str] | None = None, missing: Missing = "drop"
) -> Iterator[pa.RecordBatch]:
    """Yield the tasks of a slice, oldest first, as record batches of at most 2000 rows: of fewer when tasks are large.

    fields: names of columns, see columns.COLUMNS; fewer are faster.
    missing: what becomes of an entry whose task is gone, or is none: no row, or one with no more than its id ("null").
    What is no number is null where a number belongs. Bytes that are not UTF-8 are written as \\xff.
    Raises SnapshotGone when the snapshot has expired, NotInstalled without pyarrow, RedisAway.
    """
    if missing not in ("drop", "null"):
        raise InvalidInput(f'missing is "drop" or "null", not {missing!r}')
    shape = _Shape(columns.require_fields(fields), piece.listed_as, missing == "null")
    return _Reader(redis, piece, shape).batches()


class _Shape:
    """What a batch is to hold, and how it is made of what Redis answers."""

    def __init__(self, fields: tuple[str, ...], listed_as: str, keeps_missing: bool) -> None:
        self.schema = arrow.schema(fields)
        self._columns = [COLUMNS[name] for name in fields]
        self._listed_as, self._keeps_missing = listed_as, keeps_missing
        self._fields = tuple(dict.fromkeys([*_PROOF, *[column.field for column in self._columns if column.field]]))
        self._has_other = OTHER in fields
        self._ways: dict[tuple[str | None, ...], _Way] = {}
        words = pack(("HGETALL", "") if self._has_other else ("HMGET", "", *self._fields))
        before, after = words.split(b"$0\r\n\r\n", 1)
        self._request = before.replace(b"%", b"%%") + b"$%d\r\n%b\r\n" + after.replace(b"%", b"%%")

    def requests(self, ids: Sequence[str]) -> bytes:
        """Return the commands that read these tasks, in Redis' wire format."""
        hashes = [keys.task(task).encode("utf-8", "surrogateescape") for task in ids]
        return b"".join([self._request % (len(key), key) for key in hashes])

    def batch(self, ids: Sequence[str], replies: Sequence[Any]) -> pa.RecordBatch:
        """Return the tasks with these ids, of which Redis has answered so."""
        if not all(type(reply) is list for reply in replies):    # a key of another type
            replies = [reply if type(reply) is list else [] for reply in replies]
        if self._has_other:
            rows, others = self._taken_apart(replies)
        else:
            empty = (None,) * len(self._fields)
            rows, others = [reply or empty for reply in replies], []
        cells: list[Row] = list(zip(*rows, strict=True))
        if None in cells[0] and not self._keeps_missing:
            is_there = [status is not None or queue is not None for status, queue in zip(*cells[:2], strict=True)]
            ids, others = list(compress(ids, is_there)), list(compress(others, is_there))
            cells = [list(compress(row, is_there)) for row in cells]
        return self._assemble(ids, dict(zip(self._fields, cells, strict=True)), others)

    def _taken_apart(self, replies: Sequence[list[str | None]]) -> tuple[list[Row], list[str | None]]:
        """Return of each whole hash the fields that have a column, and the others."""
        rows, others = [], []
        for reply in replies:
            names = tuple(reply[::2])
            way = self._ways.get(names)
            if way is None:
                if len(self._ways) > MOST_WAYS:
                    self._ways.clear()
                way = self._ways[names] = _Way(names, self._fields)
            reply.append(None)                         # what a field that is not there reads
            rows.append(way.cells(reply))
            others.append(way.other(reply))
        return rows, others

    def _assemble(self, ids: Sequence[str], cells: dict[str, Row], others: list[str | None]) -> pa.RecordBatch:
        pa = arrow.pyarrow()
        made = []
        for column in self._columns:
            if column.name == LISTED_AS:
                array = pa.repeat(pa.scalar(self._listed_as, pa.string()), len(ids))
            elif column.name == OTHER:
                array = None
            else:
                array, odd = arrow.column(column.kind, ids if column.name == TASK_ID else cells[column.field])
                for row in odd if others and column.field else ():
                    other = {**json.loads(others[row] or "{}"), column.field: cells[column.field][row]}
                    others[row] = json.dumps(other, separators=(",", ":"))
            made.append(array)
        return pa.RecordBatch.from_arrays(
            [pa.array(others, pa.string()) if array is None else array for array in made], schema=self.schema
        )


class _Way:
    """How to take a hash apart that has these fields in this order: most tasks that have ended alike have the same.

    cells: gives those that have a column, of the answer of HGETALL with a None behind it.
    """

    def __init__(self, names: Sequence[str | None], fields: Sequence[str]) -> None:
        place = {name: 2 * number + 1 for number, name in enumerate(names)}
        self.cells: Callable[[Row], Row] = itemgetter(*[place.get(field, -1) for field in fields])
        others = [name for name in names if name is not None and name not in fields]
        self._places = [place[name] for name in others]
        self._form = "{" + ",".join(to_json(name).replace("%", "%%") + ":%s" for name in others) + "}"

    def other(self, reply: Sequence[Any]) -> str | None:
        """Return the others as a JSON object; None: there are none."""
        return self._form % tuple([to_json(reply[place]) for place in self._places]) if self._places else None


class _Reader:
    """Reads one slice, on a connection of its own: whoever takes the batches may use the first one in between."""

    def __init__(self, redis: Redis, piece: Slice, shape: _Shape) -> None:
        self._redis, self._piece, self._shape = redis.another(), piece, shape
        self._connection: Connection | None = None
        self._request, self._count = b"", 0            # what was asked last, and how many answers are to come
        self._is_sent = False
        self._known: list[str] = [] if piece.key else [*piece.ids[piece.first : piece.last]]
        self._place = piece.first                      # up to which the ids are known, or asked for
        self._asked = 0                                # how many ids are asked for

    def batches(self) -> Iterator[pa.RecordBatch]:
        rows = FIRST_ROWS
        try:
            self._ask([])
            self._answer()
            ids = self._next(rows)
            self._ask(ids)
            while ids:
                hashes = self._answer()
                following = self._next(rows)
                if following:
                    self._ask(following)
                batch = self._shape.batch(ids, hashes)
                rows = max(LEAST_ROWS, min(MOST_ROWS, BYTES * len(ids) // max(batch.nbytes, 1)))
                if batch.num_rows:
                    yield batch
                ids = following
        finally:
            self._close()

    def _next(self, rows: int) -> list[str]:
        ids, self._known = self._known[:rows], self._known[rows:]
        return ids

    def _ask(self, ids: Sequence[str]) -> None:
        """Ask for the tasks with these ids, and for more ids if few are known."""
        piece, begin = self._piece, self._place
        places: list[Command] = []
        if piece.key and begin < piece.last and len(self._known) < MOST_ROWS:
            self._place = end = min(begin + MOST_ROWS, piece.last)
            # In a list the oldest is at the tail, in a sorted set at the head.
            places = [("ZRANGE", piece.key, begin, end - 1) if piece.is_scored else ("LRANGE", piece.key, -end, -begin - 1)]
        self._asked = self._place - begin
        self._request = self._shape.requests(ids) + b"".join(map(pack, places))
        self._count, self._is_sent = len(ids) + len(places), False
        try:
            self._send()
        except RedisAway:                              # `_answer` tries again
            self._close()

    def _send(self) -> None:
        if self._connection is None:
            self._connection = self._redis.connection()
        self._connection.send([self._request])
        self._is_sent = True

    def _answer(self) -> list[Any]:
        """Return what was answered of the tasks; ids that were asked for are known now."""
        replies = self._receive()
        if self._asked:
            found = replies.pop()
            raise_refusal([found])
            if len(found) < self._asked:
                raise SnapshotGone(self._piece.key)
            self._known += found if self._piece.is_scored else reversed(found)
        return replies

    def _receive(self) -> list[Any]:
        patience = Patience(self._redis.patience)
        while True:
            try:
                if not self._is_sent:
                    self._send()
                assert self._connection is not None
                return self._connection.receive(self._count)
            except RedisAway as error:
                self._close()
                patience.pause_or_raise(error)

    def _close(self) -> None:
        self._is_sent = False
        if self._connection is not None:
            self._connection.close()
            self._connection = None
