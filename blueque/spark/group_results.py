"""The results of a group as a DataFrame: what is in Redis, and what was archived meanwhile.

The group lists its members. Each partition first reads its part of them from Redis, then missing
ones from the archive: a task is archived before it leaves Redis.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import SparkSession

from blueque.archives import reading
from blueque.client import Client
from blueque.errors import InvalidInput
from blueque.model.columns import DEFAULT_FIELDS, LISTED_AS, TASK_ID, require_fields
from blueque.model.group import Group
from blueque.model.snapshot import SLICE, Slice
from blueque.model.units import redis_url
from blueque.queries import groups
from blueque.spark.executors import read_each
from blueque.spark.parsing import parsed
from blueque.spark.reader import PATIENCE, require_partitions, schema_of
from blueque.tables import arrow, hash_reader

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from blueque.spark.enqueueing import Enqueued

FIELDS = tuple(name for name in DEFAULT_FIELDS if name != LISTED_AS)


class Wish(NamedTuple):
    """The tasks that a query reads: the members of a group, from Redis and from this archive.

    since: the first day of the archive that may have some.
    """

    url: str
    group: str
    fields: tuple[str, ...]
    archive: str | None
    since: str


def results(
    group: Enqueued | Group | str,
    schema: StructType | str | None = None,
    *,
    archive: str | os.PathLike[str] | None = None,
    fields: Sequence[str] | None = None,
    partitions: int | None = None,
    spark: SparkSession | None = None,
    url: str | None = None,
) -> DataFrame:
    """Return the tasks of a group as a DataFrame, one row for each, from Redis and the archive.

    Each query reads anew. Creating the frame does not count as collecting: once the results are
    where you need them, call `collected` of the group.
    group: its name, or what `bs.enqueue` returned.
    schema: of JSON results: the column `result` has this type, and is null where it does not fit.
        Default: text.
    archive: the directory into which its tasks are archived, if any. A task that is neither there
        nor in Redis is a row with its id only.
    fields: names of columns, see blueque.model.columns; None: all but `listed_as` and `other`.
    partitions: about how many; None: one for each 50,000 tasks.
    spark: default: the active session.
    url: as for `blueque.Client`.
    Raises NoSuchGroup; InvalidInput for the result of a call without a group.
    """
    name = Group(group).name if isinstance(group, str) else group.as_group().name
    address = url or getattr(group, "url", "") or redis_url()[0]
    wanted = require_fields(FIELDS if fields is None else fields)
    if LISTED_AS in wanted:
        raise InvalidInput(f"the results of a group have no column {LISTED_AS!r}: it is the status")
    count = require_partitions(partitions)
    wish, size = _look(address, name, wanted, archive)
    step = SLICE if count is None else max(math.ceil(size / count), 1)
    parts = [(first, min(first + step, size)) for first in range(0, size, step)]
    session = spark or SparkSession.getActiveSession() or SparkSession.builder.getOrCreate()
    return parsed(read_each(session, partial(rows, wish), parts, schema_of(wanted)), schema)


def rows(wish: Wish, part: tuple[int, int]) -> Iterator[pa.RecordBatch]:
    """Yield the members of the group in a range. part: the first of them, and the first after it."""
    first, last = part
    own = [name for name in (TASK_ID, "status") if name not in wish.fields]
    fields, gone = [*wish.fields, *own], list[str]()
    with closing(Client(wish.url, patience=PATIENCE)) as client:
        ids = groups.members(client.connections, wish.group, first, last - first)
        piece = Slice("", "", "", 0, len(ids), ids=tuple(ids))
        for batch in hash_reader.read(client.connections, piece, fields, "null"):
            there = arrow.pyarrow().compute.is_valid(batch["status"])
            gone += batch.filter(arrow.pyarrow().compute.invert(there))[TASK_ID].to_pylist()
            yield batch.filter(there).select([*wish.fields])
    if gone:
        yield from _archived(wish, fields, gone)


def _archived(wish: Wish, fields: Sequence[str], gone: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield tasks that are no longer in Redis: from the archive, or with their ids only."""
    pa = arrow.pyarrow()
    if wish.archive is not None:
        days = (wish.since, "9999-12-31")
        table = reading.read(wish.archive, days=days, group=wish.group, fields=[*fields])
        table = table.filter(arrow.pyarrow().compute.is_in(table[TASK_ID], pa.array(gone)))
        found = {*table[TASK_ID].to_pylist()}
        gone = [task for task in gone if task not in found]
        yield from table.select([*wish.fields]).to_batches()
    schema = arrow.schema(wish.fields)
    columns = [
        pa.array(gone, pa.string()) if field.name == TASK_ID else pa.nulls(len(gone), field.type)
        for field in schema
    ]
    yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _look(
    url: str, group: str, fields: tuple[str, ...], archive: str | os.PathLike[str] | None
) -> tuple[Wish, int]:
    """Return what to read, and how many members the group has."""
    with closing(Client(url)) as client:
        seen = client.group(group).progress()
    made = datetime.fromtimestamp(seen.record.get("created", time.time()), UTC)
    since = (made - timedelta(days=1)).date().isoformat()  # clocks differ
    directory = None if archive is None else os.fspath(archive)
    return Wish(url, group, fields, directory, since), seen.members
