"""The sink of streams: each micro-batch comes into its queue once, all at once, by its number and the stream's name.

Spark tells the number of a batch to `commit` only. So workers stage under the name of the stream, and commit decides.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from blueque.client import Client
from blueque.errors import InvalidInput
from blueque.rows import Rows
from blueque.spark.layout import Layout, lay_out
from blueque.spark.sink import Sink, parse
from blueque.spark.writer import Report, accepted, chunks_of, open_staging, stage, written

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


def make_stream_writer(schema: StructType, options: Mapping[str, str]) -> StreamWriter:
    """Return the writer for what the options say. Spark asks for one for each batch, and again to commit it."""
    sink = parse(options, "name")
    if sink.run is None:
        raise InvalidInput("option 'name' is missing: a stream is known by its name, the same as long as its checkpoint")
    if sink.keys:
        raise InvalidInput("option 'key' is not for streams: each batch comes once as it is; with keys, use foreachBatch")
    return StreamWriter(sink, lay_out(schema, sink))


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes the batches of a stream to a queue."""

    def __init__(self, sink: Sink, layout: Layout) -> None:
        self.sink, self.layout = sink, layout

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Report:
        """Stage what one task of Spark has of a batch; Spark calls this in its workers."""
        return written(self.sink, self.layout, iterator, self._put)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Decide; what attempts that have died have staged is discarded."""
        done = accepted(messages)
        with self.sink.connected() as client:
            outcome = open_staging(client, self.sink, is_stream=True).commit(chunks_of(done), batchId)
        rows = sum(report.rows for report in done)
        if outcome.is_replay and outcome.rows != rows:
            raise InvalidInput(
                f"stream {self.sink.run!r} of queue {self.sink.queue!r} has committed batch {batchId} with {outcome.rows} "
                f"rows, and here it has {rows}: a query with a new checkpoint needs a new name"
            )

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Drop what was staged. What is decided stays, and is finished when the batch is tried again."""
        with self.sink.connected() as client:
            open_staging(client, self.sink, is_stream=True).discard(chunks_of(messages))

    def _put(self, client: Client, pieces: Iterator[Rows], report: Report) -> None:
        report.chunks = stage(open_staging(client, self.sink, is_stream=True), pieces)
