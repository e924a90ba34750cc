"""Writes and reads the files of an archive with pyarrow, using a few megabytes of memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from blueque.archives import picking
from blueque.archives.layout import Archive, Output
from blueque.archives.partitions import File
from blueque.archives.picking import Partition
from blueque.archives.stores import REQUESTS_AT_ONCE
from blueque.protocol.archiving import Written
from blueque.tables import arrow

if TYPE_CHECKING:
    import pyarrow as pa

CODEC = "zstd"
ROWS = 65_536  # the most rows of a row group
GROUP_BYTES = 16 * 2**20  # bytes of a row group before compression, about
OPEN = 64  # the most files at a time
HELD_BYTES = 128 * 2**20  # bytes of rows in memory that are in no file yet, about


class Files:
    """The files of one writer: one for each day, and group, or several if its rows are not in order."""

    def __init__(self, output: Output) -> None:
        self._output, self._schema = output, arrow.schema(output.archive.fields)
        self._open: dict[Partition, _Open] = {}  # the last written at the end
        self.paths: list[str] = []
        self.rows = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows; see `picking.pick`."""
        for partition, rows in picking.by_partition(batch, self._output.archive.is_by_group):
            file = self._open.pop(partition, None) or self._new(partition)
            self._open[partition] = file
            file.add(rows.select(self._schema.names))
            self.rows += rows.num_rows
            while len(self._open) > OPEN or self._held() > HELD_BYTES:
                self._open.pop(next(iter(self._open))).close()

    def close(self) -> list[str]:
        """Write everything to the files, and return their paths."""
        while self._open:
            self._open.popitem()[1].close()
        return self.paths

    def _new(self, partition: Partition) -> _Open:
        self.paths.append(self._output.path(*partition, len(self.paths) + 1))
        return _Open(self._output.archive.create(self.paths[-1]), self._schema)

    def _held(self) -> int:
        return sum([file.bytes for file in self._open.values()])


class _Open:
    def __init__(self, file: pa.NativeFile, schema: pa.Schema) -> None:
        from pyarrow import parquet  # here: pyarrow is imported only when needed, see arrow.py

        self._file = file
        self._writer = parquet.ParquetWriter(file, schema, compression=CODEC)
        self._held: list[pa.RecordBatch] = []
        self._rows = self.bytes = 0

    def add(self, batch: pa.RecordBatch) -> None:
        self._held.append(batch)
        self._rows += batch.num_rows
        self.bytes += batch.nbytes
        if self._rows >= ROWS or self.bytes >= GROUP_BYTES:
            self._flush()

    def close(self) -> None:
        self._flush()
        self._writer.close()
        self._file.close()

    def _flush(self) -> None:
        if self._held:
            self._writer.write_table(
                arrow.pyarrow().Table.from_batches(self._held), row_group_size=ROWS
            )
        self._held, self._rows, self.bytes = [], 0, 0


def written(archive: Archive, files: Iterable[File]) -> Iterator[list[Written]]:
    """Yield, in order, the fields of archived tasks that show whether a task has changed."""
    from pyarrow import parquet

    pa = arrow.pyarrow()
    for file in files:
        with parquet.ParquetFile(archive.open(file.path)) as source:
            for batch in source.iter_batches(
                10_000, columns=["task_id", "status", "updated", "attempts"]
            ):
                updated = batch["updated"].cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
                columns = [batch["task_id"], batch["status"], updated, batch["attempts"]]
                yield list(map(Written, *[column.to_pylist() for column in columns]))


def count_rows(archive: Archive, paths: Iterable[str]) -> int:
    """Return how many rows the files have, as their footers say."""
    from pyarrow import parquet

    with ThreadPoolExecutor(REQUESTS_AT_ONCE) as threads:
        footers = threads.map(lambda path: parquet.read_metadata(archive.open(path)), paths)
        return sum(footer.num_rows for footer in footers)
