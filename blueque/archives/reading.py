"""Reads an archive: every published row once, even while tasks are archived."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from itertools import chain
from typing import TYPE_CHECKING

from blueque.archives import opening
from blueque.archives.layout import Archive
from blueque.archives.partitions import File
from blueque.archives.stores import REQUESTS_AT_ONCE
from blueque.errors import Contended, InvalidInput
from blueque.model import columns
from blueque.model.columns import DEFAULT_FIELDS, LISTED_AS, OTHER
from blueque.tables import arrow

if TYPE_CHECKING:
    import pyarrow as pa

DAY = "day"
FIELDS = (*[name for name in DEFAULT_FIELDS if name != LISTED_AS], OTHER, DAY)

_TRIES = 10


def read(
    directory: str | os.PathLike[str],
    *,
    queue: str | None = None,
    days: tuple[date | str, date | str] | None = None,
    fields: tuple[str, ...] | list[str] | None = None,
    latest: bool = True,
    group: str | None = None,
    unverified: bool = False,
) -> pa.Table:
    """Return the tasks in an archive as one Arrow table in memory.

    queue, days, group: only the tasks of that queue, of the days from the first to the last of the
        two, and of that group.
    unverified: also read a store with which Blueque was not tested.
    fields: names of columns in `FIELDS`. Default: all.
    latest: only the newest state of each task that was archived more than once, because it was put
        in line again.
    Raises ArchiveRefused, InvalidInput, NotInstalled.
    """
    wanted = _require_fields(fields)
    place = opening.open_(directory, unverified)
    for _ in range(_TRIES):
        files = select(place, queue, days, group)
        try:
            table = _table(place, files, wanted, latest, group)
        except FileNotFoundError:  # a person has merged files meanwhile
            continue
        return _latest(table).select(wanted) if latest else table.select(wanted)
    raise Contended("read", _TRIES)


def files(
    directory: str | os.PathLike[str],
    *,
    queue: str | None = None,
    days: tuple[date | str, date | str] | None = None,
    group: str | None = None,
    unverified: bool = False,
) -> list[str]:
    """Return the paths of the files that count now, for another reader of Parquet.

    The options are those of `read`. In a store they are paths of `pyarrow.fs`.
    """
    place = opening.open_(directory, unverified)
    return [file.path for file in select(place, queue, days, group)]


def select(
    archive: Archive,
    queue: str | None,
    days: tuple[date | str, date | str] | None,
    group: str | None,
) -> list[File]:
    """Return the files that may have rows of this queue, these days and this group."""
    return [
        file
        for file in archive.files(queue)
        if (days is None or is_within(file.day, *days))
        and (group is None or not archive.is_by_group or file.group == group)
    ]


def _require_fields(fields: tuple[str, ...] | list[str] | None) -> list[str]:
    if fields is None:
        return list(FIELDS)
    names = (
        list(columns.require_fields([name for name in fields if name != DAY]))
        if [*fields] != [DAY]
        else []
    )
    if LISTED_AS in names:
        raise InvalidInput(f"an archive has no column {LISTED_AS!r}: it is the status")
    return list(fields)


def is_within(day: str | None, first: date | str, last: date | str) -> bool:
    return day is not None and str(first) <= day <= str(last)


def _table(
    archive: Archive, files: list[File], wanted: list[str], latest: bool, group: str | None
) -> pa.Table:
    more = [*(("task_id", "updated") if latest else ()), *(("group",) if group is not None else ())]
    needed = [*wanted, *(name for name in more if name not in wanted)]
    with ThreadPoolExecutor(REQUESTS_AT_ONCE) as threads:
        loaded = threads.map(lambda file: [*_rows(archive, file, needed, group)], files)
        found = [schema_of(needed).empty_table(), *chain.from_iterable(loaded)]
    return arrow.pyarrow().concat_tables(found)


def _rows(
    archive: Archive, file: File, fields: Sequence[str], group: str | None
) -> Iterator[pa.Table]:
    """Yield these columns of the rows of a group in a file; None: of all rows."""
    equal = arrow.pyarrow().compute.equal
    for table in load(archive, file, fields):
        yield table if group is None else table.filter(equal(table["group"], group))


def schema_of(fields: Sequence[str]) -> pa.Schema:
    """Return the schema of a table with these columns, which may include `day`."""
    pa = arrow.pyarrow()
    return pa.schema(
        [
            pa.field(DAY, pa.date32()) if name == DAY else arrow.schema([name]).field(0)
            for name in fields
        ]
    )


def load(archive: Archive, file: File, fields: Sequence[str]) -> Iterator[pa.Table]:
    """Yield these columns of a file, in pieces. Raises FileNotFoundError."""
    from pyarrow import parquet  # here: pyarrow is imported only when needed, see arrow.py

    pa = arrow.pyarrow()
    schema, inside = schema_of(fields), [name for name in fields if name in archive.fields]
    day = None if file.day is None else date.fromisoformat(file.day)
    of_folders = {"queue": file.queue, DAY: day, "group": file.group}
    with parquet.ParquetFile(archive.open(file.path)) as source:
        names = [name for name in inside if name in source.schema_arrow.names]
        for number in range(source.num_row_groups):
            rows = source.read_row_group(number, names)
            rows = _as_written(rows, arrow.schema(inside))
            arrays = [
                rows[field.name]
                if field.name in inside
                else pa.repeat(pa.scalar(of_folders[field.name], field.type), rows.num_rows)
                for field in schema
            ]
            yield pa.Table.from_arrays(arrays, schema=schema)


def _as_written(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return a table in the schema of our files. Another engine may have written it differently."""
    pa = arrow.pyarrow()
    columns = [
        table[field.name].cast(field.type)
        if field.name in table.column_names
        else pa.nulls(table.num_rows, field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _latest(table: pa.Table) -> pa.Table:
    """Return the newest row of each task."""
    pa = arrow.pyarrow()
    if pa.compute.count_distinct(table["task_id"]).as_py() == table.num_rows:
        return table
    changed = pa.compute.fill_null(table["updated"].cast(pa.int64()), -(2**63))
    order = pa.compute.sort_indices(changed)
    places = pa.table(
        {"task_id": table["task_id"].take(order), "place": pa.array(range(table.num_rows))}
    )
    last = places.group_by("task_id").aggregate([("place", "max")])["place_max"]
    return table.take(order.take(last))
