"""Tasks come and go: enqueue, schedule, enqueue_due, delete."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from blueque.connection.redis import Command, Look, Redis
from blueque.errors import NotFinished, WrongQueue
from blueque.model import keys
from blueque.model.encoding import CENTURY
from blueque.model.lines import line_of
from blueque.protocol.events import FIELDS, after, count, tell_task
from blueque.protocol.fields import flat, make_known, stand
from blueque.protocol.transaction import Answer, Change, transact
from blueque.protocol.watches import absence, absence_of_keys

Options = Mapping[str, str | int | float] | None  # further fields of a new task


def enqueue(
    redis: Redis,
    queue: str,
    task: str,
    parameters: str,
    encoding: str | None,
    now: float,
    options: Options = None,
    spare: str | None = None,
) -> bool:
    """Put a new task in line. True: it is there now; False: the id was there before, or its key
    still counts.

    options: such as retry, time_limit, priority and needs; with a key also keep and enqueued_by, a
        random mark of this call.
    spare: an id for the next call on this connection; its look travels with our EXEC.
    """
    given = options or {}
    line = line_of(str(given.get("priority", "")), str(given.get("needs", "")))

    def decide(exists: int, *others: Any) -> Answer | Change:
        if _is_taken(exists, *others):
            return Answer(_is_own(given, *others))
        return Change(
            [
                (
                    "HSET",
                    keys.task(task),
                    "status",
                    "pending",
                    *new_fields(queue, parameters, encoding, now, options),
                ),
                ("ZINCRBY", keys.QUEUES, 0, queue),
                *stand(queue, line, task),
                ("ZADD", keys.tasks(queue), now, task),
                ("ZADD", keys.wake(queue), 0, 0),
            ],
            True,
        )

    look = absence_of_keys([task]) if "key" in given else absence(task)
    return bool(transact(redis, "enqueue", look, decide, ahead=absence(spare) if spare else None))


def schedule(
    redis: Redis,
    queue: str,
    task: str,
    parameters: str,
    encoding: str | None,
    eta: float,
    now: float,
    options: Options = None,
) -> bool:
    """Create a task that joins the line at `eta`. The rest is as for enqueue."""
    given = options or {}
    fields = new_fields(queue, parameters, encoding, now, options)

    def decide(exists: int, *others: Any) -> Answer | Change:
        if _is_taken(exists, *others):
            return Answer(_is_own(given, *others))
        return Change(
            [
                ("HSET", keys.task(task), "status", "scheduled", *fields, "eta", eta),
                ("ZINCRBY", keys.QUEUES, 0, queue),
                ("ZADD", keys.scheduled(queue), eta, task),
                ("ZADD", keys.tasks(queue), now, task),
            ],
            True,
        )

    look = absence_of_keys([task]) if "key" in given else absence(task)
    return bool(transact(redis, "schedule", look, decide))


def enqueue_due(redis: Redis, queue: str, now: float, limit: int = 100) -> list[str] | None:
    """Put up to `limit` tasks whose eta has come in line, earliest first; return their ids, or None
    if nothing was due.
    """
    (due,) = redis.read(("ZRANGEBYSCORE", keys.scheduled(queue), "-inf", now, "LIMIT", 0, limit))
    if not due:
        return None

    def decide(scores: list[str | None], *snapshots: list[str | None]) -> Answer | Change:
        known = dict(zip(due, snapshots, strict=True))
        # One that has been put in line, has run and is to run again later is not due any more.
        hints = [
            task
            for task, score in zip(due, scores, strict=True)
            if score is not None and float(score) <= now
        ]
        # One that is scheduled in another queue, into which it was moved, is not ours to put in
        # line.
        moved = [task for task in hints if known[task][:2] == ["scheduled", queue]]
        due_at = dict(zip(due, scores, strict=True))
        by_line: dict[str, list[str]] = {}
        for task in moved:
            by_line.setdefault(line_of(*known[task][3:5]), []).append(task)
        if not hints:
            return Answer([])
        commands: list[Command] = [("ZREM", keys.scheduled(queue), *hints)]
        if moved:
            commands += [("LPUSH", keys.line(queue, line), *some) for line, some in by_line.items()]
            commands += make_known(queue, *by_line)
            commands += [
                (
                    "HSET",
                    keys.task(task),
                    "status",
                    "pending",
                    "updated",
                    now,
                    *flat(after(known[task][5:])),
                )
                for task in moved
            ]
            commands += [("ZADD", keys.wake(queue), 0, 0)]
        for task in moved:
            _, _, created, _, _, attempt, *_ = known[task]
            # perhaps made by 1.0.0, which keeps no such index
            if attempt is None and created is not None:
                commands += [("ZADD", keys.tasks(queue), created, task)]
        for task in moved:
            commands += tell_task(
                task, "due", "", known[task][5:], now, {"eta": float(due_at[task] or 0)}
            )
        if moved:
            commands += count(redis, queue, "due", now, len(moved))
        return Change(commands, moved)

    watch = [keys.task(task) for task in due]
    reads: list[tuple[str, ...]] = [("ZMSCORE", keys.scheduled(queue), *due)]
    reads += [
        ("HMGET", key, "status", "queue", "created", "priority", "needs", *FIELDS) for key in watch
    ]
    moved: list[str] = transact(redis, "enqueue_due", Look(watch, reads), decide)
    return moved


def delete(redis: Redis, queue: str, task: str) -> bool:
    """Remove a finished task for good. False: it was gone already."""

    def decide(exists: int, snapshot: list[str | None]) -> Answer | Change:
        status, its_queue, keep, mark = snapshot
        if not exists:
            return Answer(False)
        if its_queue not in (None, queue):
            raise WrongQueue(task, queue)
        ended = {"complete": keys.complete, "failed": keys.failed, "cancelled": keys.cancelled}
        if status not in ended:
            raise NotFinished(task, status)
        commands: list[Command] = [
            ("DEL", *keys.belongings(task)),
            # From the tail, where the oldest are: what is deleted is mostly old.
            ("LREM", ended[status](queue), -1, task),
            ("ZREM", keys.tasks(queue), task),
            ("HINCRBY", keys.totals(queue), "deleted", 1),
        ]
        if keep is not None and keep.isdecimal() and 0 < int(keep) <= CENTURY:
            commands += [("SET", keys.key_kept(task), mark or "", "EX", keep)]
        return Change(commands, True)

    key = keys.task(task)
    look = Look(
        [key], [("EXISTS", key), ("HMGET", key, "status", "queue", "keep", "enqueued_by")], task
    )
    return bool(transact(redis, "delete", look, decide))


def _is_taken(exists: int, mark: str | None = None, kept: Sequence[str | None] = (None,)) -> bool:
    return bool(exists) or kept[0] is not None


def _is_own(
    options: Mapping[str, Any], mark: str | None = None, kept: Sequence[str | None] = (None,)
) -> bool:
    """Tell whether an earlier try of this very call has made the task: known only of one with a
    key.
    """
    own = options.get("enqueued_by")
    return own is not None and own in (mark, kept[0])


def new_fields(
    queue: str, parameters: str, encoding: str | None, now: float, options: Options
) -> list[str | float]:
    fields: list[str | float] = [
        "queue",
        queue,
        "parameters",
        parameters,
        "created",
        now,
        "updated",
        now,
    ]
    if encoding is not None:
        fields += ["parameters_encoding", encoding]
    for name, value in (options or {}).items():
        fields += [name, value]
    return fields
