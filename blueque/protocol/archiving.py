"""A batch of tasks on its way into an archive: claim_batch, mark_batch, erase, leave_batch.

This module does not know the archive itself. Only one archiver writes at a time, a batch never goes
back a step, and only unchanged tasks are deleted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from blueque.connection.packing import pack_each
from blueque.connection.redis import Command, Look, Redis, as_hash
from blueque.errors import Taken
from blueque.model import keys
from blueque.model.columns import to_microseconds, to_whole
from blueque.model.encoding import count_of
from blueque.protocol.fields import Facts, flat
from blueque.protocol.pruning import FINISHED_LISTS, RemovableFields, read_removable, removal
from blueque.protocol.transaction import Answer, Change, Verdict, transact

STATES = ("claimed", "written", "published", "deleted", "closed")
MOST = 100  # tasks to erase at once: the time of WATCH grows with the square of the keys


class BatchRef(NamedTuple):
    """An open batch of a queue, and its archiver.

    writer: a random mark of the archiver.
    """

    queue: str
    batch: str
    writer: str


class Written(NamedTuple):
    """A task as it is in the archive.

    updated: in microseconds. attempts: the number of its attempt. None: it has none.
    """

    task: str
    status: str
    updated: int | None
    attempts: int | None


class _Record(NamedTuple):
    """The fields of the record of a batch that most of these transactions read."""

    batch: str | None
    writer: str | None
    state: str | None
    deleted: str | None


def claim_batch(
    redis: Redis, ref: BatchRef, facts: Facts, place: Facts, now: float, over: str | None = None
) -> dict[str, str]:
    """Open a batch, or take over the open one. Return its record, which may belong to another archiver.

    ref: with the id of a new batch. facts: fields about the archiver. place: fields that say where
        the files of a new batch will be.
    over: take over the open batch if its archiver has this mark and is known to be dead. Empty:
        take over a batch without an archiver. None: take over nothing.
    """
    queue, batch, writer = ref
    key = keys.archive(queue)
    opening = {"batch": batch, "queue": queue, "state": "claimed", "since": now, **(place or {})}

    def decide(reply: Sequence[str]) -> Verdict[dict[str, str]]:
        record = as_hash(reply)
        if record and (over is None or record.get("writer", "") != over):
            return Answer(record)
        fields = {**({} if record else opening), "writer": writer, **(facts or {}), "beat_at": now}
        texts = {name: str(value) for name, value in fields.items()}
        return Change([("HSET", key, *flat(fields))], {**record, **texts})

    look: Look[Sequence[str]] = Look([key], [("HGETALL", key)])
    return transact(redis, "claim_batch", look, decide)


def mark_batch(redis: Redis, ref: BatchRef, state: str | None, facts: Facts, now: float) -> int:
    """Show that the archiver is alive, and record the state of the batch. Return how many tasks
    were deleted.

    state: one of STATES; None: unchanged. `closed` removes the record.
    Raises Taken.
    """
    key = keys.archive(ref.queue)

    def decide(reply: list[str | None]) -> Verdict[int]:
        record = _Record._make(reply)
        deleted = count_of(record.deleted)
        if state == "closed" and record.batch != ref.batch:
            return Answer(deleted)
        _require(ref, record)
        if state == "closed":
            return Change([("DEL", key)], deleted)
        if state is not None and (record.state or "") not in STATES[: STATES.index(state)]:
            return Answer(deleted)
        marked: Command = () if state is None else ("state", state, *flat(facts))
        return Change([("HSET", key, *marked, "beat_at", now)], deleted)

    return transact(redis, "mark_batch", _record(ref.queue), decide)


def erase(redis: Redis, ref: BatchRef, rows: Sequence[Written], now: float) -> int:
    """Delete unchanged tasks that no others wait for and whose group has recorded their end.

    Return how many. Raises Taken.
    """
    queue = ref.queue

    def decide(
        owner: list[str | None], unsettled: list[str | None], *replies: list[str | None]
    ) -> Verdict[int]:
        _require(ref, owner)
        tasks = zip(rows, map(RemovableFields._make, replies), unsettled, strict=True)
        same = [
            (row, fields)
            for row, fields, noted in tasks
            if _is_as_written(queue, row, fields) and noted is None
        ]
        if not same:
            return Answer(0)
        return Change(
            [
                *removal(queue, {row.task: fields for row, fields in same}, _take_out(queue, same)),
                ("HINCRBY", keys.archive(queue), "deleted", len(same)),
                ("HSET", keys.archive(queue), "beat_at", now),
            ],
            len(same),
        )

    return transact(redis, "erase", _contents(queue, rows), decide)


def _take_out(queue: str, same: Sequence[tuple[Written, RemovableFields]]) -> list[Command]:
    commands: list[Command] = []
    for status, key in FINISHED_LISTS.items():
        tasks = [row.task for row, _ in same if row.status == status]
        # From the tail, where the oldest are: from the head, a list of a million takes 17 ms for
        # each task.
        commands += pack_each(("LREM", key(queue), -1), "", tasks)
    return commands


def leave_batch(redis: Redis, ref: BatchRef) -> None:
    """Let another archiver continue the batch, if it is still ours."""

    def decide(reply: list[str | None]) -> Verdict[None]:
        if reply[:2] != [ref.batch, ref.writer]:
            return Answer(None)
        return Change([("HDEL", keys.archive(ref.queue), "writer")], None)

    transact(redis, "leave_batch", _record(ref.queue), decide)


def _record(queue: str) -> Look[list[str | None]]:
    key = keys.archive(queue)
    return Look([key], [("HMGET", key, *_Record._fields)])


def _contents(
    queue: str, rows: Sequence[Written]
) -> Look[list[str | None], list[str | None], *tuple[list[str | None], ...]]:
    """Is the batch ours to delete, and are its tasks as they were written?"""
    record, tasks = keys.archive(queue), [row.task for row in rows]
    return Look(
        [record, *map(keys.task, tasks)],
        [
            ("HMGET", record, "batch", "writer"),
            ("ZMSCORE", keys.UNSETTLED_MEMBERS, *tasks),
            *read_removable(tasks),
        ],
    )


def _require(ref: BatchRef, owner: Sequence[str | None]) -> None:
    if [*owner[:2]] != [ref.batch, ref.writer]:
        raise taken(ref)


def taken(ref: BatchRef) -> Taken:
    """Return the error for an archiver that has lost its batch."""
    return Taken(f"batch {ref.batch} of queue {ref.queue!r} is another archiver's now")


def _is_as_written(queue: str, row: Written, fields: RemovableFields) -> bool:
    return (
        fields.status == row.status
        and fields.queue in (None, queue)
        and _number(fields.updated, to_microseconds) == row.updated
        and _number(fields.attempt, to_whole) == row.attempts
        and fields.dependents is None
    )


def _number(text: str | None, make: Any) -> Any:
    return None if text is None else make(text)
