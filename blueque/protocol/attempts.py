"""One attempt from its start to its end: start, progress, complete, fail, retry, release,
confirm_cancel.
"""

from __future__ import annotations

from collections.abc import Mapping

from blueque.connection.redis import Command, Redis
from blueque.model import keys
from blueque.model.attempt_ref import AttemptRef
from blueque.protocol.events import count, event, ran
from blueque.protocol.fields import (
    IDENTITY,
    OUTCOME,
    Facts,
    Owned,
    ending,
    flat,
    let_go_of_room,
    owned,
    record_cancelled,
    stand,
    text_of,
)
from blueque.protocol.transaction import Answer, Change, transact
from blueque.protocol.watches import ownership, turn


def start(
    redis: Redis,
    attempt: AttemptRef,
    pid: int,
    now: float,
    identity: Mapping[str, str | int] | None = None,
) -> None:
    """Record that process `pid` runs the task. Nothing of the task may run before this has
    returned.

    identity: what tells this process from a later one with the same pid: pid_start, boot, ns.
    """
    queue, task, token, node = attempt

    def decide(snapshot: list[str | None]) -> Answer | Change:
        if snapshot[:4] == ["started", token, node, str(pid)]:
            return Answer(None)
        its = owned(attempt, snapshot, "reserved")
        return Change(
            [
                ("SADD", keys.started(queue), keys.started_member(node, pid, task)),
                (
                    "HSET",
                    keys.task(task),
                    "status",
                    "started",
                    "pid",
                    pid,
                    *flat(identity),
                    "started",
                    now,
                    "updated",
                    now,
                ),
                *event(redis, queue, task, "started", node, its.past, now, {"pid": pid}),
            ]
        )

    transact(redis, "start", ownership(task), decide, ahead=ownership(task))


def progress(redis: Redis, attempt: AttemptRef, text: str, now: float) -> None:
    """Record how far the task is."""
    task = attempt.task

    def decide(snapshot: list[str | None]) -> Answer | Change:
        owned(attempt, snapshot, "started")
        return Change(
            [("HSET", keys.task(task), "progress", text, "progress_at", now, "updated", now)]
        )

    transact(redis, "progress", ownership(task), decide, ahead=ownership(task))


def complete(
    redis: Redis,
    attempt: AttemptRef,
    result: str,
    encoding: str | None,
    now: float,
    facts: Facts = None,
    finished: float | None = None,
    has_checkpoint: bool = False,
) -> None:
    """Record the result of the attempt and let go of the task; also of one that was declared lost,
    and not run again.

    finished: when it ended, if that was before `now`: Redis may have been away.
    has_checkpoint: it has left one, from which nobody will go on.
    """
    queue, task, token, node = attempt

    def decide(snapshot: list[str | None]) -> Answer | Change:
        status, _, _, _, finished_by, *_ = snapshot
        if status == "complete" and finished_by == token:
            return Answer(None)
        its = owned(attempt, snapshot, "started", or_lost=True)
        coded = [] if encoding is None else ["result_encoding", encoding]
        return Change(
            [
                *_let_go(redis, queue, task, its, now),
                ("HDEL", keys.task(task), *OUTCOME),
                (
                    "HSET",
                    keys.task(task),
                    "status",
                    "complete",
                    "result",
                    result,
                    *coded,
                    *flat(facts),
                    *ending(token, finished or now, now),
                ),
                ("LPUSH", keys.complete(queue), task),
                *([("DEL", keys.checkpoint(task))] if has_checkpoint else []),
                *event(
                    redis,
                    queue,
                    task,
                    "complete",
                    node,
                    its.past,
                    now,
                    {"took": ran(its.past, finished or now)},
                ),
            ]
        )

    transact(redis, "complete", ownership(task), decide, ahead=turn(queue, node))


def fail(
    redis: Redis,
    attempt: AttemptRef,
    error: str,
    now: float,
    facts: Facts = None,
    finished: float | None = None,
) -> None:
    """Record why the attempt failed for good and let go of the task; see `complete`."""
    queue, task, token, node = attempt

    def decide(snapshot: list[str | None]) -> Answer | Change:
        status, _, _, _, finished_by, *_ = snapshot
        if status == "failed" and finished_by == token:
            return Answer(None)
        its = owned(attempt, snapshot, "started", "reserved", or_lost=True)
        return Change(
            [
                *_let_go(redis, queue, task, its, now),
                ("HDEL", keys.task(task), *OUTCOME),
                (
                    "HSET",
                    keys.task(task),
                    "status",
                    "failed",
                    "error",
                    error,
                    *flat(facts),
                    *ending(token, finished or now, now),
                ),
                ("LPUSH", keys.failed(queue), task),
                *event(
                    redis,
                    queue,
                    task,
                    "failed",
                    node,
                    its.past,
                    now,
                    {
                        "error": error,
                        "took": ran(its.past, finished or now),
                        "error_type": text_of(facts, "error_type"),
                    },
                ),
            ]
        )

    transact(redis, "fail", ownership(task), decide, ahead=turn(queue, node))


def retry(
    redis: Redis,
    attempt: AttemptRef,
    eta: float | None,
    now: float,
    facts: Facts = None,
    wish: str | None = None,
) -> str:
    """End an attempt that is to be followed by another; return the status that the task has now.

    eta: when the next is due; None puts it in line at once. facts: such as failures and last_error.
    wish: why the task itself wants to run again later; None: the attempt has failed.
    A task that somebody wants cancelled is cancelled instead.
    """
    queue, task, token, node = attempt

    def decide(snapshot: list[str | None]) -> Answer | Change:
        status, _, _, _, finished_by, *_ = snapshot
        if token is not None and finished_by == token:
            return Answer(status)
        its = owned(attempt, snapshot, "started", "reserved", or_lost=True)
        if its.is_to_be_cancelled:
            return Change(_cancelled(redis, attempt, its, now, facts), "cancelled")
        commands: list[Command] = [
            *_let_go(redis, queue, task, its, now),
            ("HDEL", keys.task(task), *IDENTITY, *OUTCOME),
        ]
        by = ending(token, None, now)
        why, kind = text_of(facts, "last_error"), text_of(facts, "last_error_type")
        took = ran(its.past, now)
        noted = event(
            redis,
            queue,
            task,
            "retried",
            node,
            its.past,
            now,
            {"error": why, "eta": eta, "took": took, "error_type": kind},
        )
        if wish is not None:
            told = {"reason": wish, "eta": eta, "took": took}
            noted = event(redis, queue, task, "postponed", node, its.past, now, told)
        if eta is None:
            commands += [
                ("HSET", keys.task(task), "status", "pending", "queued", now, *flat(facts), *by),
                *stand(queue, its.line, task),
                ("ZADD", keys.wake(queue), 0, 0),
                *noted,
            ]
            return Change(commands, "pending")
        commands += [
            ("HSET", keys.task(task), "status", "scheduled", "eta", eta, *flat(facts), *by),
            ("ZADD", keys.scheduled(queue), eta, task),
            *noted,
        ]
        return Change(commands, "scheduled")

    return str(transact(redis, "retry", ownership(task), decide, ahead=turn(queue, node)))


def release(
    redis: Redis, attempt: AttemptRef, now: float, facts: Facts = None, reason: str | None = None
) -> str:
    """Hand an attempt back: the task is the next in line again. Return the status that it has now.

    A task that somebody wants cancelled is cancelled instead.
    reason: why, in a word, for its history.
    """
    queue, task, token, node = attempt

    def decide(snapshot: list[str | None]) -> Answer | Change:
        status, _, _, _, finished_by, *_ = snapshot
        if token is not None and finished_by == token:
            return Answer(status)
        its = owned(attempt, snapshot, "started", "reserved")
        if its.is_to_be_cancelled:
            return Change(_cancelled(redis, attempt, its, now, facts), "cancelled")
        return Change(
            [
                *_let_go(redis, queue, task, its, now),
                ("HDEL", keys.task(task), *IDENTITY, *OUTCOME),
                (
                    "HSET",
                    keys.task(task),
                    "status",
                    "pending",
                    "queued",
                    now,
                    *flat(facts),
                    *ending(token, None, now),
                ),
                *stand(queue, its.line, task, is_first=True),
                ("ZADD", keys.wake(queue), 0, 0),
                *event(redis, queue, task, "released", node, its.past, now, {"reason": reason}),
            ],
            "pending",
        )

    return str(transact(redis, "release", ownership(task), decide, ahead=turn(queue, node)))


def confirm_cancel(redis: Redis, attempt: AttemptRef, now: float, facts: Facts = None) -> None:
    """Record that the attempt was ended because somebody wanted it cancelled."""
    queue, task, token, node = attempt

    def decide(snapshot: list[str | None]) -> Answer | Change:
        status, _, _, _, finished_by, *_ = snapshot
        if status == "cancelled" and finished_by == token:
            return Answer(None)
        its = owned(attempt, snapshot, "started", or_lost=True)
        return Change(_cancelled(redis, attempt, its, now, facts))

    transact(redis, "confirm_cancel", ownership(task), decide, ahead=turn(queue, node))


def _cancelled(
    redis: Redis, attempt: AttemptRef, its: Owned, now: float, facts: Facts
) -> list[Command]:
    queue, task, token, node = attempt
    return [
        *_let_go(redis, queue, task, its, now),
        *record_cancelled(queue, task, token, now, facts),
        *event(redis, queue, task, "cancelled", node, its.past, now, {"took": ran(its.past, now)}),
    ]


def _let_go(redis: Redis, queue: str, task: str, its: Owned, now: float) -> list[Command]:
    """Take the task out of where it is while an attempt owns it, or was declared lost: then it was
    counted as failed.
    """
    if its.status == "failed":
        return [("LREM", keys.failed(queue), 1, task), *count(redis, queue, "found", now)]
    held: list[Command] = [("LREM", keys.reserved(queue, its.node), 1, task)]
    if its.status == "started":
        held += [("SREM", keys.started(queue), keys.started_member(its.node, its.pid, task))]
    return held + let_go_of_room(queue, task, its.lock, its.counted)
