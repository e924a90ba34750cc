"""A batch of tasks on its way into an archive: claim_batch, beat_batch, mark_batch, erase,
finish_batch, leave_batch.

What lies in the archive is no business of this module. It sees to it that one at a time writes,
that nobody goes back a step, and that a task is deleted only if it is still what was written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from blueque.connection.redis import Command, Look, Redis, as_hash
from blueque.errors import BatchTaken
from blueque.model import keys
from blueque.model.columns import to_microseconds, to_whole
from blueque.model.encoding import CENTURY
from blueque.protocol.fields import Facts, flat
from blueque.protocol.transaction import Answer, Change, transact

STATES = ("claimed", "written", "published", "deleted")
MOST = 100  # tasks to erase at once: WATCH gets slow with their square

_ENDED = {"complete": keys.complete, "failed": keys.failed, "cancelled": keys.cancelled}


class Written(NamedTuple):
    """A task as the archive has it: microseconds of `updated` and the number of its attempt, None
    if it has none.
    """

    task: str
    status: str
    updated: int | None
    attempts: int | None


def claim_batch(
    redis: Redis,
    queue: str,
    batch: str,
    writer: str,
    facts: Facts,
    place: Facts,
    now: float,
    over: str | None = None,
) -> dict[str, str]:
    """Open a batch, or take over the one that is open, and return the record as it is then: ours,
    or somebody else's.

    writer: a random mark of this archiver. facts: fields that tell of the archiver, place: of where
        a new batch is to lie.
    over: the mark of an archiver that is dead, or empty for none: an open batch is taken over from
        it.
    """
    key = keys.archive(queue)
    opening = {"batch": batch, "queue": queue, "state": "claimed", "since": now, **(place or {})}

    def decide(reply: Sequence[str]) -> Answer | Change:
        record = as_hash(reply)
        if record and (over is None or record.get("writer", "") != over):
            return Answer(record)
        fields = {**({} if record else opening), "writer": writer, **(facts or {}), "beat_at": now}
        its = {name: str(value) for name, value in fields.items()}
        return Change([("HSET", key, *flat(fields))], {**record, **its})

    record: dict[str, str] = transact(redis, "claim_batch", Look([key], [("HGETALL", key)]), decide)
    return record


def beat_batch(redis: Redis, queue: str, batch: str, writer: str, now: float) -> None:
    """Show that the archiver lives. Raises BatchTaken."""

    def decide(snapshot: list[str | None]) -> Change:
        _require(queue, batch, writer, snapshot)
        return Change([("HSET", keys.archive(queue), "beat_at", now)])

    transact(redis, "beat_batch", _ownership(queue), decide)


def mark_batch(
    redis: Redis, queue: str, batch: str, writer: str, state: str, facts: Facts, now: float
) -> int:
    """Record that the batch is written, published or deleted; return how many tasks were deleted.
    Raises BatchTaken.
    """

    def decide(snapshot: list[str | None]) -> Answer | Change:
        _require(queue, batch, writer, snapshot)
        before, deleted = snapshot[2] or "", int(snapshot[3] or 0)
        if before not in STATES[: STATES.index(state)]:
            return Answer(deleted)
        return Change(
            [("HSET", keys.archive(queue), "state", state, *flat(facts), "beat_at", now)], deleted
        )

    return int(transact(redis, "mark_batch", _ownership(queue), decide))


def erase(
    redis: Redis,
    queue: str,
    batch: str,
    writer: str,
    rows: Sequence[Written],
    now: float,
    following: Sequence[Written] = (),
) -> int:
    """Delete those of these tasks that still are what the archive has, and return how many. Raises
    BatchTaken.

    following: what the next call will be about; its look travels with our EXEC.
    """

    def decide(owner: list[str | None], *snapshots: list[str | None]) -> Answer | Change:
        _require(queue, batch, writer, owner)
        found = zip(rows, snapshots, strict=True)
        same = [(row, its) for row, its in found if _is_as_written(queue, row, its)]
        if not same:
            return Answer(0)
        theirs = [keys.belongings(row.task) for row, _ in same]
        return Change(
            [
                ("UNLINK", *[key for kind in zip(*theirs, strict=True) for key in kind]),
                # From the tail, where the oldest are: the other way a list of a million takes 17 ms
                # for each of them.
                *[
                    ("LREM", key(queue), -1, row.task)
                    for status, key in _ENDED.items()
                    for row, _ in same
                    if row.status == status
                ],
                ("ZREM", keys.tasks(queue), *[row.task for row, _ in same]),
                *_keep_keys(same),
                ("HINCRBY", keys.totals(queue), "deleted", len(same)),
                ("HINCRBY", keys.archive(queue), "deleted", len(same)),
                ("HSET", keys.archive(queue), "beat_at", now),
            ],
            len(same),
        )

    ahead = _contents(queue, following) if following else None
    return int(transact(redis, "erase", _contents(queue, rows), decide, ahead=ahead))


def _keep_keys(same: Sequence[tuple[Written, list[str | None]]]) -> list[Command]:
    """Have the keys of tasks count on for as long as they are to, as `delete` does."""
    return [
        ("SET", keys.key_kept(row.task), mark or "", "EX", keep)
        for row, (_, _, _, _, keep, mark) in same
        if keep is not None and keep.isdecimal() and 0 < int(keep) <= CENTURY
    ]


def finish_batch(redis: Redis, queue: str, batch: str, writer: str) -> bool:
    """Close the batch. False: it was closed already. Raises BatchTaken."""

    def decide(snapshot: list[str | None]) -> Answer | Change:
        if snapshot[0] != batch:
            return Answer(False)
        _require(queue, batch, writer, snapshot)
        return Change([("DEL", keys.archive(queue))], True)

    return bool(transact(redis, "finish_batch", _ownership(queue), decide))


def leave_batch(redis: Redis, queue: str, batch: str, writer: str) -> None:
    """Let somebody else go on with the batch, if it is still ours."""

    def decide(snapshot: list[str | None]) -> Answer | Change:
        if snapshot[:2] != [batch, writer]:
            return Answer(None)
        return Change([("HDEL", keys.archive(queue), "writer")])

    transact(redis, "leave_batch", _ownership(queue), decide)


def _ownership(queue: str) -> Look:
    key = keys.archive(queue)
    return Look([key], [("HMGET", key, "batch", "writer", "state", "deleted")])


def _contents(queue: str, rows: Sequence[Written]) -> Look:
    """Is the batch ours to delete, and are its tasks what they were?"""
    record, hashes = keys.archive(queue), [keys.task(row.task) for row in rows]
    return Look(
        [record, *hashes],
        [
            ("HMGET", record, "batch", "writer"),
            *[
                ("HMGET", key, "status", "queue", "updated", "attempt", "keep", "enqueued_by")
                for key in hashes
            ],
        ],
    )


def _require(queue: str, batch: str, writer: str, snapshot: Sequence[str | None]) -> None:
    if list(snapshot[:2]) != [batch, writer]:
        raise BatchTaken(queue, batch)


def _is_as_written(queue: str, row: Written, snapshot: Sequence[str | None]) -> bool:
    status, its_queue, updated, attempt, *_ = snapshot
    return (
        status == row.status
        and its_queue in (None, queue)
        and _number(updated, to_microseconds) == row.updated
        and _number(attempt, to_whole) == row.attempts
    )


def _number(text: str | None, make: Any) -> Any:
    return None if text is None else make(text)
