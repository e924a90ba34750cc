"""The place of waiting tasks: place, bring_forward, expire; and wake_waiting."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from blueque.connection.redis import AnyLook, Command, Look, Redis
from blueque.errors import WrongQueue, WrongState
from blueque.model import keys
from blueque.model.encoding import time_or
from blueque.model.lines import DEFAULT
from blueque.model.start_time import EXPIRED, is_past
from blueque.protocol.cancelling import BLUEQUE, cancelled
from blueque.protocol.events import Event, count, record_event
from blueque.protocol.fields import TaskFields, flat
from blueque.protocol.moves import enter, leave
from blueque.protocol.transaction import Answer, Change, Verdict, transact
from blueque.protocol.watches import fields_of, read_task


class _Waiting(NamedTuple):
    """A task as one of these transactions has read it.

    is_in_line: whether it is in its line. If a pending task is not, a 1.0.0 listener may have it
        and be about to run it: it must not be given to another.
    first: the next task of that line, if that was read.
    """

    fields: TaskFields
    is_in_line: bool
    first: str | None

    def require_waiting(self, queue: str, task: str) -> None:
        if self.fields.status not in ("pending", "scheduled", "blocked"):
            raise WrongState(task, self.fields.status, "move")
        if self.fields.queue != queue:
            raise WrongQueue(task, queue)

    def require_not_taken(self, task: str, is_first: bool) -> None:
        """is_first: it has to stand in its line."""
        if self.fields.status == "pending" and not self.is_in_line:
            raise WrongState(task, "pending", "move", "it is being taken by a listener")
        if is_first and not self.is_in_line:
            raise WrongState(task, self.fields.status, "move")


_Decide: TypeAlias = Callable[[_Waiting], Verdict[None]]


def place(
    redis: Redis,
    queue: str,
    task: str,
    now: float,
    by: str = "",
    *,
    to: str | None = None,
    priority: int | None = None,
    is_first: bool = False,
) -> None:
    """Let a waiting task wait elsewhere: in another queue, with another priority, or as the next.

    to: the name of the queue; None: its own. priority: None: its own. by: who asks.
    is_first: as the next of its line, not as the last; then it must be in line. A task that only
        gets another priority may be about to be reserved: it stays with that listener.
    Raises WrongState, WrongQueue.
    """

    def decide(waiting: _Waiting) -> Verdict[None]:
        fields = waiting.fields
        has_queue = to is None or fields.queue == to
        has_priority = priority is None or (fields.priority or "0") == str(priority)
        if to is not None and has_queue and fields.status is not None and has_priority:
            return Answer(None)
        waiting.require_waiting(queue, task)
        if not has_queue or is_first:
            waiting.require_not_taken(task, is_first)
        if has_queue and has_priority and (not is_first or waiting.first == task):
            return Answer(None)
        text = fields.priority if has_priority else str(priority)
        new = fields._replace(queue=to or queue, priority=text)
        if not has_queue:
            event = Event("moved", by, now, {"from": queue})
        elif not has_priority:
            event = Event("prioritized", by, now, {"priority": priority})
        else:
            event = Event("put_first", by, now)
        return Change(_placed(redis, task, waiting, new, event, is_first), None)

    _transact(redis, "place", queue, task, decide, is_first)


def bring_forward(redis: Redis, queue: str, task: str, now: float, by: str = "") -> None:
    """Make a scheduled task due now. by: who asks. Raises WrongState, WrongQueue."""

    def decide(reply: list[str | None]) -> Verdict[None]:
        fields = TaskFields._make(reply)
        if fields.status != "scheduled":
            raise WrongState(task, fields.status, "bring_forward")
        if fields.queue != queue:
            raise WrongQueue(task, queue)
        if is_past(fields.eta, now):
            return Answer(None)
        return Change(
            [
                ("HSET", keys.task(task), "eta", now, "updated", now),
                ("ZADD", keys.scheduled(queue), "XX", now, task),
                *record_event(redis, queue, task, fields, Event("brought_forward", by, now)),
            ],
            None,
        )

    transact(redis, "bring_forward", fields_of(task), decide)


def expire(redis: Redis, queue: str, task: str, now: float) -> None:
    """Cancel a task that has not started in time, or move it to the queue that it names.

    A task that has ever started, or has no such limit, is only removed from the index.
    """
    key, listed = keys.task(task), ("ZREM", keys.EXPIRING, task)

    def decide(waiting: _Waiting) -> Verdict[None]:
        fields = waiting.fields
        is_elsewhere = fields.status is not None and fields.queue != queue
        is_held = fields.status == "pending" and not waiting.is_in_line
        if is_elsewhere or (is_held and fields.attempt is None):
            return Answer(None)  # the listener that has popped it will see, or the next look
        is_waiting = fields.status in ("pending", "scheduled", "blocked")
        if not is_waiting or fields.attempt is not None or fields.start_before is None:
            return Change([listed], None)
        if not is_past(fields.start_before, now):
            return Answer(None)
        if fields.expired_to is None:
            done = cancelled(redis, task, fields, now, EXPIRED)
        else:
            event = Event("moved", BLUEQUE, now, {"from": queue, "reason": EXPIRED})
            new = fields._replace(queue=fields.expired_to)
            done = [
                ("HDEL", key, "start_before", "expired_to"),
                *_placed(redis, task, waiting, new, event),
            ]
        return Change([listed, *done, *count(redis, queue, EXPIRED, now)], None)

    _transact(redis, "expire", queue, task, decide)


def _placed(
    redis: Redis,
    task: str,
    waiting: _Waiting,
    new: TaskFields,
    event: Event,
    is_first: bool = False,
) -> list[Command]:
    """Return the commands that move a waiting task. new: the task with its new queue and priority.

    A task may have moved by hand to the queue to which it expires.
    """
    old, key, now = waiting.fields, keys.task(task), event.at
    queue, to, has_moved = old.queue or "", new.queue or "", event.what == "moved"
    changed = {"queue": to} if has_moved else {}
    commands: list[Command] = []
    if new.priority != old.priority:
        changed |= {} if new.priority == "0" else {"priority": new.priority or ""}
        commands += [("HDEL", key, "priority")] if new.priority == "0" else []
    commands += [("HSET", key, *flat(changed), "updated", now)]
    if has_moved:
        commands += [
            ("ZINCRBY", keys.QUEUES, 0, to),
            ("ZREM", keys.tasks(queue), task),
            ("ZADD", keys.tasks(to), time_or(old.created, now), task),
            ("HINCRBY", keys.totals(queue), "moved_away", 1),
        ]
    if has_moved or waiting.is_in_line:
        commands += [*leave(task, old), *enter(task, new, _time_of(old, now), is_first)]
    return [*commands, *record_event(redis, to, task, old, event)]


def _time_of(fields: TaskFields, now: float) -> float | str:
    """Return when a scheduled task is due, or a blocked one is rechecked."""
    return now if fields.status != "scheduled" or fields.eta is None else fields.eta


def wake_waiting(redis: Redis, lock: str) -> None:
    """Wake one listener of each queue that has tasks waiting for a lock which may be free now."""
    (lines,) = redis.read(("SMEMBERS", keys.waiting(lock)))
    queues = sorted({line.partition("_")[2] for line in lines})
    if queues:
        redis.read(*[("ZADD", keys.wake(queue), 0, 0) for queue in queues])


def _transact(
    redis: Redis, name: str, queue: str, task: str, decide: _Decide, asks_first: bool = False
) -> None:
    """Run a transaction that needs to know the place of the task in its line.

    The line is unknown before the task is read, so the first look guesses the default line.
    asks_first: it also needs to know the next task of that line.
    """
    line: str | None = DEFAULT
    while line is not None:
        line = _try_in_line(redis, name, queue, task, decide, line, asks_first)


def _try_in_line(
    redis: Redis, name: str, queue: str, task: str, decide: _Decide, line: str, asks_first: bool
) -> str | None:
    """Return None when it is done, else the line of the task."""
    key = keys.line(queue, line)

    def decide_here(
        reply: list[str | None], place: int | None, first: str | None = None
    ) -> Verdict[str | None]:
        fields = TaskFields._make(reply)
        if fields.line != line and (fields.status, fields.queue) == ("pending", queue):
            return Answer(fields.line)
        is_in_line = place is not None and fields.status == "pending"
        verdict = decide(_Waiting(fields, is_in_line, first))
        if isinstance(verdict, Answer):
            return Answer(None)
        return Change(verdict.commands, None)

    reads: list[Command] = [read_task(task), ("LPOS", key, task)]
    if asks_first:
        reads.append(("LINDEX", key, -1))
    look: AnyLook = Look([keys.task(task), key], reads, task)
    return transact(redis, name, look, decide_here)
