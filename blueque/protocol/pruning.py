"""Many tasks go at once: those that have been kept long enough, those that wait and are wanted no
more: prune, purge.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from blueque.connection.redis import Command, Look, Redis
from blueque.model import keys
from blueque.model.encoding import CENTURY
from blueque.model.lines import DEFAULT, line_of
from blueque.protocol.transaction import Answer, Change, transact

FARTHEST = 1000  # from its turn that a task in the line of 1.0.0 is looked for
_ENDED = {"complete": keys.complete, "failed": keys.failed, "cancelled": keys.cancelled}


class Ended(NamedTuple):
    """A finished task as it was seen.

    at: its `finished`, or its `updated`, whichever is later, in Unix seconds.
    """

    task: str
    at: float


def prune(redis: Redis, queue: str, status: str, seen: Sequence[Ended], floor: int = 0) -> int:
    """Delete those of these tasks that still are as they were seen, and return how many; none while
    a batch is open.

    seen: the oldest first. floor: the list is not to become shorter than that.
    """

    def decide(is_archiving: int, length: int, *snapshots: list[str | None]) -> Answer | Change:
        found = zip(seen, snapshots, strict=True)
        same = [
            (one.task, its[4:])
            for one, its in found
            if its[:2] == [status, queue] and ended_at(*its[2:4]) == one.at
        ]
        del same[max(length - floor, 0) :]
        if is_archiving or not same:
            return Answer(0)
        # From the tail, where the oldest are.
        entries: list[Command] = [("LREM", _ENDED[status](queue), -1, task) for task, _ in same]
        return Change(_removal(queue, dict(same), entries), len(same))

    record, hashes = keys.archive(queue), [keys.task(one.task) for one in seen]
    fields = ("status", "queue", "finished", "updated", "keep", "enqueued_by")
    reads: list[Command] = [("EXISTS", record), ("LLEN", _ENDED[status](queue))]
    look = Look([record, *hashes], [*reads, *[("HMGET", key, *fields) for key in hashes]])
    return int(transact(redis, "prune", look, decide))


def purge(redis: Redis, queue: str, tasks: Sequence[str]) -> int:
    """Delete those of these tasks that are pending or scheduled, whatever they were to do, and
    return how many.
    """

    def decide(*replies: Any) -> Answer | Change:
        snapshots: Sequence[list[str | None]] = replies[: len(tasks)]
        found = zip(tasks, snapshots, replies[len(tasks) :], strict=True)
        waiting = {
            task: its for task, its, place in found if its[1] == queue and _waits(its, place)
        }
        if not waiting:
            return Answer(0)
        # From the tail, whose turn is next: a purge begins with those.
        entries: list[Command] = [
            ("LREM", keys.line(queue, line_of(*its[2:4])), -1, task)
            for task, its in waiting.items()
            if its[0] == "pending"
        ]
        scheduled = [task for task, its in waiting.items() if its[0] == "scheduled"]
        if scheduled:
            entries += [("ZREM", keys.scheduled(queue), *scheduled)]
        return Change(
            _removal(queue, {task: its[4:] for task, its in waiting.items()}, entries), len(waiting)
        )

    line, hashes = keys.pending(queue), [keys.task(task) for task in tasks]
    fields = ("status", "queue", "priority", "needs", "keep", "enqueued_by")
    places: list[Command] = [("LPOS", line, task, "RANK", -1, "MAXLEN", FARTHEST) for task in tasks]
    look = Look([line, *hashes], [*[("HMGET", key, *fields) for key in hashes], *places])
    return int(transact(redis, "purge", look, decide))


def _waits(snapshot: Sequence[str | None], place: int | None) -> bool:
    """Tell whether a task waits, given its status, queue, priority and needs, and its place in the
    line of 1.0.0.
    """
    if snapshot[0] == "pending" and line_of(*snapshot[2:4]) == DEFAULT:
        # else a listener of 1.0.0 may have it already, and not have said so
        return place is not None
    return snapshot[0] in ("pending", "scheduled")


def _removal(
    queue: str, marks: Mapping[str, Sequence[str | None]], entries: Sequence[Command]
) -> list[Command]:
    """Return what deletes these tasks, given what takes them out of where their status has them.

    marks: `keep` and `enqueued_by` of each.
    """
    theirs = map(keys.belongings, marks)
    commands: list[Command] = [
        ("UNLINK", *[key for kind in zip(*theirs, strict=True) for key in kind]),
        *entries,
        ("ZREM", keys.tasks(queue), *marks),
        ("HINCRBY", keys.totals(queue), "deleted", len(marks)),
    ]
    for task, (keep, mark) in marks.items():
        if keep is not None and keep.isdecimal() and 0 < int(keep) <= CENTURY:
            commands += [("SET", keys.key_kept(task), mark or "", "EX", keep)]
    return commands


def ended_at(finished: str | None, updated: str | None) -> float | None:
    """Return when a finished task ended, or Redis came to know of it, if that was later; None: its
    hash does not say.
    """
    try:
        # Redis may have been away for days, and the node that saw the end may have a clock that is
        # behind.
        return max((float(text) for text in (finished, updated) if text), default=None)
    except ValueError:
        return None
