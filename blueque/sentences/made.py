"""Describe what was made, or would be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blueque.text.format import count
from blueque.text.terminal import short_id

if TYPE_CHECKING:
    from blueque.model.task import Task


def not_new(task: Task) -> str:
    """Return the state of the existing task with the key of a new one."""
    if task.status is None:
        return "Not new: the task with this key was deleted, and the key is still in use."
    is_over = task.status in ("failed", "cancelled")
    again = f"; to run it again: blueque requeue {short_id(task.id)}" if is_over else ""
    return f"Not new: the task with this key is {task.status}{again}"


def of_backfill(name: str, number: int, first: str, last: str, most: int = 0) -> str:
    """Return what a backfill would make. most: where counting stopped, because there are more."""
    some = f"more than {most:,}" if most else f"{number:,}"
    tasks = "task" if number == 1 else "tasks"
    return f"{some} {tasks} would be made for {name}, from {first} to {last}"


def backfilled(made: int, planned: int) -> str:
    """Return what a backfill has made."""
    there = f", {planned - made} existed already" if made < planned else ""
    return f"{count(made, 'task')} made{there}"
