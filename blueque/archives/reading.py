"""Reads an archive: every published row once, even during archiving or compaction."""

from __future__ import annotations

import os
from datetime import date
from typing import TYPE_CHECKING

from blueque.archives import compaction, layout
from blueque.archives.layout import Directory, File
from blueque.archives.picking import FILE_FIELDS
from blueque.errors import Contended, InvalidInput
from blueque.model import columns
from blueque.model.columns import DEFAULT_FIELDS, LISTED_AS, OTHER
from blueque.tables import arrow

if TYPE_CHECKING:
    import pyarrow as pa

DAY = "day"
FIELDS = (*[name for name in DEFAULT_FIELDS if name != LISTED_AS], OTHER, DAY)

_TRIES = 100


def read(
    directory: str | os.PathLike[str],
    *,
    queue: str | None = None,
    days: tuple[date | str, date | str] | None = None,
    fields: tuple[str, ...] | list[str] | None = None,
    latest: bool = True,
) -> pa.Table:
    """Return the tasks in an archive as one Arrow table in memory.

    queue, days: only the tasks of that queue, and of the days from the first to the last of the
        two.
    fields: names of columns in `FIELDS`; all if left out.
    latest: only the newest state of each task that was archived more than once, because it was put
        in line again.
    Raises ArchiveRefused, InvalidInput, NotInstalled.
    """
    wanted = _require_fields(fields)
    place = layout.open_(directory)
    for _ in range(_TRIES):
        files = [file for file in view(place, queue) if days is None or is_within(file.day, *days)]
        try:
            table = _table(files, wanted, latest)
        except FileNotFoundError:  # compacted meanwhile
            continue
        return _latest(table).select(wanted) if latest else table.select(wanted)
    raise Contended("read", _TRIES)


def view(directory: Directory, queue: str | None = None) -> list[File]:
    """Return files that together have every published row once, now."""
    for _ in range(_TRIES):
        before = compaction.generation(directory)
        decided = compaction.pending(directory)
        old = {path for one in decided for path in one.remove}
        new = [
            one.add if os.path.exists(one.add.path) else one.add._replace(path=one.made)
            for one in decided
            if queue in (None, one.add.queue)
        ]
        hidden = old | {one.add.path for one in decided}
        files = [file for file in directory.files(queue) if file.path not in hidden]
        if compaction.generation(directory) == before:
            return [*files, *new]
    raise Contended("view", _TRIES)


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


def _table(files: list[File], wanted: list[str], latest: bool) -> pa.Table:
    from pyarrow import parquet  # here: pyarrow is imported only when needed, see arrow.py

    pa = arrow.pyarrow()
    needed = [*wanted, *(name for name in ("task_id", "updated") if latest and name not in wanted)]
    inside = [name for name in needed if name in FILE_FIELDS]
    schema = pa.schema(
        [
            pa.field(DAY, pa.date32()) if name == DAY else arrow.schema([name]).field(0)
            for name in needed
        ]
    )
    found = [schema.empty_table()]
    for file in files:
        with parquet.ParquetFile(file.path) as source:
            rows = source.read([name for name in inside if name in source.schema_arrow.names])
        rows = compaction.as_written(rows, arrow.schema(inside), file)
        told = {
            "queue": file.queue,
            DAY: None if file.day is None else date.fromisoformat(file.day),
        }
        arrays = [
            rows[field.name]
            if field.name in inside
            else pa.repeat(pa.scalar(told[field.name], field.type), rows.num_rows)
            for field in schema
        ]
        found.append(pa.Table.from_arrays(arrays, schema=schema))
    return pa.concat_tables(found)


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
