"""The chunks of a backlog in order, from the present place of a feed. One transaction makes tasks
of a chunk.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import NamedTuple

from blueque.backlog.files import Backlog, BacklogFile, mark_of, size_of
from blueque.backlog.jsonl import JsonRows
from blueque.backlog.parquet import ParquetRows, count_rows
from blueque.backlog.rows import Portion, Rows, Shape
from blueque.errors import BacklogRefused
from blueque.model.encoding import count_of, seconds_of
from blueque.model.ids import ids_of_feed
from blueque.model.new_task import Fields
from blueque.protocol.bulk import Batch, NewTasks
from blueque.protocol.feeding import Cursor, FeedChunk

MAX_BYTES = 4 << 20  # bytes of parameters in a chunk: Redis serves nothing else meanwhile
COUNTED = 1000  # the most files whose rows are counted beforehand, for the progress


class Aim(NamedTuple):
    """What all tasks of a feed have in common.

    instance: of the record of the feed. store: returns tasks as they are stored, see sealing.py.
    """

    queue: str
    feed: str
    instance: str
    options: Fields
    store: Callable[[NewTasks, Fields], NewTasks]


class FeedChunks:
    """Makes one chunk after another, and never holds more than the rows of one.

    size: how many rows make a chunk. start: where to begin. done: the files that are fed, and their
        marks.
    """

    def __init__(
        self,
        backlog: Backlog,
        shape: Shape,
        aim: Aim,
        size: int,
        start: Cursor,
        done: Mapping[str, str],
    ) -> None:
        self.done = dict(done)
        # files that are done, but whose marks are in no chunk yet
        self.news: dict[str, str] = {}
        self.ahead: deque[BacklogFile] = deque()  # the files that are not done
        self._backlog = backlog
        self._shape = shape
        self._aim = aim
        self._size = size
        self._cursor = start
        self._rows: Rows | None = None  # the rows of the first file ahead
        self._mark = ""  # the mark of that file
        self._refusal: BacklogRefused | None = None
        self._bad: list[BacklogRefused] = []
        self._behind = self._all = 0  # bytes of the files that are done, and of all files
        self._checked: set[str] = set()

    def look(self) -> None:
        """Read which files there are.

        Raises BacklogRefused when a file that is fed, or half fed, has changed.
        """
        last = self._cursor.file
        files = self._backlog.files({*self.done, last} - {""})
        if last and last not in self.done and last not in {file.name for file in files}:
            raise BacklogRefused(
                last, None, f"it is gone, and only {self._cursor.row:,} of its rows are fed"
            )
        for file in files:
            if file.name in self.done:
                if file.name not in self._checked or file.name == last:
                    self._require_same(file, self.done[file.name])
            elif file.name == last:
                self._require_begun_same(file)
            elif last and file.order < last.split("/"):
                raise BacklogRefused(
                    file.name, None, f"it sorts before {last}, which is already being fed"
                )
        self.ahead = deque(file for file in files if file.name not in self.done)
        self._behind = sum(map(size_of, self.done.values()))
        self._all = self._behind + sum(map(_size, self.ahead))

    def next(self) -> FeedChunk | None:
        """Return the next chunk. None: all files of the last look are fed.

        Raises BacklogRefused for a row that cannot be fed, once all rows before it are in chunks.
        """
        if self._refusal is not None:
            raise self._refusal
        before, portion = self._cursor.rows, Portion()
        try:
            while (
                portion.rows < self._size
                and portion.size < MAX_BYTES
                and (self._rows or self._open())
            ):
                self._take(portion, before)
        except BacklogRefused as error:
            if not portion.rows:
                raise
            self._refusal = error
        return self._pack(portion, before) if portion.rows else None

    def nothing(self) -> FeedChunk:
        """Return a chunk without rows, which leaves the feed where it is."""
        return FeedChunk(self._cursor.rows, self._cursor, None)

    def renew(self, chunk: FeedChunk) -> FeedChunk:
        """Return the same chunk with tasks as of now."""
        batch = None if chunk.batch is None else self._batch(chunk.batch.tasks)
        return FeedChunk(chunk.before, chunk.after, batch, chunk.skipped, chunk.done, chunk.fed)

    def take_bad(self) -> list[BacklogRefused]:
        """Return the rows that were left out since the last call."""
        bad, self._bad = self._bad, []
        return bad

    def count_rows(self) -> int | None:
        """Return how many rows the whole backlog has. None: unknown in advance."""
        if len(self.ahead) > COUNTED or not all(one.is_parquet for one in self.ahead):
            return None
        in_current = self._cursor.row if self._cursor.file not in self.done else 0
        return self._cursor.rows - in_current + sum(map(count_rows, self.ahead))

    def close(self) -> None:
        if self._rows is not None:
            self._rows.close()

    def _take(self, portion: Portion, before: int) -> None:
        assert self._rows is not None
        rows, file = self._rows, self.ahead[0]
        try:
            is_over = not rows.take(portion, self._size, MAX_BYTES)
        finally:  # a bad row may come after good rows
            if rows.row:  # else no row of the file is fed, and it may still be changed
                done = before + portion.rows
                self._cursor = Cursor(file.name, self._mark, rows.row, rows.offset, done)
        if is_over:
            self.ahead.popleft()
            rows.close()
            self._rows = None
            self._require_same(file, self._mark)
            self.done[file.name] = self.news[file.name] = self._mark
            self._behind += size_of(self._mark)

    def _open(self) -> bool:
        """Open the next file. False: there is none."""
        if not self.ahead:
            return False
        last, file = self._cursor, self.ahead[0]
        is_begun = file.name == last.file
        self._mark = last.mark if is_begun else mark_of(file)
        kind = ParquetRows if file.is_parquet else JsonRows
        place = (last.row, last.offset) if is_begun else (0, 0)
        self._rows = kind(file, self._shape, *place)
        return True

    def _share(self) -> float:
        """Return the share of the backlog that is in chunks, 0 to 1, by the bytes of its files."""
        part = self._rows.share * size_of(self._mark) if self._rows is not None else 0.0
        return min((self._behind + part) / max(self._all, 1), 1.0)

    def _pack(self, portion: Portion, before: int) -> FeedChunk:
        aim, after = self._aim, self._cursor._replace(share=round(self._share(), 4))
        self._bad += portion.bad
        news, self.news = self.news, {}
        if not portion.parameters:
            return FeedChunk(before, after, None, len(portion.bad), news)
        has_keys = self._shape.key is not None
        texts = portion.keys if has_keys else [b"%d" % (before + place) for place in portion.places]
        ids = ids_of_feed(aim.queue, aim.feed if has_keys else aim.instance, texts)
        tasks = NewTasks(ids, portion.parameters, keys=portion.keys if has_keys else None)
        stored = aim.store(tasks.once() if has_keys else tasks, aim.options)
        batch = self._batch(stored)
        return FeedChunk(before, after, batch, len(portion.bad), news, len(portion.parameters))

    def _batch(self, tasks: NewTasks) -> Batch:
        return Batch(
            self._aim.queue, tasks, time.time(), {**self._aim.options, "feed": self._aim.feed}
        )

    def _require_same(self, file: BacklogFile, mark: str) -> None:
        if mark_of(file, mark) != mark:
            raise BacklogRefused(file.name, None, "it has changed since it was fed, or during that")
        self._checked.add(file.name)

    def _require_begun_same(self, file: BacklogFile) -> None:
        last = self._cursor
        if mark_of(file, last.mark) != last.mark:
            raise BacklogRefused(
                file.name, None, f"it has changed, and {last.row:,} of its rows are fed already"
            )


def cursor(record: Mapping[str, str]) -> Cursor:
    """Return the place of a feed."""
    row, offset, rows = (count_of(record.get(name)) for name in ("row", "offset", "rows"))
    return Cursor(
        record.get("file", ""),
        record.get("mark", ""),
        row,
        offset,
        rows,
        seconds_of(record.get("share")) or 0.0,
    )


def _size(file: BacklogFile) -> int:
    try:
        return os.path.getsize(file.path)
    except OSError:
        return 0
