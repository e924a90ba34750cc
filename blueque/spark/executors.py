"""Run functions in the workers of Spark and return their results.

It uses `mapInArrow`, which works without RDDs in Spark 3.5 and 4, with Connect and on clusters.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from blueque.errors import BluequeError, RedisAway

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

T = TypeVar("T")
U = TypeVar("U")

Batches = Iterable[pa.RecordBatch]


def on_each_partition(frame: DataFrame, function: Callable[[Batches], U]) -> list[U]:
    """Return function(batches) for each partition of the frame, each called in a Spark task.

    Spark may call it more than once for a partition, even at the same time. So what it leaves
    behind needs a new name each time, and only the returned value counts.
    function: must be picklable, such as one at the top of a module that the workers have.
    """

    def work(batches: Batches) -> Iterator[pa.RecordBatch]:
        answer = pickle.dumps(function(batches))
        yield pa.record_batch([pa.array([answer], pa.binary())], ["answer"])

    return [pickle.loads(row.answer) for row in frame.mapInArrow(work, "answer binary").collect()]


def read_each(
    spark: SparkSession,
    read: Callable[[T], Iterable[pa.RecordBatch]],
    things: Sequence[T],
    schema: StructType,
    partitions: int | None = None,
) -> DataFrame:
    """Return a frame with the rows that read(thing) yields in the workers for each thing.

    Each query reads them anew. partitions: the maximum; None: one for each thing.
    """

    def work(batches: Batches) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from read(things[number])

    return _numbers(spark, len(things), partitions).mapInArrow(work, schema)


def run(spark: SparkSession, function: Callable[[T], U], things: Sequence[T]) -> list[U]:
    """Return function(thing) for each of the things, each called in a Spark task.

    A BluequeError is raised here as it was there; Spark retries RedisAway.
    """

    def work(batches: Batches) -> dict[int, Any]:
        numbers = [number for batch in batches for number in batch.column(0).to_pylist()]
        return {number: _call(function, things[number]) for number in numbers}

    answers: dict[int, Any] = {}
    for some in on_each_partition(_numbers(spark, len(things)), work):
        answers |= some
    for answer in answers.values():
        if isinstance(answer, BluequeError):
            raise answer
    return [answers[number] for number in range(len(things))]


def _numbers(spark: SparkSession, count: int, partitions: int | None = None) -> DataFrame:
    """Return the numbers from 0 up to `count`, in at most so many partitions."""
    return spark.range(0, count, 1, min(count, partitions or count) or 1)


def _call(function: Callable[[T], U], thing: T) -> U | BluequeError:
    try:
        return function(thing)
    except RedisAway:
        raise
    except BluequeError as error:
        return error.with_traceback(None)
