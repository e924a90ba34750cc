"""Cuts rows into chunks for one transaction each, and groups them by the shard of their task."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from operator import itemgetter
from typing import Any

from blueque.model.ids import shards_of
from blueque.producer.row_batch import MAX_ROWS, Rows

MAX_BYTES = 4 * 2**20  # bytes of parameters in one transaction: Redis serves nothing else meanwhile
HELD_BYTES = 32 * 2**20  # bytes of parameters in all buckets together


def split(rows: Rows, most_bytes: int = MAX_BYTES) -> Iterator[Rows]:
    """Yield the rows in chunks, limited by their number and by the bytes of their parameters."""
    for start in range(0, len(rows.parameters), MAX_ROWS):
        some = rows if len(rows.parameters) <= MAX_ROWS else _between(rows, start, start + MAX_ROWS)
        if sum(map(len, some.parameters)) <= most_bytes:
            yield some
        else:
            yield from _split_by_size(some, most_bytes)


def by_shard(pieces: Iterable[Rows], shards: int, held_bytes: int = HELD_BYTES) -> Iterator[Rows]:
    """Yield the rows in chunks, each of one shard unless too many rows would have to be held.

    This is for speed only: concurrent tasks of Spark then seldom write to the same ledger.
    pieces: with ids.
    """
    buckets = _Buckets(shards)
    for rows in pieces:
        yield from buckets.put(rows)
        while buckets.size > held_bytes:
            yield from split(buckets.take_largest())
    yield from buckets.rest()


class _Buckets:
    """Rows that wait until there are enough of their shard."""

    def __init__(self, shards: int) -> None:
        self._shards = shards
        self._pieces: dict[int, list[Rows]] = {}
        self._counts = [0] * shards
        self._sizes = [0] * shards
        self.size = 0

    def put(self, rows: Rows) -> Iterator[Rows]:
        """Take rows, and yield the chunks that are full now."""
        places: dict[int, list[int]] = {}
        for place, shard in enumerate(shards_of(rows.ids or (), self._shards)):
            places.setdefault(shard, []).append(place)
        for shard, its in places.items():
            self._add(shard, _at(rows, its) if len(places) > 1 else rows)
            if self._counts[shard] >= MAX_ROWS:
                *full, last = split(self._take(shard))
                yield from full
                if len(last.parameters) == MAX_ROWS:
                    yield last
                else:
                    self._add(shard, last)

    def take_largest(self) -> Rows:
        return self._take(max(range(self._shards), key=self._sizes.__getitem__))

    def rest(self) -> Iterator[Rows]:
        """Yield what is left, in chunks of several shards."""
        left = [self._take(shard) for shard in sorted(self._pieces)]
        if left:
            yield from split(_together(left))

    def _add(self, shard: int, rows: Rows) -> None:
        size = sum(map(len, rows.parameters))
        self._pieces.setdefault(shard, []).append(rows)
        self._counts[shard] += len(rows.parameters)
        self._sizes[shard] += size
        self.size += size

    def _take(self, shard: int) -> Rows:
        self.size -= self._sizes[shard]
        self._counts[shard] = self._sizes[shard] = 0
        return _together(self._pieces.pop(shard))


def _split_by_size(rows: Rows, most_bytes: int) -> Iterator[Rows]:
    start = size = 0
    for place, text in enumerate(rows.parameters):
        if size + len(text) > most_bytes and place > start:
            yield _between(rows, start, place)
            start, size = place, 0
        size += len(text)
    yield _between(rows, start, len(rows.parameters))


def _between(rows: Rows, start: int, end: int) -> Rows:
    return _changed(rows, lambda name, column: column[start:end])


def _at(rows: Rows, places: Sequence[int]) -> Rows:
    if len(places) == 1:
        return _changed(rows, lambda name, column: [column[places[0]]])
    chosen = itemgetter(*places)  # in C, and so in a third of the time
    return _changed(rows, lambda name, column: chosen(column))


def _together(pieces: Sequence[Rows]) -> Rows:
    """Return the rows of all pieces, which have the same columns."""
    if len(pieces) == 1:
        return pieces[0]
    return _changed(
        pieces[0], lambda name, _: list(chain.from_iterable(getattr(rows, name) for rows in pieces))
    )


def _changed(rows: Rows, change: Callable[[str, Sequence[Any]], Sequence[Any]]) -> Rows:
    columns: dict[str, Any] = {
        name: change(name, column)
        for name, column in rows._asdict().items()
        if column is not None and name != "are_json"
    }
    return rows._replace(**columns)
