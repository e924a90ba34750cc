"""Picks the tasks that go into the archive, and the day of each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from blueque.model.columns import ARCHIVE_FIELDS, LISTED_AS, OTHER
from blueque.tables import arrow

if TYPE_CHECKING:
    import pyarrow as pa

# The columns of a file. The queue is in the name of its folder; listed_as is equal to the status, or
# the task is not archived.
FILE_FIELDS = tuple(name for name in ARCHIVE_FIELDS if name not in ("queue", LISTED_AS))
# In the JSON of the other fields. Inside a value, its quotes would be escaped.
_DEPENDENTS = '"dependents":'


def pick(batch: pa.RecordBatch, queue: str, before: float | None, seen: set[str]) -> pa.RecordBatch:
    """Return the rows of a batch with ARCHIVE_FIELDS that are to be archived, with FILE_FIELDS.

    Their status is that of the list which had them, and no other tasks wait for them: those stay in
    Redis. With `before` they have ended before that time, by `finished` or else `updated`.
    seen: the ids of this run, to which it adds: a list may contain an id twice.
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


def by_day(batch: pa.RecordBatch) -> Iterator[tuple[str | None, pa.RecordBatch]]:
    """Yield each day, in UTC, and its rows: the day when the task ended, else when it last changed,
    or was made.
    """
    pa = arrow.pyarrow()
    compute = pa.compute
    days = compute.coalesce(batch["finished"], batch["updated"], batch["created"]).cast(pa.date32())
    for day in compute.unique(days).to_pylist():
        is_then = (
            compute.is_null(days)
            if day is None
            else compute.fill_null(compute.equal(days, pa.scalar(day)), False)
        )
        yield None if day is None else day.isoformat(), batch.filter(is_then)
