"""Holders: failed and cancelled tasks, and groups, that hold up the tasks that wait for them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from blueque.connection.redis import Command
from blueque.model import keys
from blueque.model.conditions import OK
from blueque.model.group import group_of


class Holder(NamedTuple):
    """A failed or cancelled task, and how many blocked tasks it holds up.

    held: without those that were, or are to be, cancelled because of it. If more wait for it than
        are read, the others count, too.
    broken_by: the task or group that caused its own cancellation.
    """

    task: str
    status: str
    held: int
    broken_by: str | None = None


def ask_waiting(holders: Iterable[Holder], most: int) -> list[Command]:
    """Return the commands that count and read the tasks that wait on after the end of others."""
    commands: list[Command] = []
    for holder in holders:
        group = group_of(holder.task)
        key = keys.dependents(holder.task) if group is None else keys.awaiting(group)
        # Those that were told that it has ended badly, and wait on, are at the end.
        commands += [("ZCARD", key), ("ZRANGE", key, 0, most - 1, "REV")]
    return commands


def ask_held(waiting: Sequence[tuple[Holder, Sequence[str]]]) -> list[Command]:
    """Return the commands whose replies say which of these tasks wait on."""
    return [
        command
        for holder, tasks in waiting
        for task in tasks
        for command in (
            ("HMGET", keys.task(task), "status", "broken"),
            ("HGET", keys.conditions(task), holder.task),
        )
    ]


def take_holders(
    waiting: Sequence[tuple[Holder, Sequence[str]]], replies: Iterator[Any]
) -> dict[str, Holder]:
    """Return the tasks that hold others, by id. replies: to `ask_held`."""
    found = {}
    for holder, tasks in waiting:
        held = sum((next(replies), next(replies)) == (["blocked", None], OK) for _ in tasks)
        if held:
            found[holder.task] = holder._replace(held=holder.held - len(tasks) + held)
    return found
