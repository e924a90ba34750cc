"""Writes and reads the files of an archive with pyarrow, with at most some megabytes in memory."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from blueque.archives import durable, layout, picking
from blueque.archives.layout import File
from blueque.protocol.archiving import Written
from blueque.tables import arrow

if TYPE_CHECKING:
    import pyarrow as pa

CODEC = "zstd"
ROWS = 65_536  # the most rows of a row group
GROUP_BYTES = 16 * 2**20  # bytes of a row group before compression, about
OPEN_DAYS = 8  # the most files that are open at a time


class Files:
    """The files of one writer in a folder: one for each day, or several if its rows are not in
    order.
    """

    def __init__(self, folder: str, prefix: str = "") -> None:
        self._folder, self._prefix = folder, prefix
        self._open: dict[str | None, _Open] = {}  # the last written at the end
        self._count = 0
        self.rows = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows; see `picking.pick`."""
        for day, rows in picking.by_day(batch):
            file = self._open.pop(day, None) or self._new(day)
            self._open[day] = file
            file.add(rows)
            self.rows += rows.num_rows
            if len(self._open) > OPEN_DAYS:
                self._open.pop(next(iter(self._open))).close()

    def close(self) -> None:
        """Write everything to the files."""
        while self._open:
            self._open.popitem()[1].close()

    def _new(self, day: str | None) -> _Open:
        folder = os.path.join(self._folder, layout.partition("day", day))
        os.makedirs(folder, exist_ok=True)
        self._count += 1
        return _Open(os.path.join(folder, f"{self._prefix}{self._count:05}{layout.SUFFIX}"))


class _Open:
    def __init__(self, path: str) -> None:
        from pyarrow import parquet  # here: pyarrow is imported only when needed, see arrow.py

        self._writer = parquet.ParquetWriter(
            path, arrow.schema(picking.FILE_FIELDS), compression=CODEC
        )
        self._held: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0

    def add(self, batch: pa.RecordBatch) -> None:
        self._held.append(batch)
        self._rows += batch.num_rows
        self._bytes += batch.nbytes
        if self._rows >= ROWS or self._bytes >= GROUP_BYTES:
            self._flush()

    def close(self) -> None:
        self._flush()
        self._writer.close()

    def _flush(self) -> None:
        if self._held:
            self._writer.write_table(
                arrow.pyarrow().Table.from_batches(self._held), row_group_size=ROWS
            )
        self._held, self._rows, self._bytes = [], 0, 0


def sync_staged(staging: str) -> int:
    """Write all staged files to the disk, and return how many rows they have."""
    from pyarrow import parquet

    rows, folders = 0, {staging}
    for path, _ in layout.staged(staging):
        rows += parquet.read_metadata(path).num_rows
        durable.sync(path)
        folders.add(os.path.dirname(path))
    for folder in sorted(folders):
        durable.sync(folder)
    return rows


def written(files: Iterable[File]) -> Iterator[list[Written]]:
    """Yield, in pieces and in order, the fields of tasks in the files that tell whether a task has
    changed since.
    """
    from pyarrow import parquet

    pa = arrow.pyarrow()
    for file in files:
        with parquet.ParquetFile(file.path) as source:
            for batch in source.iter_batches(
                10_000, columns=["task_id", "status", "updated", "attempts"]
            ):
                updated = batch["updated"].cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
                columns = [batch["task_id"], batch["status"], updated, batch["attempts"]]
                yield list(map(Written, *[column.to_pylist() for column in columns]))


def count_rows(files: Iterable[File]) -> int:
    """Return how many rows the files have, as their footers say."""
    from pyarrow import parquet

    return sum(parquet.read_metadata(file.path).num_rows for file in files)
