"""The sink of streams: each micro-batch comes into its queue once, all at once, by its number and
the name of the stream.

Spark gives the number of a batch to `commit` only. So workers stage under the name of the stream,
and commit decides.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from blueque.client import Client
from blueque.errors import InvalidInput, RunDropped
from blueque.model.run import Record
from blueque.producer.row_batch import Rows
from blueque.spark.layout import Layout, lay_out
from blueque.spark.messages import Message, driver, reports_of
from blueque.spark.sink import Sink, parse
from blueque.spark.writer import (
    Report,
    accepted,
    chunks_of,
    join_staging,
    open_staging,
    stage,
    written,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

QUERY_ID = "sql.streaming.queryId"  # a property that Spark gives the jobs of a stream

log = logging.getLogger("blueque")


def make_stream_writer(schema: StructType, options: Mapping[str, str]) -> StreamWriter:
    """Return the writer for these options. Spark asks for one for each batch, and again to commit
    it.
    """
    sink = parse(options, "name")
    if sink.run is None:
        raise InvalidInput(
            "option 'name' is missing: a stream is known by its name, the same as long as its checkpoint"
        )
    if sink.keys:
        raise InvalidInput(
            "option 'key' is not for streams: each batch comes once as it is; with keys, use foreachBatch"
        )
    layout = lay_out(schema, sink)
    with sink.connected() as client:
        opened = open_staging(client, sink, is_stream=True)
        opened.discard_of_dead()
        return StreamWriter(sink, layout, opened.record, driver())


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes the batches of a stream to a queue."""

    def __init__(self, sink: Sink, layout: Layout, record: Record, owner: str) -> None:
        self.sink, self.layout, self._owner = sink, layout, owner
        self._record = record  # the record of the stream when Spark asked for this writer

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Message:
        """Stage what one task of Spark has of a batch. Spark calls this in its workers."""
        return Message(written(self.sink, self.layout, iterator, self._put))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Commit the batch; discard what dead attempts have staged."""
        done = accepted(reports_of(messages))
        query = next((report.query for report in done if report.query is not None), None)
        with self.sink.connected() as client:
            outcome = join_staging(client, self.sink, self._record).commit(
                chunks_of(done), batchId, query
            )
        rows = sum(report.rows for report in done)
        if outcome.is_replay and outcome.rows != rows:
            told = (
                f"stream {self.sink.run!r} of queue {self.sink.queue!r} has committed batch {batchId} with {outcome.rows} "
                f"rows, and here it has {rows}"
            )
            # it may be a query that counts from 0 again
            if rows and None in (query, self._record.get("query")):
                raise InvalidInput(f"{told}: a query with a new checkpoint needs a new name")
            log.warning(
                "%s, which are left out: was the query changed before it was started again?", told
            )

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Discard what was staged. A committed batch stays, and is finished when the batch is tried
        again.
        """
        # nothing of it is staged any more
        with self.sink.connected() as client, suppress(RunDropped):
            join_staging(client, self.sink, self._record).discard(chunks_of(reports_of(messages)))

    def _put(self, client: Client, pieces: Iterator[Rows], report: Report) -> None:
        report.query = _query()
        report.chunks = stage(join_staging(client, self.sink, self._record, self._owner), pieces)


def _query() -> str | None:
    """Return Spark's id of the query of this process, which its checkpoint keeps. None: unknown."""
    context = TaskContext.get()
    return None if context is None else context.getLocalProperty(QUERY_ID)
