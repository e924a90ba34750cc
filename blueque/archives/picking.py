"""Picks the tasks that go into the archive, and the day of each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from blueque.model.columns import ARCHIVE_FIELDS, LISTED_AS, OTHER
from blueque.tables import arrow

if TYPE_CHECKING:
    import pyarrow as pa

# The columns of a file. The queue is in the name of its folder; listed_as is equal to the status, or
# the task is not archived.
FILE_FIELDS = tuple(name for name in ARCHIVE_FIELDS if name not in ("queue", LISTED_AS))
Partition = tuple[str | None, str | None]  # day and group of the rows of a file

# In the JSON of the other fields. Inside a value, its quotes would be escaped.
_DEPENDENTS = '"dependents":'


def pick(batch: pa.RecordBatch, queue: str, before: float | None, seen: set[str]) -> pa.RecordBatch:
    """Return the rows of a batch with ARCHIVE_FIELDS that will be archived, with FILE_FIELDS.

    Their status is that of their list, and no other tasks wait for them: those stay in Redis. With
    `before` they have ended before that time, by `finished` or else `updated`.
    seen: the ids of this run, to which it adds, because a list may contain an id twice.
    """
    compute = arrow.pyarrow().compute
    is_ours = compute.and_(
        compute.equal(batch["status"], batch[LISTED_AS]),
        compute.fill_null(compute.equal(batch["queue"], queue), True),
    )
    is_awaited = compute.fill_null(compute.match_substring(batch[OTHER], _DEPENDENTS), False)
    is_ours = compute.and_(is_ours, compute.invert(is_awaited))
    if before is not None:
        limit = arrow.pyarrow().scalar(int(before * 1e6)).cast(arrow.types()["timestamp"])
        is_ours = compute.and_(
            is_ours, compute.less(compute.coalesce(batch["finished"], batch["updated"]), limit)
        )
    chosen = batch.filter(is_ours).select(FILE_FIELDS)  # null is not chosen
    ids = chosen["task_id"].to_pylist()
    if len({*ids}) == len(ids) and seen.isdisjoint(ids):
        seen.update(ids)
        return chosen
    is_first = []
    for task in ids:
        is_first.append(task not in seen)
        seen.add(task)
    return chosen.filter(arrow.pyarrow().array(is_first))


def by_partition(
    batch: pa.RecordBatch, is_by_group: bool
) -> Iterator[tuple[Partition, pa.RecordBatch]]:
    """Yield each UTC day and group with its rows.

    The day is that on which the task ended, else was last changed, else was made. Without groups,
    the group is None.
    """
    pa = arrow.pyarrow()
    days = pa.compute.coalesce(batch["finished"], batch["updated"], batch["created"])
    for day, rows in _by_value(batch, days.cast(pa.date32())):
        name = None if day is None else day.isoformat()
        if is_by_group:
            for group, some in _by_value(rows, rows["group"]):
                yield (name, group), some
        else:
            yield (name, None), rows


def _by_value(batch: pa.RecordBatch, column: pa.Array) -> Iterator[tuple[Any, pa.RecordBatch]]:
    pa = arrow.pyarrow()
    compute = pa.compute
    for value in compute.unique(column).to_pylist():
        is_it = (
            compute.is_null(column)
            if value is None
            else compute.fill_null(compute.equal(column, pa.scalar(value)), False)
        )
        yield value, batch.filter(is_it)
