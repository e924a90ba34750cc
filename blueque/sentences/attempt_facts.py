"""The orders for the attempts of a task, how attempts end, and the conditions of the next one, as
labelled text.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from blueque.errors import TooLarge
from blueque.model.group import group_of
from blueque.model.states import LOST
from blueque.text.format import count, size, span, stamp
from blueque.text.terminal import short_id

if TYPE_CHECKING:
    from blueque.model.retry import Retry
    from blueque.model.task import Task

_LIMITS = {
    "time_limit": "time",
    "stall_limit": "stall",
    "memory_limit": "memory",
    "grace": "grace",
    "lead": "lead",
}
_KEPT = "If the earlier attempt still runs, its result no longer counts and stays there."
_PRINTED = "The output of the previous attempt."


def of_orders(task: Task, now: float, is_utc: bool) -> dict[str, str | None]:
    """Return who has cancelled or interrupted it, and with which listener it was lost."""
    return {
        "cancel": _cancel(task, now),
        "interrupted": _interrupted(task, now),
        "lost": _lost(task, now, is_utc),
    }


def of_attempts(task: Task) -> dict[str, str | None]:
    """Return when it is tried again, its limits, what it has used, and where its files are."""
    return {
        "retry": _retry(task),
        "last_error": _last_error(task),
        "limits": _limits(task),
        "used": _used(task),
        "files": task.files,
        **_earlier(task),
    }


def next_step(task: Task, cause: Task | None) -> str:
    """Return how to run it again. cause: the task or group that caused its cancellation."""
    if cause is None or cause.status in (None, "complete"):
        again = f"blueque requeue {short_id(task.id)}"
        if task.error_type == "result" and TooLarge.is_message(task.error or ""):
            return f"Return the path of a file instead, or raise max_bytes. Then: {again}"
        return f"To run it again: {again}"
    if cause.status not in ("failed", "cancelled"):
        return f"If you run it again, it waits for that task: blueque requeue {short_id(task.id)}"
    if cause.id == task.broken_by and group_of(cause.id) is None:
        return f"To run both again: blueque requeue {short_id(cause.id)} {short_id(task.id)}"
    return f"How to run it again: blueque why {short_id(task.id)}"


def _cancel(task: Task, now: float) -> str | None:
    if not {"cancel", "cancelled_by", "cancel_reason"} & set(task.fields):
        return None
    asked = "" if task.cancel is None else f"asked for {span(now - task.cancel)} ago, "
    reason = f": {task.cancel_reason}" if task.cancel_reason else ""
    too_late = " (it ended by itself first)" if task.status in ("complete", "failed") else ""
    return f"{asked}by {task.cancelled_by or 'unknown'}{too_late}{reason}"


def _interrupted(task: Task, now: float) -> str | None:
    if task.interrupted_at is None:
        return None
    since = span(now - task.interrupted_at)
    asked = f"asked for {since} ago" if task.is_interrupted else f"{since} ago"
    reason = f": {task.interrupt_reason}" if task.interrupt_reason else ""
    return f"{asked}, by {task.interrupted_by or 'unknown'}{reason}"


def _lost(task: Task, now: float, is_utc: bool) -> str | None:
    if task.lost_node is None:
        return None
    if task.last_seen is None:
        return f"with {task.lost_node}"
    seen = f"{stamp(task.last_seen, is_utc)}  ({span(now - task.last_seen)} ago)"
    return f"with {task.lost_node}\nlast seen {seen}"


def _retry(task: Task) -> str | None:
    text, policy = task.fields.get("retry"), task.retry
    if policy is not None:
        used = f"{task.failures or 0} of {policy.max} failures, {task.interruptions or 0} of {policy.interruptions}"
        return f"{used} interruptions so far\n{_waits(policy)}{_only(policy)}"
    if text is not None:
        return (
            "never, even if its handler, queue or listener has a policy"
            if text == "null"
            else f"{text}  (malformed: never)"
        )
    if task.failures and task.status == "failed":
        retried = f"{task.failures} of them {'was' if task.failures == 1 else 'were'} retried"
        whose = "by the retry policy of its handler, queue or listener"
        return f"{task.failures + 1} attempts failed, and {retried}, {whose}"
    if task.failures or task.interruptions:
        used = f"{count(task.failures or 0, 'failure')}, {count(task.interruptions or 0, 'interruption')}"
        return f"{used} so far; the retry policy of its handler, queue or listener applies"
    return None


def _waits(policy: Retry) -> str:
    longer = "" if policy.factor == 1 else f", each time {policy.factor:g} times as long"
    return f"waits {span(policy.backoff)}{longer}" if policy.backoff else "without a pause"


def _only(policy: Retry) -> str:
    causes = [*policy.on, *(f"exit code {code}" for code in policy.exit_codes)]
    only = f"; only after {', '.join(causes)}" if causes else ""
    return f"{only}; never after {', '.join(policy.not_on)}" if policy.not_on else only


def _last_error(task: Task) -> str | None:
    """Return why the attempt before it ended."""
    error, kind = task.last_error, task.last_error_type
    if error is None or kind is None:
        return error or kind
    return error if error.startswith((kind, kind.rpartition(".")[2])) else f"{kind}: {error}"


def _limits(task: Task) -> str | None:
    return (
        ", ".join(
            f"{word} {_amount(task, name)}" for name, word in _LIMITS.items() if name in task.fields
        )
        or None
    )


def number_of(task: Task, name: str) -> int | float | str:
    """Return a number, or the text if it is malformed, from another program."""
    number: int | float | None = getattr(task, name)
    return number if number is not None and math.isfinite(number) else task.fields[name]


def _amount(task: Task, name: str) -> str:
    number = number_of(task, name)
    if isinstance(number, str):
        return number
    return size(number) if name == "memory_limit" else span(number)


def _used(task: Task) -> str | None:
    used: Iterator[str | None] = iter(
        (
            None if task.memory_peak is None else f"memory {size(task.memory_peak)} at most",
            None if task.cpu_seconds is None else f"CPU {span(task.cpu_seconds)}",
            None if task.leaked is None else f"left-over processes that were ended: {task.leaked}",
        )
    )
    return ", ".join(part for part in used if part) or None


def _earlier(task: Task) -> dict[str, str]:
    """Return where the files of an earlier attempt are that may still report."""
    told = {} if task.requeued is None else {"requeued": "A person put it in line again."}
    if task.last_files is not None:
        may_report = task.requeued is not None or task.last_error_type in LOST
        told["last_files"] = f"{task.last_files}\n{_KEPT if may_report else _PRINTED}"
    return told
