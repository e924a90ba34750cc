"""After a listener has died, or Redis has lost data: recover, lose, adopt, restore, reassert.

Each handles one task and is safe to repeat. Any number of judges may do the same at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from blueque.connection.redis import Command, Look, Redis, as_hash
from blueque.errors import NotRegistered, PayloadRefused
from blueque.model import keys
from blueque.model.attempt_ref import AttemptRef
from blueque.model.encoding import DIGITS, count_of, time_or
from blueque.model.lines import line_of
from blueque.model.retry import Retry
from blueque.model.states import HELD, LOST
from blueque.model.task import Task
from blueque.protocol.ends import End, ending
from blueque.protocol.events import Event, after, count, record_event
from blueque.protocol.fields import IDENTITY, OUTCOME, Facts, TaskFields, enter_tags, flat
from blueque.protocol.moves import enter, leave
from blueque.protocol.transaction import Answer, Change, Verdict, transact
from blueque.protocol.watches import read_task


class Loss(NamedTuple):
    """The record of an attempt that is given up.

    error: a sentence. facts: further fields, such as lost_node and last_seen.
    """

    error: str
    facts: Facts = None


def recover(
    redis: Redis,
    queue: str,
    task: str,
    node: str,
    instance: str | None,
    now: float,
    dead_claimant: str | None = None,
) -> str | None:
    """Handle one entry in the list of a dead listener. Return `released`, `dropped`, or None: it
    was gone.

    A task that had not started is next in line again. A started task stays as it is: `started`. So
    does a task that a 1.0.0 listener has claimed: `claimed`.
    instance: of the registration, which says dead; None for a listener without a registration.
    dead_claimant: a 1.0.0 listener that is known to be dead, so that its claim is void.
    """
    reserved, key = keys.reserved(queue, node), keys.task(task)

    def decide(
        registration: list[str | None], is_member: int, place: int | None, reply: list[str | None]
    ) -> Verdict[str | None]:
        if place is None or not _is_as_judged(registration, is_member, instance):
            return Answer(None)
        fields = TaskFields._make(reply)
        is_held_here = fields.status in HELD and fields.node == node
        if is_held_here and _is_claimed(fields, dead_claimant):
            return Answer("claimed")
        if fields.status == "started" and is_held_here:
            return Answer("started")
        is_waiting = fields.status == "pending" or is_held_here
        if not is_waiting or fields.queue != queue:
            return Change([("LREM", reserved, 1, task)], "dropped")
        return Change(
            [
                *leave(task, fields._replace(status="reserved", node=node)),
                ("HDEL", key, *IDENTITY),
                ("HSET", key, "status", "pending", "queued", now, "updated", now),
                *enter(task, fields._replace(status="pending"), is_first=True),
                *record_event(redis, queue, task, fields, Event("recovered", node, now)),
            ],
            "released",
        )

    return transact(redis, "recover", _recover_look(queue, task, node), decide)


def _recover_look(
    queue: str, task: str, node: str
) -> Look[list[str | None], int, int | None, list[str | None]]:
    registration, listeners = keys.listener(queue, node), keys.listeners(queue)
    reserved, key = keys.reserved(queue, node), keys.task(task)
    reads: list[Command] = [
        ("HMGET", registration, "instance", "state"),
        ("SISMEMBER", listeners, node),
        ("LPOS", reserved, task),
        read_task(task),
    ]
    return Look([registration, listeners, reserved, key], reads, task)


def _is_claimed(fields: TaskFields, dead_claimant: str | None) -> bool:
    if fields.reclaimed_node in (None, dead_claimant):
        return False
    # A started task without pid_start was started by the claimant.
    return fields.status == "reserved" or fields.pid_start is None


def lose(
    redis: Redis,
    attempt: AttemptRef,
    instance: str | None,
    loss: Loss,
    default: Retry | None,
    now: float,
    is_ours: bool = False,
) -> str | None:
    """Give up a started attempt whose process is gone without an exit record. Return its new status.

    pending: its policy allows another attempt. failed: the error type is `lost` or, after too many
        losses, `poison`. cancelled: that was requested. None: the attempt had ended, or another
        listener has it.
    instance: of the registration of the node, which says dead, or alive if `is_ours`; None: there
        is no registration.
    default: the policy of a task that has none.
    """
    queue, task, token, node = attempt
    state = "alive" if is_ours else "dead"

    def decide(
        registration: list[str | None], is_member: int, reply: list[str | None]
    ) -> Verdict[str | None]:
        fields = TaskFields._make(reply)
        is_theirs = (fields.status, fields.token, fields.node) == ("started", token, node)
        if not is_theirs or not _is_as_judged(registration, is_member, instance, state):
            return Answer(None)
        how = _end_of(fields, loss, default)
        return Change(ending(redis, attempt, fields, how, now), how.status)

    return transact(redis, "lose", _lose_look(queue, task, node), decide)


def _end_of(fields: TaskFields, loss: Loss, default: Retry | None) -> End:
    """Return how the attempt ends: on request, or by the policy of its task."""
    if fields.cancel is not None:
        return End.confirm_cancel(loss.facts)._replace(is_lost=True)
    policy, interruptions = Retry.of(fields.retry, default), count_of(fields.interruptions)
    kind: str | None = "lost" if policy is None else "poison"
    if policy is not None and policy.allows_interruption(interruptions):
        kind = None
    return End.lose(loss.error, kind, interruptions + 1, fields.files, loss.facts)


def _lose_look(queue: str, task: str, node: str) -> Look[list[str | None], int, list[str | None]]:
    registration, listeners = keys.listener(queue, node), keys.listeners(queue)
    reads: list[Command] = [
        ("HMGET", registration, "instance", "state"),
        ("SISMEMBER", listeners, node),
        read_task(task),
    ]
    return Look([registration, listeners, keys.task(task)], reads, task)


def adopt(
    redis: Redis, attempt: AttemptRef, node: str, instance: str, now: float
) -> dict[str, str] | None:
    """Take over a started attempt from a dead listener. Return the fields of the task.

    None: another listener was first.
    attempt: as seen, with the listener that is known to be dead.
    node, instance: of the listener that takes over.
    Raises NotRegistered.
    """
    queue, task, token, old = attempt

    def decide(registration: list[str | None], reply: list[str]) -> Verdict[dict[str, str] | None]:
        _require_registered(registration, queue, node, instance)
        fields = as_hash(reply)
        if (fields.get("status"), fields.get("token")) != ("started", token):
            return Answer(None)
        if fields.get("node") == node != old:
            return Answer(fields)
        if fields.get("node") != old:
            return Answer(None)
        past = TaskFields.of(fields)
        # The attempt keeps its lock and its place.
        was = TaskFields.of(fields)._replace(queue=queue, node=old, lock=None, counted=None)
        return Change(
            [
                *leave(task, was),
                *enter(task, was._replace(node=node)),
                ("HSET", keys.task(task), "node", node, "updated", now),
                *record_event(redis, queue, task, past, Event("adopted", node, now)),
            ],
            fields | {"node": node, "updated": str(now)} | after(past),
        )

    return transact(redis, "adopt", _registration_and_task(queue, node, task), decide)


def restore(
    redis: Redis,
    attempt: AttemptRef,
    instance: str,
    pid: int,
    identity: Mapping[str, str | int],
    started: float,
    now: float,
) -> dict[str, str] | None:
    """Take back a task that was declared lost although its process is alive. Return its fields.

    None: the attempt is no longer the newest, or the task has ended otherwise.
    Raises NotRegistered.
    """
    queue, task, token, node = attempt

    def decide(registration: list[str | None], reply: list[str]) -> Verdict[dict[str, str] | None]:
        _require_registered(registration, queue, node, instance)
        fields = as_hash(reply)
        if fields.get("token") != token:
            return Answer(None)
        if fields.get("status") == "started" and fields.get("node") == node:
            return Answer(fields)
        if fields.get("status") != "failed" or fields.get("error_type") not in LOST:
            return Answer(None)
        written: dict[str, str | int | float] = {"status": "started", "node": node, "pid": pid}
        written |= {**identity, "started": started, "updated": now}
        past, was = TaskFields.of(fields), TaskFields.of(fields)._replace(queue=queue)
        kept = _without_outcome(fields)
        return Change(
            [
                *leave(task, was),
                *enter(task, was._replace(status="started", node=node, pid=str(pid))),
                ("HDEL", keys.task(task), *OUTCOME),
                ("HSET", keys.task(task), *flat(written)),
                *record_event(redis, queue, task, past, Event("restored", node, now)),
                *count(redis, queue, "found", now),
            ],
            kept | {name: str(value) for name, value in written.items()} | after(past),
        )

    return transact(redis, "restore", _registration_and_task(queue, node, task), decide)


def reassert(
    redis: Redis,
    queue: str,
    task: str,
    node: str,
    instance: str,
    ours: Mapping[str, str],
    now: float,
    since: str | None = None,
) -> dict[str, str] | None:
    """Put back a running attempt that Redis has lost, as after a failover. Return the fields of the task.

    ours: the fields of the task as its listener knows them, including pid and token.
    since: the instance under which the listener began to watch the attempt.
    None: another attempt has begun, the task has ended, or it is another task with that id.
    Raises NotRegistered.
    """

    def decide(
        registration: list[str | None], reply: list[str], place: int | None
    ) -> Verdict[dict[str, str] | None]:
        _require_registered(registration, queue, node, instance)
        fields = as_hash(reply)
        if fields.get("status") == "started" and fields.get("token") == ours["token"]:
            return Answer(fields)
        if not _may_be_reasserted(task, fields, ours, since == instance):
            return Answer(None)
        written = {**ours, "status": "started", "node": node, "updated": str(now)}
        if "events" in fields:  # the number in Redis is right
            written.pop("events", None)
        past = TaskFields.of({**written, **fields})._replace(attempt=ours.get("attempt", "0"))
        commands: list[Command] = [
            # Redis may have gone back to a state in which it waited.
            *_waits_no_more(queue, task, fields or ours),
            *([("LPUSH", keys.reserved(queue, node), task)] if place is None else []),
            ("SADD", keys.started(queue), keys.started_member(node, written["pid"], task)),
            *_takes_room(queue, task, ours),
            ("HDEL", keys.task(task), *OUTCOME),
            ("HSET", keys.task(task), *flat(written)),
            ("ZADD", keys.tasks(queue), time_or(written.get("created"), now), task),
            *enter_tags({task: written.get("tags")}),
            ("ZINCRBY", keys.QUEUES, 0, queue),
            *record_event(redis, queue, task, past, Event("reasserted", node, now)),
        ]
        return Change(commands, {**_without_outcome(fields), **written, **after(past)})

    return transact(redis, "reassert", _reassert_look(queue, node, task), decide)


def _without_outcome(fields: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in fields.items() if name not in OUTCOME}


def _waits_no_more(queue: str, task: str, fields: Mapping[str, str]) -> list[Command]:
    """Return the commands that remove a task from where it would be if it waited."""
    line = line_of(fields.get("priority"), fields.get("needs"))
    return [
        ("LREM", keys.line(queue, line), 0, task),
        ("ZREM", keys.scheduled(queue), task),
        ("ZREM", keys.blocked(queue), task),
    ]


def _takes_room(queue: str, task: str, fields: Mapping[str, str]) -> list[Command]:
    """Return the commands that take lock and place of a running attempt again, even if in use."""
    commands: list[Command] = []
    if "lock" in fields:
        commands += [("SADD", keys.lock(fields["lock"]), task)]
    if "counted" in fields:
        commands += [("SADD", keys.counted(queue), task)]
    return commands


def _reassert_look(
    queue: str, node: str, task: str
) -> Look[list[str | None], list[str], int | None]:
    both, reserved = _registration_and_task(queue, node, task), keys.reserved(queue, node)
    return Look([*both.watch, reserved], [*both.reads, ("LPOS", reserved, task)], task)


def _may_be_reasserted(
    task: str, fields: Mapping[str, str], ours: Mapping[str, str], is_lasting: bool
) -> bool:
    """Return whether the task in Redis is gone, an earlier state of our task, or was made again.

    is_lasting: we have not been declared dead since we began to watch the attempt.
    """
    status = fields.get("status")
    if status is None:
        return True
    number = fields.get("attempt", "0")
    is_older = (
        number.isdecimal() and len(number) < DIGITS and int(number) < int(ours.get("attempt", "0"))
    )
    is_ours = status == "reserved" and fields.get("token") == ours["token"]
    if not is_ours and not (is_older and status in ("pending", "scheduled", "blocked")):
        return False
    # Its key or its schedule may have created it anew. If the attempt cannot have been declared lost,
    # the task was not deleted before, but lost with the attempt: unless a person deleted it.
    if fields.get("created") == ours.get("created"):
        return True
    try:
        return is_lasting and _plain(task, fields) == _plain(task, ours)
    except PayloadRefused:
        return False


def _plain(task: str, fields: Mapping[str, str]) -> tuple[str | None, str | None]:
    """Return the parameters as they were given, because each encryption of them differs."""
    return Task(task, fields).plain("parameters")


def _registration_and_task(queue: str, node: str, task: str) -> Look[list[str | None], list[str]]:
    """Is the listener registered, and what are the fields of the task?"""
    registration, key = keys.listener(queue, node), keys.task(task)
    reads = [("HMGET", registration, "instance", "state"), ("HGETALL", key)]
    return Look([registration, key], reads, task)


def _require_registered(
    registration: list[str | None], queue: str, node: str, instance: str
) -> None:
    if registration != [instance, "alive"]:
        raise NotRegistered(node, queue)


def _is_as_judged(
    registration: list[str | None], is_member: int, instance: str | None, state: str = "dead"
) -> bool:
    if instance is None:
        return registration == [None, None] and not is_member
    return registration == [instance, state]
