"""What the transactions of an attempt have in common: who owns it, and the fields that come and go
with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from blueque.connection.redis import Command
from blueque.errors import NotOwner
from blueque.model import keys
from blueque.model.attempt_ref import AttemptRef
from blueque.model.lines import DEFAULT, line_of, needs_of, priority_of
from blueque.model.states import LOST
from blueque.protocol.events import Past

Facts = Mapping[str, str | int | float] | None

# How an attempt ended. What an earlier one left must not be taken for the end of this one.
OUTCOME = (
    "result",
    "result_encoding",
    "error",
    "error_type",
    "traceback",
    "exit_code",
    "signal",
    "memory_peak",
    "cpu_seconds",
    "leaked",
    "lost_node",
    "last_seen",
    "finished",
)
# Who runs an attempt and since when. A task that is put in line again is nobody's.
IDENTITY = (
    "node",
    "token",
    "pid",
    "pid_start",
    "boot",
    "ns",
    "started",
    "reclaimed_node",
    "files",
    "progress",
    "progress_at",
    "lock",
    "counted",
    "devices",
    "stack",
)


class Owned(NamedTuple):
    """A task that is ours to change, as `looks.ownership` saw it."""

    status: str
    node: str
    pid: str
    is_to_be_cancelled: bool
    lock: str | None
    counted: str | None
    line: str
    past: Past


def owned(
    attempt: AttemptRef, snapshot: Sequence[str | None], *statuses: str, or_lost: bool = False
) -> Owned:
    """Return the task if it is in one of these states and the attempt with this token owns it.
    Raises NotOwner.

    or_lost: also if it was declared lost and nobody has had it run again.
    """
    (
        status,
        its_token,
        its_node,
        pid,
        _,
        error_type,
        cancel,
        lock,
        counted,
        priority,
        needs,
        *past,
    ) = snapshot
    _, task, token, node = attempt
    if status is None:
        raise NotOwner(task, None, "it does not exist")
    is_lost = or_lost and status == "failed" and error_type in LOST and token is not None
    if status not in statuses and not is_lost:
        raise NotOwner(task, status, f"it is {status}, not {statuses[0]}")
    if its_token != token or (its_node != node and not is_lost):
        raise NotOwner(task, status, f"it belongs to {its_node}")
    return Owned(
        status,
        its_node or "",
        pid or "",
        cancel is not None,
        lock,
        counted,
        line_of(priority, needs),
        past,
    )


def ending(token: str | None, finished: float | None, now: float) -> list[str | float]:
    """Return the fields that every end of an attempt writes; by `finished_by` it knows its own
    success.
    """
    by: list[str | float] = [] if token is None else ["finished_by", token]
    at: list[str | float] = [] if finished is None else ["finished", finished]
    return [*by, *at, "updated", now]


def stand(queue: str, line: str, task: str, is_first: bool = False) -> list[Command]:
    """Put a task in its line, and have everybody know of the line."""
    return [
        ("RPUSH" if is_first else "LPUSH", keys.line(queue, line), task),
        *make_known(queue, line),
    ]


def make_known(queue: str, *lines: str) -> list[Command]:
    """Have everybody know of lines that have work: nobody needs to be told of the default one."""
    commands: list[Command] = [
        ("ZADD", keys.lines(queue), priority_of(line), line) for line in lines if line != DEFAULT
    ]
    for line in lines:
        needs = needs_of(line)
        if needs is not None and needs.lock is not None:
            commands += [("SADD", keys.waiting(needs.lock), f"{line}_{queue}")]
    return commands


def let_go_of_room(queue: str, task: str, lock: str | None, counted: str | None) -> list[Command]:
    """Give back what an attempt held besides the task itself, and wake one who may have waited for
    it.
    """
    commands: list[Command] = []
    if lock is not None:
        commands += [("SREM", keys.lock(lock), task)]
    if counted is not None:
        commands += [("SREM", keys.counted(queue), task)]
    return [*commands, ("ZADD", keys.wake(queue), 0, 0)] if commands else []


def hold_room(queue: str, task: str, fields: Mapping[str, str]) -> list[Command]:
    """Take again what an attempt that runs holds, whoever may have taken it meanwhile."""
    commands: list[Command] = []
    if "lock" in fields:
        commands += [("SADD", keys.lock(fields["lock"]), task)]
    if "counted" in fields:
        commands += [("SADD", keys.counted(queue), task)]
    return commands


def record_cancelled(
    queue: str, task: str, token: str | None, now: float, facts: Facts
) -> list[Command]:
    return [
        ("HDEL", keys.task(task), *OUTCOME, "cancel"),
        ("HSET", keys.task(task), "status", "cancelled", *flat(facts), *ending(token, now, now)),
        ("LPUSH", keys.cancelled(queue), task),
    ]


def text_of(facts: Facts, name: str) -> str | None:
    value = (facts or {}).get(name)
    return None if value is None else str(value)


def flat(fields: Facts) -> list[str | int | float]:
    """Return names and values in turn."""
    return [item for field in (fields or {}).items() for item in field]
