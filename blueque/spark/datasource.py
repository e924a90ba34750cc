"""The data source `blueque` behind its class in discovery/pyspark_blueque, where Spark has sources
in Python: from 4.0, for streams from 4.1.

It runs in Python processes that Spark starts beside its driver, and shares nothing with your
program. What it does is in reader.py and in sink.py (the options), layout.py (the columns),
writer.py and stream.py.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark import __version__
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceReader,
    InputPartition,
    WriterCommitMessage,
)

from blueque.errors import BluequeError, InvalidInput
from blueque.spark import reader as reading
from blueque.spark.layout import lay_out
from blueque.spark.messages import Message, driver, reports_of
from blueque.spark.sink import parse
from blueque.spark.writer import Writer, make_writer

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import DataSourceStreamReader, DataSourceStreamWriter
    from pyspark.sql.types import StructType


Made = TypeVar("Made")


class FrameWriter(DataSourceArrowWriter):
    """Has a writer do what Spark asks for."""

    def __init__(self, inner: Writer) -> None:
        self._inner = inner

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Message:
        return Message(self._inner.write(iterator))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._inner.commit(reports_of(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._inner.abort()


class TaskReader(DataSourceReader):
    """Reads tasks: `partitions` where Spark plans, `read` in the workers."""

    def __init__(self, wish: reading.Wish) -> None:
        self._wish = wish

    def partitions(self) -> list[InputPartition]:
        """Take the snapshot, and return a partition for each slice of it."""
        return [InputPartition(piece) for piece in reading.freeze(self._wish)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the tasks of one slice. Raises SnapshotGone when its ids are no longer in Redis."""
        if partition.value is not None:  # else a partition of Spark's own: there was none
            yield from reading.rows(self._wish, partition.value)


def schema(options: Mapping[str, str]) -> StructType:
    """Return the schema for these options: that of a stream has the same columns."""
    of_both = {
        name: text for name, text in options.items() if name.lower() not in reading.OF_STREAMS
    }
    return reading.schema_of(reading.parse(of_both).fields)


def reader(schema: StructType, options: Mapping[str, str]) -> DataSourceReader:
    """Return the reader. Raises InvalidInput before Redis is asked."""
    return TaskReader(reading.parse(options).of_schema(schema))


def _in_short(make: Callable[..., Made]) -> Callable[..., Made]:
    """Strip the traceback from our own errors: Spark prints all of it before the message."""

    @functools.wraps(make)
    def made(*given: Any) -> Made:
        try:
            return make(*given)
        except BluequeError as error:
            short = error
        raise short.with_traceback(None) from None

    return made


@_in_short
def writer(schema: StructType, options: Mapping[str, str], overwrite: bool) -> FrameWriter:
    """Return the writer of a frame. Raises InvalidInput before any row is read."""
    if overwrite:
        raise InvalidInput(
            "mode 'overwrite' would mean to empty the queue first: write with mode 'append'"
        )
    if "checkpointlocation" in map(str.lower, options):
        raise InvalidInput("option 'checkpointLocation' is for streams: give the write a 'run'")
    sink = parse(options)
    return FrameWriter(make_writer(sink, lay_out(schema, sink), driver(os.urandom(4).hex())))


@_in_short
def stream_writer(
    schema: StructType, options: Mapping[str, str], overwrite: bool
) -> DataSourceStreamWriter:
    """Return the writer of the batches of a stream. Raises InvalidInput before any row is read."""
    try:
        from blueque.spark.stream import make_stream_writer  # here: Spark 4.0 does not have it
    except ImportError as error:
        raise InvalidInput(
            f"writeStream.format('blueque') needs Spark 4.1, and this is {__version__}: use foreachBatch with blueque.spark.enqueue"
        ) from error
    if overwrite:
        raise InvalidInput(
            "outputMode 'complete' writes all rows again with each batch: use outputMode 'append', or 'update'"
        )
    return make_stream_writer(schema, options)


@_in_short
def stream_reader(schema: StructType, options: Mapping[str, str]) -> DataSourceStreamReader:
    """Return the reader of finished tasks. Raises InvalidInput before Redis is asked."""
    from blueque.spark.finished_stream import make_stream_reader  # here: only streams need it

    return make_stream_reader(schema, options)
