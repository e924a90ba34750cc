"""Holders: failed and cancelled tasks, and groups, that hold up other tasks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from blueque.model import keys
from blueque.model.conditions import OK
from blueque.model.group import group_of
from blueque.queries.steps import of_each

if TYPE_CHECKING:
    from blueque.queries.steps import Reader

# tasks that wait for failed and cancelled ones and are read, but LEAST_HELD of each
MAX_HELD = 2000
LEAST_HELD = 10


class Holder(NamedTuple):
    """A failed or cancelled task, and how many blocked tasks it holds up.

    held: without tasks that were, or will be, cancelled because of it. Dependents beyond those that
        are read count, too.
    broken_by: the task or group that caused its own cancellation.
    """

    task: str
    status: str
    held: int
    broken_by: str | None = None


def holders(found: Sequence[Holder]) -> Reader[dict[str, Holder]]:
    """Read how many tasks each of these holds up; return those that hold up any, by id. Two round trips."""
    most = max(MAX_HELD // max(len(found), 1), LEAST_HELD)
    every = yield from of_each({holder.task: _holder(holder, most) for holder in found})
    return {name: holder for name, holder in every.items() if holder is not None}


def _holder(holder: Holder, most: int) -> Reader[Holder | None]:
    group = group_of(holder.task)
    key = keys.dependents(holder.task) if group is None else keys.awaiting(group)
    # Those that were told that it has ended badly, and wait on, are at the end.
    count, tasks = yield [("ZCARD", key), ("ZRANGE", key, 0, most - 1, "REV")]
    held = yield from of_each({task: _is_held(task, holder) for task in tasks})
    number = sum(held.values())
    return holder._replace(held=count - len(tasks) + number) if number else None


def _is_held(task: str, holder: Holder) -> Reader[bool]:
    state, kind = yield [
        ("HMGET", keys.task(task), "status", "broken"),
        ("HGET", keys.conditions(task), holder.task),
    ]
    return (state, kind) == (["blocked", None], OK)
