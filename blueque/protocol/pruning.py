"""Delete many tasks at once: prune those that were kept long enough; purge those that wait."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from blueque.connection.packing import pack_each, pack_words
from blueque.connection.redis import AnyLook, Command, Look, Redis, Replies
from blueque.model import keys
from blueque.model.encoding import count_of, seconds_of
from blueque.model.lines import DEFAULT, line_of
from blueque.protocol.events import FIRST, Event, record_in_queue
from blueque.protocol.fields import remove_tags
from blueque.protocol.submit import keep_key
from blueque.protocol.transaction import Answer, Change, Tries, Verdict, transact

FARTHEST = 1000  # how far from its turn a task is searched for in the line of 1.0.0
# The list of each status of finished tasks.
FINISHED_LISTS = {"complete": keys.complete, "failed": keys.failed, "cancelled": keys.cancelled}


class FinishedTask(NamedTuple):
    """A finished task as it was seen.

    at: its `finished` or its `updated`, whichever is later, in Unix seconds.
    has_dependents: other tasks wait for it, or did. group: the group that it has joined.
    """

    task: str
    at: float
    has_dependents: bool = False
    group: str | None = None


class RemovableFields(NamedTuple):
    """The fields of a task that say whether it may be deleted, and what to remove with it."""

    status: str | None
    queue: str | None
    finished: str | None
    updated: str | None
    priority: str | None
    needs: str | None
    keep: str | None
    enqueued_by: str | None
    dependents: str | None
    tags: str | None
    attempt: str | None
    events: str | None
    after: str | None
    inputs: str | None
    spawned: str | None

    @property
    def line(self) -> str:
        return line_of(self.priority, self.needs)


# The kinds of keys that belong to a task alone, and whether its fields say that there may be one.
# To find nothing under a name takes Redis as long as to delete what is small.
BELONGINGS: dict[str, Callable[[RemovableFields], object]] = {
    keys.task(""): lambda fields: True,
    keys.log(""): lambda fields: fields.attempt,
    keys.log_head(""): lambda fields: fields.attempt,
    keys.checkpoint(""): lambda fields: fields.attempt,
    keys.history(""): lambda fields: fields.events,
    keys.recent(""): lambda fields: count_of(fields.events) > FIRST,
    keys.conditions(""): lambda fields: fields.after,
    keys.dependents(""): lambda fields: fields.dependents,
    keys.inputs(""): lambda fields: fields.inputs,
    keys.spawned(""): lambda fields: fields.spawned,
}


def prune(
    redis: Redis,
    queue: str,
    status: str,
    seen: Sequence[FinishedTask],
    floor: int = 0,
    event: Event | None = None,
) -> int:
    """Delete unchanged tasks that no others wait for and whose group has recorded their end.

    Return how many; 0 while a batch is open.
    seen: oldest first. floor: the list must not become shorter than this.
    event: recorded in the stream of the queue along with it.
    """
    listed = FINISHED_LISTS[status](queue)

    def decide(
        is_archiving: int, length: int, unsettled: list[str | None], *replies: list[str | None]
    ) -> Verdict[int]:
        found = [*map(RemovableFields._make, replies)]
        same = [
            ended.task
            for ended, fields, noted in zip(seen, found, unsettled, strict=True)
            if noted is None and _is_as_seen(ended, fields, status, queue)
        ]
        del same[max(length - floor, 0) :]
        # From the tail, where the oldest are.
        entries = pack_each(("LREM", listed, -1), "", same)
        return deletion.of(
            dict(zip(tasks, found, strict=True)), [] if is_archiving else same, entries
        )

    record, tasks = keys.archive(queue), [ended.task for ended in seen]
    look: Look[int, int, list[str | None], *tuple[list[str | None], ...]] = Look(
        [record, *map(keys.task, tasks)],
        [
            ("EXISTS", record),
            ("LLEN", listed),
            ("ZMSCORE", keys.UNSETTLED_MEMBERS, *tasks),
            *read_removable(tasks),
        ],
    )
    deletion = _Deletion(look, queue, event)
    return transact(redis, "prune", look, decide, again=deletion.again)


def _is_as_seen(seen: FinishedTask, fields: RemovableFields, status: str, queue: str) -> bool:
    """Return whether a task is still as it was seen to end, and no others wait for it."""
    return (
        fields[:2] == (status, queue)
        and ended_at(fields.finished, fields.updated) == seen.at
        and fields.dependents is None
    )


def purge(
    redis: Redis,
    queue: str,
    tasks: Sequence[str],
    is_forced: bool = False,
    event: Event | None = None,
) -> int:
    """Delete the pending, scheduled and blocked tasks that no others wait for. Return how many.

    is_forced: also those that others wait for; for these they are gone. event: as for `prune`.
    """

    def decide(*replies: Any) -> Verdict[int]:
        found = [*map(RemovableFields._make, replies[: len(tasks)])]
        waiting = {
            task: fields
            for task, fields, place in zip(tasks, found, replies[len(tasks) :], strict=True)
            if fields.queue == queue
            and (is_forced or fields.dependents is None)
            and _waits(fields, place)
        }
        # From the tail, whose turn is next: a purge begins with those.
        entries: list[Command] = [
            ("LREM", keys.line(queue, fields.line), -1, task)
            for task, fields in waiting.items()
            if fields.status == "pending"
        ]
        scheduled = [task for task, fields in waiting.items() if fields.status == "scheduled"]
        if scheduled:
            entries += [("ZREM", keys.scheduled(queue), *scheduled)]
        blocked = [task for task, fields in waiting.items() if fields.status == "blocked"]
        if blocked:
            entries += [("ZREM", keys.blocked(queue), *blocked)]
        return deletion.of(dict(zip(tasks, found, strict=True)), waiting, entries)

    line = keys.pending(queue)
    places: list[Command] = [("LPOS", line, task, "RANK", -1, "MAXLEN", FARTHEST) for task in tasks]
    look: AnyLook = Look([line, *map(keys.task, tasks)], [*read_removable(tasks), *places])
    deletion = _Deletion(look, queue, event)
    return transact(redis, "purge", look, decide, again=deletion.again)


class _Deletion(Tries[*Replies]):
    """The tries of one call that deletes tasks of a queue. event: recorded along with them."""

    def __init__(self, look: Look[*Replies], queue: str, event: Event | None) -> None:
        super().__init__(look)
        self._queue, self._event = queue, event
        self._chosen: Collection[str] = ()  # by the try before

    def of(
        self,
        found: Mapping[str, RemovableFields],
        chosen: Collection[str],
        entries: Sequence[Command],
    ) -> Verdict[int]:
        """Delete the chosen tasks; the result is how many.

        found: all that were read. entries: as for `removal`.
        """
        if self.may_be_done and all(found[task].status is None for task in self._chosen):
            return Answer(len(self._chosen))
        if not chosen:
            return Answer(0)
        self._chosen = chosen
        commands = removal(self._queue, {task: found[task] for task in chosen}, entries)
        if self._event is not None:
            commands.append(record_in_queue(self._queue, self._event))
        return Change(commands, len(chosen))


def _waits(fields: RemovableFields, place: int | None) -> bool:
    """Return whether a task waits. place: in the line of 1.0.0."""
    if fields.status == "pending" and fields.line == DEFAULT:
        # Without a place, a listener of 1.0.0 may have popped it and not have written that yet.
        return place is not None
    return fields.status in ("pending", "scheduled", "blocked")


def read_removable(tasks: Sequence[str]) -> list[bytes]:
    """Return the reads of the fields that RemovableFields has."""
    return pack_each(("HMGET",), keys.task(""), tasks, RemovableFields._fields)


def removal(
    queue: str, tasks: Mapping[str, RemovableFields], entries: Sequence[Command]
) -> list[Command]:
    """Return the commands that delete tasks. entries: take them out of the places of their status."""
    names = {
        begun: [task for task, fields in tasks.items() if may_exist(fields)]
        for begun, may_exist in BELONGINGS.items()
    }
    commands: list[Command] = [
        pack_words(("UNLINK",), names),
        *entries,
        ("ZREM", keys.tasks(queue), *tasks),
        *remove_tags({task: fields.tags for task, fields in tasks.items()}),
        ("HINCRBY", keys.totals(queue), "deleted", len(tasks)),
    ]
    for task, fields in tasks.items():
        commands += keep_key(task, fields.keep, fields.enqueued_by)
    return commands


def ended_at(finished: str | None, updated: str | None) -> float | None:
    """Return when a finished task ended, or when Redis learned of it, if that was later; None: unknown."""
    # Redis may have been away for days, and the clock of the node may be behind.
    times = (seconds_of(finished), seconds_of(updated))
    return max((time for time in times if time is not None), default=None)
