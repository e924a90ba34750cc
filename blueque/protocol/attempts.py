"""The transactions of one attempt: start, progress, complete, fail, retry, release,
confirm_cancel.
"""

from __future__ import annotations

from collections.abc import Mapping

from blueque.connection.redis import Command, Redis
from blueque.model import keys
from blueque.model.attempt_ref import AttemptRef
from blueque.protocol.events import Event, after, count, note_event, ran, record_event
from blueque.protocol.fields import (
    IDENTITY,
    OUTCOME,
    AttemptFields,
    Facts,
    ending,
    flat,
    put_in_line,
    record_cancelled,
    release_room,
    require_owner,
    text_of,
)
from blueque.protocol.reserving import Popped
from blueque.protocol.transaction import Answer, Change, Verdict, transact
from blueque.protocol.watches import ownership, ownership_and_turn, turn_and_next


def start(
    redis: Redis,
    attempt: AttemptRef,
    pid: int,
    now: float,
    identity: Mapping[str, str | int] | None = None,
) -> None:
    """Record that process `pid` runs the task. Nothing of the task may run before this returns.

    identity: pid_start, boot and ns, which tell this process from a later one with the same pid.
    """
    queue, task, token, node = attempt
    key = keys.task(task)

    def decide(reply: list[str | None]) -> Verdict[None]:
        fields = AttemptFields._make(reply)
        if fields[:4] == ("started", token, node, str(pid)):
            return Answer(None)
        require_owner(attempt, fields, "reserved")
        began = ("started", now, "updated", now)
        return Change(
            [
                ("SADD", keys.started(queue), keys.started_member(node, pid, task)),
                ("HSET", key, "status", "started", "pid", pid, *flat(identity), *began),
                *record_event(
                    redis, queue, task, fields, Event("started", node, now, {"pid": pid})
                ),
            ],
            None,
        )

    transact(redis, "start", ownership(task), decide, ahead=ownership(task))


def progress(redis: Redis, attempt: AttemptRef, text: str, now: float) -> None:
    """Record the progress of the task."""
    task = attempt.task

    def decide(reply: list[str | None]) -> Verdict[None]:
        require_owner(attempt, AttemptFields._make(reply), "started")
        return Change(
            [("HSET", keys.task(task), "progress", text, "progress_at", now, "updated", now)], None
        )

    transact(redis, "progress", ownership(task), decide, ahead=ownership(task))


def complete(
    redis: Redis,
    attempt: AttemptRef,
    result: str,
    now: float,
    facts: Facts = None,
    finished: float | None = None,
    has_checkpoint: bool = False,
) -> bool:
    """Record the result of the attempt and end the task. Return whether others wait for it.

    A task that was declared lost, and has not run again, accepts the result, too.
    facts: further fields, `result_encoding` first if the result has one.
    finished: when the attempt ended, if that was before `now`: Redis may have been away.
    has_checkpoint: Redis may have a checkpoint, which is deleted.
    """
    queue, task, token, node = attempt
    end = finished or now

    def decide(reply: list[str | None]) -> Verdict[bool]:
        fields = AttemptFields._make(reply)
        if fields.status == "complete" and fields.finished_by == token:
            return Answer(fields.dependents is not None)
        require_owner(attempt, fields, "started", or_lost=True)
        commands = completion(redis, attempt, fields, result, now, facts, end, has_checkpoint)
        return Change(commands, fields.dependents is not None)

    return transact(redis, "complete", ownership(task), decide, ahead=turn_and_next(queue, node))


def complete_and_pop(
    redis: Redis,
    attempt: AttemptRef,
    instance: str,
    result: str,
    now: float,
    facts: Facts = None,
    finished: float | None = None,
    has_checkpoint: bool = False,
) -> Popped | None:
    """Do the same, and pop the next task id of the default line for the same listener. Return what
    came of the pop; None: it is not known, so look through the list of the listener.

    Nothing is popped where `pop` would refuse it: the refusal is `choose` then.
    """
    queue, task, token, node = attempt
    end = finished or now

    def decide(
        reply: list[str | None],
        registered: list[str | None],
        settings: list[str | None],
        others: int,
    ) -> Verdict[Popped | None]:
        fields = AttemptFields._make(reply)
        if fields.status == "complete" and fields.finished_by == token:
            return Answer(None)
        require_owner(attempt, fields, "started", or_lost=True)
        commands = completion(redis, attempt, fields, result, now, facts, end, has_checkpoint)
        is_awaited = fields.dependents is not None
        if registered != [instance, "alive"] or settings != [None, None] or others:
            return Change(commands, Popped(refusal="choose", is_awaited=is_awaited))
        pop: Command = ("RPOPLPUSH", keys.pending(queue), keys.reserved(queue, node))
        return Change([*commands, pop], lambda replies: Popped(replies[-1], is_awaited=is_awaited))

    look = ownership_and_turn(task, queue, node)
    return transact(redis, "complete_and_pop", look, decide)


def completion(
    redis: Redis,
    attempt: AttemptRef,
    fields: AttemptFields,
    result: str,
    now: float,
    facts: Facts,
    finished: float,
    has_checkpoint: bool,
) -> list[Command]:
    queue, task, token, node = attempt
    key, event = keys.task(task), Event("complete", node, now, {"took": ran(fields, finished)})
    written: Command = ("status", "complete", "result", result, *flat(facts))
    # At the first attempt, `reserve` has removed what 1.0.0 may have left there.
    has_outcome = fields.status == "failed" or fields.attempt != "1" or token is None
    return [
        *_take_out(redis, attempt, fields, now),
        *([("HDEL", key, *OUTCOME)] if has_outcome else []),
        ("HSET", key, *written, *ending(token, finished, now), *flat(after(fields))),
        ("LPUSH", keys.complete(queue), task),
        *([("DEL", keys.checkpoint(task))] if has_checkpoint else []),
        *note_event(redis, queue, task, fields, event),
    ]


def fail(
    redis: Redis,
    attempt: AttemptRef,
    error: str,
    now: float,
    facts: Facts = None,
    finished: float | None = None,
) -> bool:
    """Record why the attempt failed and end the task; the rest is as for `complete`."""
    queue, task, token, node = attempt
    key = keys.task(task)

    def decide(reply: list[str | None]) -> Verdict[bool]:
        fields = AttemptFields._make(reply)
        if fields.status == "failed" and fields.finished_by == token:
            return Answer(fields.dependents is not None)
        require_owner(attempt, fields, "started", "reserved", or_lost=True)
        ended = ending(token, finished or now, now)
        took = ran(fields, finished or now)
        why = {"error": error, "took": took, "error_type": text_of(facts, "error_type")}
        return Change(
            [
                *_take_out(redis, attempt, fields, now),
                ("HDEL", key, *OUTCOME),
                ("HSET", key, "status", "failed", "error", error, *flat(facts), *ended),
                ("LPUSH", keys.failed(queue), task),
                *record_event(redis, queue, task, fields, Event("failed", node, now, why)),
            ],
            fields.dependents is not None,
        )

    return transact(redis, "fail", ownership(task), decide, ahead=turn_and_next(queue, node))


def retry(
    redis: Redis,
    attempt: AttemptRef,
    eta: float | None,
    now: float,
    facts: Facts = None,
    wish: str | None = None,
) -> str:
    """End an attempt and have the task run again; return the status that the task has now.

    A task with a request to cancel is cancelled instead.
    eta: when the next attempt is due; None puts the task in line at once.
    facts: further fields, such as failures and last_error.
    wish: why the handler asked to run again later; None: the attempt has failed.
    """
    queue, task, token, node = attempt
    key = keys.task(task)

    def decide(reply: list[str | None]) -> Verdict[str]:
        fields = AttemptFields._make(reply)
        if token is not None and fields.finished_by == token:
            return Answer(fields.status or "")
        require_owner(attempt, fields, "started", "reserved", or_lost=True)
        if fields.cancel is not None:
            return Change(_cancelled(redis, attempt, fields, now, facts), "cancelled")
        commands: list[Command] = [
            *_take_out(redis, attempt, fields, now),
            ("HDEL", key, *IDENTITY, *OUTCOME),
        ]
        ended = ending(token, None, now)
        event = _retry_event(attempt, fields, eta, now, facts, wish)
        if eta is None:
            commands += [
                ("HSET", key, "status", "pending", "queued", now, *flat(facts), *ended),
                *put_in_line(queue, fields.line, task),
                ("ZADD", keys.wake(queue), 0, 0),
                *record_event(redis, queue, task, fields, event),
            ]
            return Change(commands, "pending")
        commands += [
            ("HSET", key, "status", "scheduled", "eta", eta, *flat(facts), *ended),
            ("ZADD", keys.scheduled(queue), eta, task),
            *record_event(redis, queue, task, fields, event),
        ]
        return Change(commands, "scheduled")

    return transact(redis, "retry", ownership(task), decide, ahead=turn_and_next(queue, node))


def _retry_event(
    attempt: AttemptRef,
    fields: AttemptFields,
    eta: float | None,
    now: float,
    facts: Facts,
    wish: str | None,
) -> Event:
    took = ran(fields, now)
    if wish is not None:
        return Event("postponed", attempt.node, now, {"reason": wish, "eta": eta, "took": took})
    error, error_type = text_of(facts, "last_error"), text_of(facts, "last_error_type")
    why = {"error": error, "eta": eta, "took": took, "error_type": error_type}
    return Event("retried", attempt.node, now, why)


def release(
    redis: Redis, attempt: AttemptRef, now: float, facts: Facts = None, reason: str | None = None
) -> str:
    """Hand an attempt back: the task is the next in line again. Return the status that it has now.

    A task with a request to cancel is cancelled instead.
    reason: why, in a word, for the history of the task.
    """
    queue, task, token, node = attempt
    key = keys.task(task)

    def decide(reply: list[str | None]) -> Verdict[str]:
        fields = AttemptFields._make(reply)
        if token is not None and fields.finished_by == token:
            return Answer(fields.status or "")
        require_owner(attempt, fields, "started", "reserved")
        if fields.cancel is not None:
            return Change(_cancelled(redis, attempt, fields, now, facts), "cancelled")
        ended = ending(token, None, now)
        return Change(
            [
                *_take_out(redis, attempt, fields, now),
                ("HDEL", key, *IDENTITY, *OUTCOME),
                ("HSET", key, "status", "pending", "queued", now, *flat(facts), *ended),
                *put_in_line(queue, fields.line, task, is_first=True),
                ("ZADD", keys.wake(queue), 0, 0),
                *record_event(
                    redis, queue, task, fields, Event("released", node, now, {"reason": reason})
                ),
            ],
            "pending",
        )

    return transact(redis, "release", ownership(task), decide, ahead=turn_and_next(queue, node))


def confirm_cancel(redis: Redis, attempt: AttemptRef, now: float, facts: Facts = None) -> bool:
    """Record that the attempt was ended on request. Return whether others wait for the task."""
    queue, task, token, node = attempt

    def decide(reply: list[str | None]) -> Verdict[bool]:
        fields = AttemptFields._make(reply)
        if fields.status == "cancelled" and fields.finished_by == token:
            return Answer(fields.dependents is not None)
        require_owner(attempt, fields, "started", or_lost=True)
        commands = _cancelled(redis, attempt, fields, now, facts)
        return Change(commands, fields.dependents is not None)

    return transact(
        redis, "confirm_cancel", ownership(task), decide, ahead=turn_and_next(queue, node)
    )


def _cancelled(
    redis: Redis, attempt: AttemptRef, fields: AttemptFields, now: float, facts: Facts
) -> list[Command]:
    queue, task, token, node = attempt
    took = ran(fields, now)
    return [
        *_take_out(redis, attempt, fields, now),
        *record_cancelled(queue, task, token, now, facts),
        *record_event(redis, queue, task, fields, Event("cancelled", node, now, {"took": took})),
    ]


def _take_out(
    redis: Redis, attempt: AttemptRef, fields: AttemptFields, now: float
) -> list[Command]:
    """Return the commands that take the task out of the place where it is during an attempt.

    A task that was declared lost is among the failed ones, and was counted there.
    """
    queue, task = attempt.queue, attempt.task
    if fields.status == "failed":
        return [("LREM", keys.failed(queue), 1, task), *count(redis, queue, "found", now)]
    node, pid = fields.node or "", fields.pid or ""
    commands: list[Command] = [("LREM", keys.reserved(queue, node), 1, task)]
    if fields.status == "started":
        commands += [("SREM", keys.started(queue), keys.started_member(node, pid, task))]
    return commands + release_room(queue, task, fields.lock, fields.counted)
