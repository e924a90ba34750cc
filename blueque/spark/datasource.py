"""The data source `blueque`. Its class is in discovery/pyspark_blueque; data sources in Python need
Spark 4.0.

It runs in Python processes that Spark starts beside its driver, and shares nothing with your
program. The work is in reader.py, write_options.py, layout.py (the columns) and writer.py.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceReader,
    InputPartition,
    WriterCommitMessage,
)

from blueque.errors import BluequeError, InvalidInput
from blueque.spark import reader as reading
from blueque.spark.layout import lay_out
from blueque.spark.write_options import parse
from blueque.spark.writer import Report, Writer, make_writer

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import DataSourceStreamReader
    from pyspark.sql.types import StructType


Made = TypeVar("Made")


@dataclass
class Message(WriterCommitMessage):
    """A report, as Spark carries it."""

    report: Report


class FrameWriter(DataSourceArrowWriter):
    """Calls a writer as Spark asks."""

    def __init__(self, inner: Writer) -> None:
        self._inner = inner

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Message:
        return Message(self._inner.write(iterator))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._inner.commit([each.report for each in messages if isinstance(each, Message)])

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Leave the written tasks: their keys count, and a repeated write makes the rest."""


class TaskReader(DataSourceReader):
    """Reads tasks: `partitions` where Spark plans, `read` in the workers."""

    def __init__(self, wish: reading.Wish) -> None:
        self._wish = wish

    def partitions(self) -> list[InputPartition]:
        """Take the snapshot and return a partition for each slice."""
        return [InputPartition(piece) for piece in reading.freeze(self._wish)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the tasks of one slice. Raises SnapshotGone when its ids are no longer in Redis."""
        if partition.value is not None:  # else a partition of Spark's own: there was none
            yield from reading.rows(self._wish, partition.value)


def schema(options: Mapping[str, str]) -> StructType:
    """Return the schema for these options. A stream has the same columns."""
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
    target = parse(options)
    return FrameWriter(make_writer(target, lay_out(schema, target)))


@_in_short
def stream_writer(schema: StructType, options: Mapping[str, str], overwrite: bool) -> NoReturn:
    """Refuse to write a stream, and say how to do it."""
    raise InvalidInput(
        "a stream writes with foreachBatch, and each batch with format('blueque') or blueque.spark.enqueue"
    )


@_in_short
def stream_reader(schema: StructType, options: Mapping[str, str]) -> DataSourceStreamReader:
    """Return the reader of finished tasks. Raises InvalidInput before Redis is asked."""
    from blueque.spark.finished_stream import make_stream_reader  # here: only streams need it

    return make_stream_reader(schema, options)
