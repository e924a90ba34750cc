"""The transactions of an attempt that runs: start, progress."""

from __future__ import annotations

from collections.abc import Mapping

from blueque.connection.redis import Redis
from blueque.model import keys
from blueque.model.attempt_ref import AttemptRef
from blueque.protocol.events import Event, after, note_event
from blueque.protocol.fields import TaskFields, flat, require_owner
from blueque.protocol.transaction import Answer, Change, Verdict, transact
from blueque.protocol.watches import fields_of


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
        fields = TaskFields._make(reply)
        owner = fields.status, fields.token, fields.node, fields.pid
        if owner == ("started", token, node, str(pid)):
            return Answer(None)
        require_owner(attempt, fields, "reserved")
        began = ("started", now, "updated", now, *flat(after(fields)))
        return Change(
            [
                ("SADD", keys.started(queue), keys.started_member(node, pid, task)),
                ("HSET", key, "status", "started", "pid", pid, *flat(identity), *began),
                *note_event(redis, queue, task, fields, Event("started", node, now, {"pid": pid})),
            ],
            None,
        )

    transact(redis, "start", fields_of(task), decide)


def progress(redis: Redis, attempt: AttemptRef, text: str, now: float) -> None:
    """Record the progress of the task."""
    task = attempt.task
    key = keys.task(task)

    def decide(reply: list[str | None]) -> Verdict[None]:
        require_owner(attempt, TaskFields._make(reply), "started")
        return Change(
            [
                ("HSET", key, "progress", text, "progress_at", now, "updated", now),
                ("HSETNX", key, "progress_first", f"{now} {text}"),
            ],
            None,
        )

    transact(redis, "progress", fields_of(task), decide)
