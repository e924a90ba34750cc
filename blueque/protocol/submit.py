"""Promote and delete tasks: enqueue_due, delete."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from blueque.connection.redis import Command, Look, Redis
from blueque.errors import HasDependents, RedisRefused, WrongQueue, WrongState
from blueque.model import keys
from blueque.model.encoding import CENTURY, count_of, seconds_of
from blueque.model.states import FINISHED
from blueque.model.wrong_types import all_or_each
from blueque.protocol.events import Event, after, count, record_in_queue, record_in_task
from blueque.protocol.fields import TaskFields, flat, join_lines, remove_tags
from blueque.protocol.moves import leave
from blueque.protocol.transaction import Answer, Change, Verdict, transact
from blueque.protocol.watches import read_task


def enqueue_due(redis: Redis, queue: str, now: float, limit: int = 100) -> list[str] | None:
    """Put up to `limit` due tasks in line, earliest first; return their ids, or None if none was due."""
    (due,) = redis.read(("ZRANGEBYSCORE", keys.scheduled(queue), "-inf", now, "LIMIT", 0, limit))
    if not due:
        return None
    refused: list[RedisRefused] = []
    moved = all_or_each(
        due,
        lambda some: _enqueue_due(redis, queue, some, now),
        lambda task, error: refused.append(error),
    )
    if refused and not any(moved):
        raise refused[0]
    return [task for some in moved for task in some]


def _enqueue_due(redis: Redis, queue: str, due: Sequence[str], now: float) -> list[str]:
    def decide(scores: list[str | None], *replies: list[str | None]) -> Verdict[list[str]]:
        fields_of = dict(zip(due, map(TaskFields._make, replies), strict=True))
        # The score is read again: a task may have run meanwhile, and wait for a later eta.
        etas = {
            task: float(score)
            for task, score in zip(due, scores, strict=True)
            if score is not None and float(score) <= now
        }
        # A task that was moved to another queue is promoted there.
        moved = {
            task: fields_of[task] for task in etas if fields_of[task][:2] == ("scheduled", queue)
        }
        if not etas:
            return Answer([])
        commands: list[Command] = [("ZREM", keys.scheduled(queue), *etas)]
        if moved:
            commands += _promote(redis, queue, moved, etas, now)
        return Change(commands, [*moved])

    watch = [keys.task(task) for task in due]
    look: Look[list[str | None], *tuple[list[str | None], ...]] = Look(
        watch, [("ZMSCORE", keys.scheduled(queue), *due), *[read_task(task) for task in due]]
    )
    return transact(redis, "enqueue_due", look, decide)


def _promote(
    redis: Redis, queue: str, moved: Mapping[str, TaskFields], etas: Mapping[str, float], now: float
) -> list[Command]:
    by_line: dict[str, list[str]] = {}
    for task, fields in moved.items():
        by_line.setdefault(fields.line, []).append(task)
    commands = join_lines(queue, by_line)
    pending = ("status", "pending", "updated", now)
    commands += [
        ("HSET", keys.task(task), *pending, *flat(after(fields))) for task, fields in moved.items()
    ]
    commands += [("ZADD", keys.wake(queue), 0, 0)]
    for task, fields in moved.items():
        # Perhaps created by 1.0.0, which keeps no such index.
        if fields.attempt is None and seconds_of(fields.created) is not None:
            commands += [("ZADD", keys.tasks(queue), fields.created or "", task)]
    for task, fields in moved.items():
        commands += record_in_task(task, fields, Event("due", "", now, {"eta": etas[task]}))
    return [*commands, *count(redis, queue, "due", now, len(moved))]


def delete(
    redis: Redis, queue: str, task: str, is_forced: bool = False, event: Event | None = None
) -> bool:
    """Delete a finished task. False: it was gone already.

    is_forced: even if others wait for it; for these it is gone. event: for the stream of the queue,
        if any.
    Raises WrongState, WrongQueue, HasDependents.
    """

    def decide(exists: int, reply: list[str | None], unsettled: str | None) -> Verdict[bool]:
        fields = TaskFields._make(reply)
        if not exists:
            return Answer(False)
        if fields.queue not in (None, queue):
            raise WrongQueue(task, queue)
        if fields.status not in FINISHED:
            raise WrongState(task, fields.status, "delete")
        if fields.dependents is not None and not is_forced:
            raise HasDependents(task)
        if unsettled is not None:
            raise HasDependents(task, is_group=True)
        commands: list[Command] = [
            ("DEL", *keys.belongings(task)),
            *leave(task, fields._replace(queue=queue)),
            ("ZREM", keys.tasks(queue), task),
            *remove_tags({task: fields.tags}),
            ("HINCRBY", keys.totals(queue), "deleted", 1),
            *keep_key(task, fields.keep, fields.enqueued_by),
        ]
        if event is not None:
            facts = {"status": fields.status, **(event.facts or {})}
            commands.append(record_in_queue(queue, event._replace(facts=facts), task))
        return Change(commands, True)

    key = keys.task(task)
    look: Look[int, list[str | None], str | None] = Look(
        [key], [("EXISTS", key), read_task(task), ("ZSCORE", keys.UNSETTLED_MEMBERS, task)], task
    )
    return transact(redis, "delete", look, decide)


def keep_key(task: str, keep: str | None, mark: str | None) -> list[Command]:
    """Return the command that keeps the key of a deleted task in use for `keep` seconds."""
    if 0 < count_of(keep) <= CENTURY:
        return [("SET", keys.key_kept(task), mark or "", "EX", count_of(keep))]
    return []
