"""Reads the hashes of a slice of a snapshot into record batches of Apache Arrow.

One round trip for each batch. The next batch is requested while the columns of this one are made.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

from blueque.connection.redis import Command, Connection, Patience, Redis, pack, raise_refusal
from blueque.errors import InvalidInput, RedisAway, SnapshotGone
from blueque.model import columns
from blueque.model.snapshot import Slice
from blueque.tables import arrow
from blueque.tables.decode import Shape

if TYPE_CHECKING:
    import pyarrow as pa

Missing = Literal["drop", "null"]

FIRST_ROWS, LEAST_ROWS, MOST_ROWS = 100, 16, 2000  # rows of a batch
BYTES = 8 * 2**20  # bytes of a batch, about


def schema(fields: Sequence[str] | None = None) -> pa.Schema:
    """Return the schema of a table with these columns; None: those of `columns.DEFAULT_FIELDS`."""
    return arrow.schema(columns.require_fields(fields))


def read(
    redis: Redis, piece: Slice, fields: Sequence[str] | None = None, missing: Missing = "drop"
) -> Iterator[pa.RecordBatch]:
    """Yield the tasks of a slice, oldest first, as record batches of at most 2000 rows.

    Batches of large tasks have fewer rows.
    fields: names of columns, see columns.COLUMNS; fewer are faster.
    missing: of a task that is gone or malformed: no row ("drop"), or a row with its id only ("null").
    A malformed number becomes null. Bytes that are not UTF-8 are written as \\xff.
    Raises SnapshotGone when the snapshot has expired, NotInstalled without pyarrow, RedisAway.
    """
    if missing not in ("drop", "null"):
        raise InvalidInput(f'missing is "drop" or "null", not {missing!r}')
    shape = Shape(columns.require_fields(fields), piece.listed_as, missing == "null")
    return _Reader(redis, piece, shape).batches()


class _Reader:
    """Reads one slice on its own connection: the caller may use the other one between two batches."""

    def __init__(self, redis: Redis, piece: Slice, shape: Shape) -> None:
        self._redis, self._piece, self._shape = redis.another(), piece, shape
        self._connection: Connection | None = None
        self._request: list[bytes] = []  # the last one
        self._count = 0  # how many replies are to come
        self._is_sent = False
        self._known: list[str] = [] if piece.key else [*piece.ids[piece.first : piece.last]]
        self._place = piece.first  # behind the ids that are known or requested
        self._asked = 0  # how many ids are requested

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
        """Request the tasks with these ids, and more ids if few are left."""
        piece, begin = self._piece, self._place
        places: list[Command] = []
        if piece.key and begin < piece.last and len(self._known) < MOST_ROWS:
            self._place = end = min(begin + MOST_ROWS, piece.last)
            # In a list the oldest is at the tail, in a sorted set at the head.
            places = [
                ("ZRANGE", piece.key, begin, end - 1)
                if piece.is_scored
                else ("LRANGE", piece.key, -end, -begin - 1)
            ]
        self._asked = self._place - begin
        self._request = [*self._shape.requests(ids), *map(pack, places)]
        self._count, self._is_sent = len(ids) + len(places), False
        try:
            self._send()
        except RedisAway:  # `_answer` tries again
            self._close()

    def _send(self) -> None:
        if self._connection is None:
            self._connection = self._redis.connection()
        self._connection.send(self._request)
        self._is_sent = True

    def _answer(self) -> list[Any]:
        """Return the replies about the tasks, and store the ids that were requested."""
        replies = self._receive()
        if self._asked:
            found = replies.pop()
            raise_refusal([found])
            if len(found) < self._asked:
                raise SnapshotGone(self._piece.key)
            self._known += found if self._piece.is_scored else reversed(found)
        return replies

    def _receive(self) -> list[Any]:
        patience = Patience(self._redis.patience, self._redis.sleep)
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
