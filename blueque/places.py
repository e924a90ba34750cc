"""Where the id of a task has to be, and where it may not be, by what its hash says. Nothing here talks to Redis."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from blueque import keys
from blueque.lines import DEFAULT, line_of

FINISHED = ("complete", "failed", "cancelled")
HELD = ("reserved", "started")
STATUSES = ("scheduled", "pending", *HELD, *FINISHED)
LISTS = ("pending", "line", "reserved", *FINISHED)     # the places that are lists; of the others none holds a thing twice
TYPES = {"scheduled": "zset", "tasks": "zset", "started": "set", "wake": "zset", "orders": "zset"} | dict.fromkeys(
    LISTS, "list"
)
MARK = "0"                                             # the one member that a marker may have

_KEYS: dict[str, Callable[[str], str]] = {
    "pending": keys.pending, "scheduled": keys.scheduled, "started": keys.started, "complete": keys.complete,
    "failed": keys.failed, "cancelled": keys.cancelled, "tasks": keys.tasks, "wake": keys.wake,
}
_OF_A_LISTENER: dict[str, Callable[[str, str], str]] = {"reserved": keys.reserved, "orders": keys.orders}
_WORDS = {
    "pending": "the line", "scheduled": "the scheduled tasks", "started": "the started tasks",
    "complete": "the complete tasks", "failed": "the failed tasks", "cancelled": "the cancelled tasks",
    "tasks": "the index", "wake": "the wake-up marker", "reserved": "the list of listener {node}",
    "orders": "the marker of orders for listener {node}", "line": "line {line}",
}


class Place(NamedTuple):
    """A key that holds ids of tasks, or a marker.

    kind: pending, line, scheduled, reserved, started, complete, failed, cancelled, tasks (the index), wake or orders.
    node: of a listener's own. line: the name of a line besides `pending`.
    """

    kind: str
    queue: str
    node: str = ""
    line: str = ""

    @property
    def key(self) -> str:
        if self.kind == "line":
            return keys.line(self.queue, self.line)
        if self.kind in _OF_A_LISTENER:
            return _OF_A_LISTENER[self.kind](self.queue, self.node)
        return _KEYS[self.kind](self.queue)

    def __str__(self) -> str:
        return f"{_WORDS[self.kind].format(node=self.node, line=self.line)} of queue {self.queue}"


class Entry(NamedTuple):
    """What stands in a place: a task id, or among the started tasks `[node] [pid] [task]`."""

    place: Place
    text: str


def home(
    task: str, status: str, queue: str, node: str | None, pid: str | None, priority: str | None, needs: str | None
) -> list[Entry]:
    """Return every entry that a task of this status must have, but for the one in the index."""
    line = line_of(priority, needs)
    if status == "pending" and line != DEFAULT:
        return [Entry(Place("line", queue, line=line), task)]
    if status not in HELD:
        return [Entry(Place(status, queue), task)]
    held = Entry(Place("reserved", queue, node or ""), task)
    if status == "reserved":
        return [held]
    return [held, Entry(Place("started", queue), keys.started_member(node or "", pid or "", task))]


def may_hold(
    entry: Entry,
    task: str,
    status: str | None,
    queue: str | None,
    node: str | None,
    pid: str | None,
    priority: str | None,
    needs: str | None,
) -> bool:
    """Tell whether the entry agrees with the hash of the task.

    That of a pending task in the list of a listener does: it has been popped, and is about to be reserved.
    """
    place = entry.place
    if status is None or queue != place.queue:
        return False
    if place.kind == "tasks" or (place.kind == "reserved" and status == "pending"):
        return True
    return status in STATUSES and entry in home(task, status, queue, node, pid, priority, needs)
