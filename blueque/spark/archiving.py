"""Archives with Spark: its workers write the files, and read them as a table.

The claim on a queue, and the moment at which a task is deleted from Redis, are as without Spark,
see blueque/archives. So either continues where the other was killed, and both may share an archive.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from datetime import date
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import Window, functions
from pyspark.sql.types import DateType, StructField, StructType

from blueque.archives import opening, parquet_files, picking, reading
from blueque.archives.archiver import Archived, Work
from blueque.archives.archiver import archive as archive_with
from blueque.archives.archiver import write as write_here
from blueque.archives.layout import Archive, Output
from blueque.archives.partitions import File
from blueque.client import Client
from blueque.connection.redis import Redis
from blueque.errors import BluequeError
from blueque.model import units
from blueque.model.columns import ARCHIVE_FIELDS, COLUMNS
from blueque.model.snapshot import SLICE, Slice, Snapshot
from blueque.model.states import FINISHED
from blueque.spark import executors, jobs
from blueque.spark.parsing import parsed
from blueque.spark.reader import PATIENCE, TYPES
from blueque.system.hosts import name_for_people
from blueque.tables import arrow

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

PIECE = SLICE  # tasks that one worker writes at a time
MOST_ROWS = 10_000  # of a batch of Arrow
MOST_PARTITIONS = 200
MOST_TWICE = 10_000  # tasks archived more than once that a query lists by id


def archive(
    spark: SparkSession,
    queue: str,
    directory: str | os.PathLike[str],
    older_than: float | str | None = None,
    limit: int | None = None,
    statuses: str | Iterable[str] = FINISHED,
    url: str | None = None,
    by_group: bool | None = None,
    unverified: bool = False,
) -> Archived:
    """Move the finished tasks of a queue into Parquet files by queue and day, and delete them from Redis.

    As `blueque.archive`, but the workers of Spark read and write, 50,000 tasks at a time. They must
    reach the directory by the same path as the driver, and Redis at the same address. The next run,
    of either kind, continues one that was killed.
    older_than: seconds since their end, or text such as "7d".
    limit: the most tasks to move.
    by_group, unverified: see `blueque.archive`.
    Raises ArchiveRefused, InvalidInput, RedisAway; JobFailed when the workers fail for another reason.
    """
    address = units.redis_url()[0] if url is None else url
    return archive_with(
        queue,
        directory,
        older_than=older_than,
        limit=limit,
        statuses=statuses,
        url=address,
        by_group=by_group,
        unverified=unverified,
        engine=lambda redis, work: _write(spark, address, redis, work),
    )


def read_archive(
    spark: SparkSession,
    directory: str | os.PathLike[str],
    latest: bool = True,
    queue: str | None = None,
    days: tuple[date | str, date | str] | None = None,
    group: str | None = None,
    unverified: bool = False,
    schema: StructType | str | None = None,
) -> DataFrame:
    """Return the tasks in an archive as a DataFrame: the columns of `bs.read` except listed_as, and
    `other` and `day`.

    It has what is published now, each row once, even while tasks are archived. A later query fails
    if one of its files was removed since; read the archive again then.
    latest: only the newest state of a task that was archived more than once, because it was put in
        line again. This reads all ids at once; otherwise nothing is read before a query.
    queue, days, group: only the tasks of that queue, of the days from the first to the last of the
        two, and of that group.
    unverified: see `blueque.archive`.
    schema: of the results, as for `bs.read`.
    Raises ArchiveRefused, InvalidInput.
    """
    place = opening.open_(directory, unverified)
    files = reading.select(place, queue, days, group)
    frame = parsed(_table(spark, place, files), schema)
    if group is not None:
        frame = frame.where(functions.col("group") == group)
    return _latest(frame) if latest else frame


class Part(NamedTuple):
    """What one worker writes, into a place of its own."""

    url: str
    queue: str
    piece: Slice
    before: float | None
    output: Output


def _write(spark: SparkSession, url: str, redis: Redis, work: Work) -> Sequence[str]:
    """Write the files of a batch in the workers: an engine, see blueque/archives/archiver.py."""
    pieces = Snapshot("", 0.0, 0, tuple(work.pieces)).slices(PIECE)
    parts = [Part(url, work.queue, piece, work.before, work.output) for piece in pieces]
    with jobs.failing(
        work.queue,
        None,
        "nothing of this batch was deleted from Redis: run it again",
        (BluequeError,),
    ):
        written = executors.run(spark, write_part, parts)
    place = work.output.archive
    made = [path for paths in written for path in paths]
    rows = _count_unique(place, made)
    if rows is None:
        # a list may have a task twice, as 1.0.0 can leave it: one process has to see all
        return write_here(redis, work)
    work.tell(rows)
    return made


def write_part(part: Part) -> list[str]:
    """Write the tasks of a slice in a worker, and return the paths of the files."""
    part.output.archive.require_same(name_for_people())
    # Its own: Spark may run the same in another worker, and only one of them counts.
    files, seen = parquet_files.Files(part.output.part()), set[str]()
    with closing(Client(part.url, patience=PATIENCE)) as client:
        for rows in client.read(part.piece, ARCHIVE_FIELDS):
            files.write(picking.pick(rows, part.queue, part.before, seen))
    return files.close()


def _schema() -> StructType:
    return StructType(
        [
            StructField(name, DateType() if name == reading.DAY else TYPES[COLUMNS[name].kind])
            for name in reading.FIELDS
        ]
    )


def _table(spark: SparkSession, place: Archive, files: Sequence[File]) -> DataFrame:
    """Return the rows of these files."""
    if place.is_local:
        return _table_of_directory(spark, place, files)
    return _table_of_objects(spark, place, files)


def _table_of_objects(spark: SparkSession, place: Archive, files: Sequence[File]) -> DataFrame:
    """Return the rows of these files: workers read them as they were written, without Hadoop."""

    def read(file: File) -> Iterator[pa.RecordBatch]:
        for table in reading.load(place, file, reading.FIELDS):
            yield from table.to_batches(MOST_ROWS)

    return executors.read_each(spark, read, files, _schema(), MOST_PARTITIONS)


def _table_of_directory(spark: SparkSession, place: Archive, files: Sequence[File]) -> DataFrame:
    """Return the rows of these files, as Spark reads Parquet itself."""
    schema = _schema()
    if not files:
        return spark.createDataFrame([], schema)
    # A missing file must be an error, whatever the session's option for missing files is.
    frame = (
        spark.read.schema(schema)
        .option("ignoreMissingFiles", "false")
        .option("ignoreCorruptFiles", "false")
        .option("basePath", place.root)
        .parquet(*[file.path for file in files])
    )
    return frame.select(*reading.FIELDS)


def _latest(frame: DataFrame) -> DataFrame:
    """Return the newest row of each task."""
    # Hashes take less than half the time of ids. If two ids have the same hash, both are compared by
    # id, which does no harm.
    mark = functions.xxhash64("task_id")
    counts = frame.groupBy(mark.alias("mark")).count()
    twice = [row.mark for row in counts.where(counts["count"] > 1).limit(MOST_TWICE + 1).collect()]
    if not twice:
        return frame
    # Only a few: the others need not be sorted, nor read where a query asks for a day.
    is_twice = mark.isin(twice) if len(twice) <= MOST_TWICE else functions.lit(True)
    newest = Window.partitionBy("task_id").orderBy(functions.desc_nulls_last("updated"))
    several = frame.where(is_twice).withColumn("_place", functions.row_number().over(newest))
    return frame.where(~is_twice).unionByName(several.where("_place = 1").drop("_place"))


def _count_unique(place: Archive, paths: Sequence[str]) -> int | None:
    """Return how many tasks these files have. None: a task is in them twice."""
    from pyarrow import parquet as pq  # here: pyarrow is imported only when needed, see arrow.py

    pa = arrow.pyarrow()
    chunks = []
    for path in paths:
        with pq.ParquetFile(place.open(path)) as source:
            chunks += source.read(["task_id"])["task_id"].chunks
    ids = pa.chunked_array(chunks, pa.string())
    return len(ids) if pa.compute.count_distinct(ids).as_py() == len(ids) else None
