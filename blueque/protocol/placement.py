"""The place of waiting tasks: set_priority, put_first, bring_forward, move, expire; whole queues:
set_settings; who is told: call, wake_waiting.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from blueque.connection.redis import AnyLook, Command, Look, Redis
from blueque.errors import WrongQueue, WrongState
from blueque.model import keys
from blueque.model.lines import DEFAULT
from blueque.model.start_time import EXPIRED, is_past
from blueque.protocol.children import BLUEQUE
from blueque.protocol.events import Event, count, record_event, record_in_queue
from blueque.protocol.fields import OUTCOME, TaskFields, flat
from blueque.protocol.moves import enter, leave
from blueque.protocol.transaction import Answer, Change, Verdict, transact
from blueque.protocol.watches import fields_of, read_task

_TAKEN = "it is being taken by a listener"  # a pending task that is in no line


class _Waiting(NamedTuple):
    """A task as one of these transactions has read it.

    is_in_line: whether it stands in its line. If a pending task does not, a listener of 1.0.0 may
        have it and be about to run it: it must not be given to another.
    first: the task that is the next of that line, for put_first.
    """

    fields: TaskFields
    is_in_line: bool
    first: str | None

    def require_waiting(self, queue: str, task: str) -> None:
        if self.fields.status not in ("pending", "scheduled", "blocked"):
            raise WrongState(task, self.fields.status, "move")
        if self.fields.queue != queue:
            raise WrongQueue(task, queue)


_Decide: TypeAlias = Callable[[_Waiting], Verdict[None]]


def set_priority(
    redis: Redis, queue: str, task: str, priority: int, now: float, by: str = ""
) -> None:
    """Give a waiting task another priority. It is the last of those with that priority then.

    A task that a listener is about to reserve stays with that listener. by: who asks.
    Raises WrongState, WrongQueue.
    """
    key = keys.task(task)

    def decide(waiting: _Waiting) -> Verdict[None]:
        waiting.require_waiting(queue, task)
        fields = waiting.fields
        if (fields.priority or "0") == str(priority):
            return Answer(None)
        written: Command = ("HSET", key, "priority", priority)
        commands: list[Command] = [
            written if priority else ("HDEL", key, "priority"),
            ("HSET", key, "updated", now),
        ]
        if waiting.is_in_line:
            commands += [
                *leave(task, fields),
                *enter(task, fields._replace(priority=str(priority))),
            ]
        event = Event("prioritized", by, now, {"priority": priority})
        commands += record_event(redis, queue, task, fields, event)
        return Change(commands, None)

    _transact(redis, "set_priority", queue, task, decide)


def put_first(redis: Redis, queue: str, task: str, now: float, by: str = "") -> None:
    """Make a pending task the next of its line. by: who asks. Raises WrongState, WrongQueue."""

    def decide(waiting: _Waiting) -> Verdict[None]:
        waiting.require_waiting(queue, task)
        fields = waiting.fields
        if not waiting.is_in_line:
            why = _TAKEN if fields.status == "pending" else None
            raise WrongState(task, fields.status, "move", why)
        if waiting.first == task:
            return Answer(None)
        return Change(
            [
                *leave(task, fields),
                *enter(task, fields, is_first=True),
                ("HSET", keys.task(task), "updated", now),
                *record_event(redis, queue, task, fields, Event("put_first", by, now)),
            ],
            None,
        )

    _transact(redis, "put_first", queue, task, decide)


def bring_forward(redis: Redis, queue: str, task: str, now: float) -> None:
    """Make a scheduled task due now. Raises WrongState, WrongQueue."""

    def decide(reply: list[str | None]) -> Verdict[None]:
        fields = TaskFields._make(reply)
        if fields.status != "scheduled":
            raise WrongState(task, fields.status, "bring_forward")
        if fields.queue != queue:
            raise WrongQueue(task, queue)
        if _is_due(fields.eta, now):
            return Answer(None)
        return Change(
            [
                ("HSET", keys.task(task), "eta", now, "updated", now),
                ("ZADD", keys.scheduled(queue), "XX", now, task),
            ],
            None,
        )

    transact(redis, "bring_forward", fields_of(task), decide)


def expire(redis: Redis, queue: str, task: str, now: float) -> None:
    """Cancel a task that has not started in time, or move it to the queue that it names.

    A task that has started once, or need not start by a time, is only taken out of the index.
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
            why = ("cancelled_by", BLUEQUE, "cancel_reason", EXPIRED)
            done = [
                *leave(task, fields),
                ("HDEL", key, *OUTCOME, "cancel"),
                ("HSET", key, "status", "cancelled", *why, "finished", now, "updated", now),
                *enter(task, fields._replace(status="cancelled")),
                *record_event(
                    redis,
                    queue,
                    task,
                    fields,
                    Event("cancelled", BLUEQUE, now, {"reason": EXPIRED}),
                ),
            ]
        else:
            event = Event("moved", BLUEQUE, now, {"from": queue, "reason": EXPIRED})
            done = [
                ("HDEL", key, "start_before", "expired_to"),
                *_moved(redis, queue, task, fields, fields.expired_to, now, event),
            ]
        return Change([listed, *done, *count(redis, queue, EXPIRED, now)], None)

    _transact(redis, "expire", queue, task, decide)


def move(redis: Redis, queue: str, task: str, to: str, now: float, by: str = "") -> None:
    """Move a waiting task to another queue, as the last of its line there.

    by: who asks. Raises WrongState, WrongQueue.
    """

    def decide(waiting: _Waiting) -> Verdict[None]:
        fields = waiting.fields
        if fields.queue == to and fields.status is not None:
            return Answer(None)
        waiting.require_waiting(queue, task)
        if fields.status == "pending" and not waiting.is_in_line:
            raise WrongState(task, fields.status, "move", _TAKEN)
        event = Event("moved", by, now, {"from": queue})
        return Change(_moved(redis, queue, task, fields, to, now, event), None)

    _transact(redis, "move", queue, task, decide)


def _moved(
    redis: Redis, queue: str, task: str, fields: TaskFields, to: str, now: float, event: Event
) -> list[Command]:
    """Return the commands that move a waiting task."""
    commands: list[Command] = [
        ("HSET", keys.task(task), "queue", to, "updated", now),
        ("ZINCRBY", keys.QUEUES, 0, to),
        ("ZREM", keys.tasks(queue), task),
        ("ZADD", keys.tasks(to), now if fields.created is None else fields.created, task),
        *record_event(redis, to, task, fields, event),
        ("HINCRBY", keys.totals(queue), "moved_away", 1),
        *leave(task, fields),
        *enter(task, fields._replace(queue=to), _time_of(fields, now)),
    ]
    return commands


def _time_of(fields: TaskFields, now: float) -> float | str:
    """Return when a scheduled task is due, and a blocked one is looked at."""
    return now if fields.status != "scheduled" or fields.eta is None else fields.eta


def set_settings(
    redis: Redis, queue: str, wanted: Mapping[str, str | None], now: float, by: str = ""
) -> bool:
    """Set or remove settings of a queue. False: they are so already.

    wanted: the text of each setting; None: it is removed. A pause has `paused`, `paused_by` and
        perhaps `paused_reason`; one that is there already stays as it is.
    """
    settings, names = keys.settings(queue), [*wanted]

    def decide(reply: list[str | None]) -> Verdict[bool]:
        present = dict(zip(names, reply, strict=True))
        if "paused" in wanted and (wanted["paused"] is None) is (present["paused"] is None):
            return Answer(False)
        written = {
            name: text
            for name, text in wanted.items()
            if text is not None and text != present[name]
        }
        removed = [
            name for name, text in wanted.items() if text is None and present[name] is not None
        ]
        if not (written or removed):
            return Answer(False)
        commands: list[Command] = []
        if removed:
            commands += [("HDEL", settings, *removed)]
        if written:
            commands += [("HSET", settings, *flat(written)), ("ZINCRBY", keys.QUEUES, 0, queue)]
        if "paused" in removed or "max_concurrency" in wanted:
            commands += [("ZADD", keys.wake(queue), 0, 0)]
        event = record_in_queue(queue, _event_of(written, removed, by, now))
        return Change([*commands, event], True)

    look: Look[list[str | None]] = Look([settings], [("HMGET", settings, *names)])
    return transact(redis, "set_settings", look, decide)


def _event_of(written: Mapping[str, str], removed: Sequence[str], by: str, now: float) -> Event:
    if "paused" in written:
        return Event("paused", by, now, {"reason": written.get("paused_reason")})
    if "paused" in removed:
        return Event("resumed", by, now)
    if "max_concurrency" in (*written, *removed):
        most = written.get("max_concurrency")
        return Event("limited", by, now, {"max_concurrency": None if most is None else int(most)})
    return Event("set", by, now, {**written, "unset": " ".join(removed) or None})


def call(redis: Redis, queue: str, node: str) -> None:
    """Wake one listener that has the resources which a task needs and this listener lacks."""
    redis.read(("ZADD", keys.orders(queue, node), 0, 0))


def wake_waiting(redis: Redis, lock: str) -> None:
    """Wake one listener of each queue that has tasks waiting for a lock which may be free now."""
    (lines,) = redis.read(("SMEMBERS", keys.waiting(lock)))
    queues = sorted({line.partition("_")[2] for line in lines})
    if queues:
        redis.read(*[("ZADD", keys.wake(queue), 0, 0) for queue in queues])


def _is_due(eta: str | None, now: float) -> bool:
    try:
        return eta is not None and float(eta) <= now
    except ValueError:  # malformed; written by another program
        return False


def _transact(redis: Redis, name: str, queue: str, task: str, decide: _Decide) -> None:
    """Run a transaction that needs to know the place of the task in its line.

    The line is not known before the task is read, so the first look guesses the default line.
    """
    line: str | None = DEFAULT
    while line is not None:
        line = _try_in_line(redis, name, queue, task, decide, line)


def _try_in_line(
    redis: Redis, name: str, queue: str, task: str, decide: _Decide, line: str
) -> str | None:
    """Return None when it is done, else the line in which the task is."""
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
    if name == "put_first":
        reads.append(("LINDEX", key, -1))
    look: AnyLook = Look([keys.task(task), key], reads, task)
    return transact(redis, name, look, decide_here)
