"""NewTask: a task that is not in Redis yet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from blueque.model.lines import line_of

Fields = Mapping[str, str | int | float]  # further fields of a new task


class NewTask(NamedTuple):
    """A task that is not in Redis yet. Exit records have its parts in this order.

    parameters: their text. options: the further fields of the task.
    conditions: on each task and group that it waits for, by its id or name; see conditions.py.
    eta: the earliest time at which it joins the line.
    """

    task: str
    queue: str
    parameters: str
    options: Fields
    conditions: Mapping[str, str]
    eta: float | None = None

    @property
    def is_drawn(self) -> bool:
        """Return whether its id is random: neither a key nor the caller has chosen it."""
        return "enqueued_by" not in self.options

    @property
    def mark(self) -> str:
        """The random mark of the call that creates a task with a key or an id of its own."""
        return str(self.options.get("enqueued_by"))

    @property
    def group(self) -> str | None:
        """The name of the group that it joins."""
        group = self.options.get("group")
        return None if group is None else str(group)

    @property
    def line(self) -> str:
        """The line of its queue in which it waits."""
        given = self.options
        return line_of(str(given.get("priority", "")), str(given.get("needs", "")))
