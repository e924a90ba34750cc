"""The functions behind the data source `blueque`. Spark finds its class in
discovery/pyspark_blueque.

They run in Python processes that Spark starts beside its driver, and share nothing with your
program. Writing is in sink.py (the options), layout.py (the columns), writer.py and stream.py.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from blueque.errors import BluequeError, InvalidInput
from blueque.spark import jobs

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType


Made = TypeVar("Made")


def schema(options: Mapping[str, str]) -> StructType:
    """Return the schema for these options."""
    from blueque.spark.reader import make_schema  # here: writing does not need it

    return make_schema(options)


def reader(schema: StructType, options: Mapping[str, str]) -> DataSourceReader:
    """Return the reader. Raises InvalidInput before Redis is asked."""
    from blueque.spark.reader import make_reader  # here: writing does not need it

    return make_reader(schema, options)


def _in_short(make: Callable[..., Made]) -> Callable[..., Made]:
    """Strip the traceback from our own errors: Spark prints all of it before the message."""

    @functools.wraps(make)
    def made(*given: Any) -> Made:
        try:
            return make(*given)
        except BluequeError as error:
            short = jobs.told(error)
        raise short.with_traceback(None) from None

    return made


@_in_short
def writer(schema: StructType, options: Mapping[str, str], overwrite: bool) -> DataSourceWriter:
    """Return the writer of a frame. Raises InvalidInput before any row is read."""
    from blueque.spark.writer import make_writer  # here: reading does not need it

    if overwrite:
        raise InvalidInput(
            "mode 'overwrite' would mean to empty the queue first: write with mode 'append'"
        )
    return make_writer(schema, options)


@_in_short
def stream_writer(
    schema: StructType, options: Mapping[str, str], overwrite: bool
) -> DataSourceStreamWriter:
    """Return the writer of the batches of a stream. Raises InvalidInput before any row is read."""
    from blueque.spark.stream import make_stream_writer  # here: reading does not need it

    if overwrite:
        raise InvalidInput(
            "outputMode 'complete' writes all rows again with each batch: use outputMode 'append', or 'update'"
        )
    return make_stream_writer(schema, options)


@_in_short
def stream_reader() -> DataSourceStreamReader:
    """Raise InvalidInput: a queue cannot be read as a stream."""
    raise InvalidInput(
        "format('blueque') cannot be read as a stream: read finished tasks with spark.read.format('blueque') or "
        "blueque.spark.read, as often as you need them"
    )
