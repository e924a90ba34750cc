"""One attempt: pop, reserve, start, complete, fail; and how an idle listener waits and is woken: wait, wake."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from blueque import keys
from blueque.connection import Command, Connection, Look, Redis, as_hash, raise_refusal
from blueque.errors import NotOwner, NotRegistered
from blueque.protocol.looks import ownership, registration
from blueque.protocol.transaction import Answer, Change, transact

# The fields that tell how an attempt ended. What an earlier one left must not be taken for the end of this one.
OUTCOME = ("result", "result_encoding", "error", "error_type", "traceback", "exit_code", "signal")


def pop(redis: Redis, queue: str, node: str, instance: str) -> tuple[str | None, int]:
    """Move the next task id into the listener's own list; return (task id or None, number still in line).

    The id is only a hint: `reserve` it next.
    Raises NotRegistered; OutcomeUnknown when the answer was lost: look through the own list then.
    """

    def decide(known: list[str | None]) -> Answer | Change:
        if known != [instance, "alive"]:
            raise NotRegistered(node, queue)
        return Change(
            [
                ("RPOPLPUSH", keys.pending(queue), keys.reserved(queue, node)),
                ("LLEN", keys.pending(queue)),
            ],
            lambda replies: (replies[0], replies[1]),
        )

    popped: tuple[str | None, int] = transact(redis, "pop", registration(queue, node), decide, repeatable=False)
    return popped


def reserve(
    redis: Redis, queue: str, task: str, token: str, node: str, instance: str, now: float
) -> dict[str, str] | None:
    """Make a popped task ours and return its fields; None: it was not to be had, and its hint is dropped.

    token: random, one for each attempt. Whoever holds it owns the attempt.
    A task that a former life of this listener reserved or started is left as it is: None, and its hint stays.
    """
    reserved = keys.reserved(queue, node)

    def decide(known: list[str | None], reply: list[str], place: int | None) -> Answer | Change:
        if known != [instance, "alive"]:
            raise NotRegistered(node, queue)
        fields = as_hash(reply)
        status = fields.get("status")
        if status == "reserved" and fields.get("token") == token:
            return Answer(fields)
        if place is None:
            return Answer(None)
        if status in ("reserved", "started") and fields.get("node") == node:
            return Answer(None)
        # A hash without a queue is the stump of a deleted task, as 1.0.0 makes them.
        if status != "pending" or fields.get("queue") != queue:
            return Change([("LREM", reserved, 1, task)], None)
        before = fields.get("attempt", "")
        attempt = (int(before) if before.isdecimal() else 0) + 1
        news: dict[str, str | int | float] = {
            "status": "reserved", "node": node, "token": token, "attempt": attempt, "updated": now
        }
        commands: list[Command] = [
            ("HSET", keys.task(task), *[item for field in news.items() for item in field]),
            ("HDEL", keys.task(task), "pid"),
        ]
        if "attempt" not in fields:                    # made by 1.0.0, which keeps no such index
            commands += [("ZADD", keys.tasks(queue), fields.get("created", now), task)]
        fields.pop("pid", None)
        return Change(commands, fields | {name: str(value) for name, value in news.items()})

    look = Look(
        [keys.listener(queue, node), keys.task(task), reserved],
        [
            ("HMGET", keys.listener(queue, node), "instance", "state"),
            ("HGETALL", keys.task(task)),
            ("LPOS", reserved, task),
        ],
        task,
    )
    owned: dict[str, str] | None = transact(redis, "reserve", look, decide, ahead=ownership(task))
    return owned


def start(
    redis: Redis,
    queue: str,
    task: str,
    token: str | None,
    node: str,
    pid: int,
    now: float,
    identity: Mapping[str, str | int] | None = None,
) -> None:
    """Record that process `pid` runs the task. Nothing of the task may run before this has returned.

    identity: what tells this process from a later one with the same pid: pid_start, boot, ns.
    """

    def decide(snapshot: list[str | None]) -> Answer | Change:
        status, its_token, its_node, its_pid, _ = snapshot
        if (status, its_token, its_node, its_pid) == ("started", token, node, str(pid)):
            return Answer(None)
        _require_owner(task, snapshot, token, node, "reserved")
        extra = [item for field in (identity or {}).items() for item in field]
        return Change(
            [
                ("SADD", keys.started(queue), keys.started_member(node, pid, task)),
                ("HSET", keys.task(task), "status", "started", "pid", pid, *extra, "started", now, "updated", now),
            ]
        )

    transact(redis, "start", ownership(task), decide, ahead=ownership(task))


def complete(
    redis: Redis,
    queue: str,
    task: str,
    token: str | None,
    node: str,
    result: str,
    encoding: str | None,
    now: float,
    facts: Mapping[str, str | int | float] | None = None,
    finished: float | None = None,
) -> None:
    """Record the result of the attempt and let go of the task.

    finished: when it ended, if that was before `now`: Redis may have been away.
    """

    def decide(snapshot: list[str | None]) -> Answer | Change:
        status, _, _, pid, finished_by = snapshot
        if status == "complete" and finished_by == token:
            return Answer(None)
        _require_owner(task, snapshot, token, node, "started")
        outcome: list[str | int | float] = ["result", result]
        if encoding is not None:
            outcome += ["result_encoding", encoding]
        outcome += [item for fact in (facts or {}).items() for item in fact]
        return Change(
            [
                ("LREM", keys.reserved(queue, node), 1, task),
                ("SREM", keys.started(queue), keys.started_member(node, pid or "", task)),
                ("HDEL", keys.task(task), *OUTCOME),
                ("HSET", keys.task(task), "status", "complete", *outcome, *_finished(token, finished or now, now)),
                ("LPUSH", keys.complete(queue), task),
            ]
        )

    transact(redis, "complete", ownership(task), decide, ahead=registration(queue, node))


def fail(
    redis: Redis,
    queue: str,
    task: str,
    token: str | None,
    node: str,
    error: str,
    now: float,
    facts: Mapping[str, str | int | float] | None = None,
    finished: float | None = None,
) -> None:
    """Record the error of the attempt and let go of the task.

    facts: further fields about the end, see docs/protocol.md, "Task": error_type, traceback, exit_code, signal.
    finished: when it ended, if that was before `now`: Redis may have been away.
    """

    def decide(snapshot: list[str | None]) -> Answer | Change:
        status, _, _, pid, finished_by = snapshot
        if status == "failed" and finished_by == token:
            return Answer(None)
        _require_owner(task, snapshot, token, node, "started", "reserved")
        outcome = ["error", error, *[item for fact in (facts or {}).items() for item in fact]]
        running: list[Command] = []
        if status == "started":
            running = [("SREM", keys.started(queue), keys.started_member(node, pid or "", task))]
        return Change(
            [
                ("LREM", keys.reserved(queue, node), 1, task),
                *running,
                ("HDEL", keys.task(task), *OUTCOME),
                ("HSET", keys.task(task), "status", "failed", *outcome, *_finished(token, finished or now, now)),
                ("LPUSH", keys.failed(queue), task),
            ]
        )

    transact(redis, "fail", ownership(task), decide, ahead=registration(queue, node))


def wait(redis: Redis, queue: str, seconds: float, is_answered: Callable[[Connection], bool]) -> bool:
    """Wait for the queue's wake-up marker and take it. False: none came, or the wait was given up.

    is_answered: waits until the connection has an answer; False gives up, and closes the connection, for what the
    server sends now must not be read as the answer to something else. A marker may be lost with it: look for work then.
    """
    connection = redis.connection()
    try:
        connection.send([("BZPOPMIN", keys.wake(queue), max(seconds, 0.01))])  # 0 would be for ever
        if not is_answered(connection):
            connection.close()
            return False
        replies = connection.receive(1)
    except BaseException:
        connection.close()
        raise
    raise_refusal(replies)
    return replies[0] is not None


def wake(redis: Redis, queue: str) -> None:
    """Wake up one idle listener of the queue. There is one marker at most, so this is safe at any time."""
    redis.read(("ZADD", keys.wake(queue), 0, 0))       # it has the same effect twice, so it may be repeated like a look


def _require_owner(task: str, snapshot: list[str | None], token: str | None, node: str, *statuses: str) -> None:
    its_status, its_token, its_node, *_ = snapshot
    if its_status is None:
        raise NotOwner(task, None, "it does not exist")
    if its_status not in statuses:
        raise NotOwner(task, its_status, f"it is {its_status}, not {statuses[0]}")
    if its_token != token or its_node != node:
        raise NotOwner(task, its_status, f"it belongs to {its_node}")


def _finished(token: str | None, finished: float, now: float) -> list[str | float]:
    by: list[str | float] = [] if token is None else ["finished_by", token]
    return [*by, "finished", finished, "updated", now]
