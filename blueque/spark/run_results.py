"""The results of a run as a DataFrame: what is in Redis, and what was archived meanwhile.

The group of the run lists its tasks. Each partition reads its part of them from Redis first, and
then from the archive what Redis has no more: a task is in the archive before it leaves Redis.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import SparkSession

from blueque.archives import reading
from blueque.client import Client
from blueque.errors import InvalidInput
from blueque.model.columns import DEFAULT_FIELDS, LISTED_AS, TASK_ID, require_fields
from blueque.model.encoding import require_queue_name, require_run_name, require_whole
from blueque.model.snapshot import SLICE, Slice
from blueque.model.units import redis_url
from blueque.queries import groups, run_progress
from blueque.spark.parsing import parsed
from blueque.spark.reader import MAX_PARTITIONS, PATIENCE, schema_of
from blueque.tables import arrow, reader

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from blueque.spark.enqueueing import Enqueued

FIELDS = tuple(name for name in DEFAULT_FIELDS if name != LISTED_AS)
_FOR_US = ("status", "queue", "group")  # is the task there, and of this run?


class Wish(NamedTuple):
    """Which tasks a query reads: those of a run, from Redis and from this archive.

    since: the first day of the archive that may have some.
    """

    url: str
    queue: str
    run: str
    group: str
    fields: tuple[str, ...]
    archive: str | None
    since: str


def results(
    run: Enqueued | str,
    schema: StructType | str | None = None,
    *,
    queue: str | None = None,
    archive: str | os.PathLike[str] | None = None,
    fields: Sequence[str] | None = None,
    partitions: int | None = None,
    spark: SparkSession | None = None,
    url: str | None = None,
) -> DataFrame:
    """Return the tasks of a run as a DataFrame, one row for each, wherever they are by now.

    run: what `bs.enqueue` has returned; or the name of a run, with its `queue`.
    schema: of the results, which are JSON then: the column `result` has this type, and is null
        where it does not fit. Left out: it is text.
    archive: the directory into which the queue is archived, if it is. A task that is neither in
        Redis nor there is a row with its id only.
    fields: names of columns, see blueque.model.columns; None: all but `listed_as` and `other`.
    partitions: about how many; None: one for each 50,000 tasks. spark: the active session if left
        out. url: as for `blueque.Client`.
    Each query reads anew. That the frame was made does not count as collected: when the results
    are where they are needed, call `run.collected()`.
    Raises RunDropped; InvalidInput for a run without a group of its own.
    """
    name, of_queue, address = _named(run, queue, url)
    wanted = require_fields(FIELDS if fields is None else fields)
    if LISTED_AS in wanted:
        raise InvalidInput(f"the results of a run have no column {LISTED_AS!r}: it is the status")
    count = (
        None if partitions is None else require_whole(partitions, "partitions", 1, MAX_PARTITIONS)
    )
    wish, size, may_repeat = _look(address, of_queue, name, wanted, archive)
    step = SLICE if count is None else max(math.ceil(size / count), 1)
    firsts = range(0, size, step)

    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from rows(wish, firsts[number], min(firsts[number] + step, size))

    session = spark or SparkSession.getActiveSession() or SparkSession.builder.getOrCreate()
    numbers = session.range(0, len(firsts), 1, len(firsts) or 1)
    frame = numbers.mapInArrow(work, schema_of(wanted))
    return parsed(frame.dropDuplicates([TASK_ID]) if may_repeat else frame, schema)


def rows(wish: Wish, first: int, last: int) -> Iterator[pa.RecordBatch]:
    """Yield the tasks of the run that are in these places of its group."""
    own = [name for name in (TASK_ID, *_FOR_US) if name not in wish.fields]
    fields, gone = [*wish.fields, *own], list[str]()
    with closing(Client(wish.url, patience=PATIENCE)) as client:
        ids = groups.members(client.connections, wish.group, first, last - first)
        piece = Slice(wish.queue, "", "", 0, len(ids), ids=tuple(ids))
        for batch in reader.read(client.connections, piece, fields, "null"):
            there = arrow.pyarrow().compute.is_valid(batch["status"])
            gone += batch.filter(arrow.pyarrow().compute.invert(there))[TASK_ID].to_pylist()
            yield _of_run(batch.filter(there), wish)
    if gone:
        yield from _archived(wish, fields, gone)


def _archived(wish: Wish, fields: Sequence[str], gone: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield tasks that are not in Redis any more: as the archive has them, or with their ids only."""
    pa = arrow.pyarrow()
    if wish.archive is not None:
        days = (wish.since, "9999-12-31")
        table = reading.read(
            wish.archive, queue=wish.queue, days=days, group=wish.group, fields=[*fields]
        )
        table = table.filter(arrow.pyarrow().compute.is_in(table[TASK_ID], pa.array(gone)))
        found = {*table[TASK_ID].to_pylist()}
        gone = [task for task in gone if task not in found]
        for batch in table.to_batches():
            yield _of_run(batch, wish)
    schema = arrow.schema(wish.fields)
    columns = [
        pa.array(gone, pa.string()) if field.name == TASK_ID else pa.nulls(len(gone), field.type)
        for field in schema
    ]
    yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _of_run(batch: pa.RecordBatch, wish: Wish) -> pa.RecordBatch:
    """Return the rows of the run: tasks that its tasks have spawned may be in its group, too."""
    compute = arrow.pyarrow().compute
    is_ours = compute.and_(
        compute.equal(batch["group"], wish.group), compute.equal(batch["queue"], wish.queue)
    )
    return batch.filter(is_ours).select([*wish.fields])


def _named(run: Enqueued | str, queue: str | None, url: str | None) -> tuple[str, str, str]:
    """Return the name of the run, its queue, and the address of Redis."""
    if not isinstance(run, str):
        if queue is not None:
            raise InvalidInput("queue is for the name of a run: this run says its queue")
        if run.run is None:
            raise InvalidInput("these tasks are of no run, so nothing lists them: give them run=")
        return run.run, run.queue, url or run.url
    if queue is None:
        raise InvalidInput("the name of a run needs the queue of the run: queue=")
    return require_run_name(run), require_queue_name(queue), url or redis_url()[0]


def _look(
    url: str, queue: str, run: str, fields: tuple[str, ...], archive: str | os.PathLike[str] | None
) -> tuple[Wish, int, bool]:
    """Return what to read, how many places the group has, and whether a task may be in two of them:
    a run that was dropped, and made again, has entered its tasks again.
    """
    with closing(Client(url)) as client:
        group = run_progress.require_own_group(client.connections, queue, run)
        seen = client.group(group).progress()
        record = client.get_run(queue, run) or {}
    made = datetime.fromtimestamp(seen.record.get("created", time.time()), UTC)
    since = (made - timedelta(days=1)).date().isoformat()  # clocks differ
    directory = None if archive is None else os.fspath(archive)
    may_repeat = TASK_ID in fields and seen.members > record.get("tasks", seen.members)
    return Wish(url, queue, run, group, fields, directory, since), seen.members, may_repeat
