"""Where the id of a task has to be, and where it may not be, by what its hash says. Nothing here
talks to Redis.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from blueque.model import keys
from blueque.model.lines import DEFAULT, line_of

WAITING = ("pending", "scheduled")
FINISHED = ("complete", "failed", "cancelled")
HELD = ("reserved", "started")
# What a failed task is called when nobody knows how its attempt ended: should the attempt turn up
# after all, it counts.
LOST = ("lost", "poison")
STATUSES = ("scheduled", "pending", *HELD, *FINISHED)
# The places that are lists; of the others none holds a thing twice.
LISTS = ("pending", "line", "reserved", "staged", *FINISHED)
ROOM = ("lock", "counted")  # what an attempt holds besides its task
TYPES = {
    "scheduled": "zset",
    "tasks": "zset",
    "started": "set",
    "wake": "zset",
    "orders": "zset",
    "waiting": "set",
    **dict.fromkeys(ROOM, "set"),
    **dict.fromkeys(LISTS, "list"),
}
MARK = "0"  # the one member that a marker may have

_KEYS: dict[str, Callable[[str], str]] = {
    "pending": keys.pending,
    "scheduled": keys.scheduled,
    "started": keys.started,
    "complete": keys.complete,
    "failed": keys.failed,
    "cancelled": keys.cancelled,
    "tasks": keys.tasks,
    "wake": keys.wake,
    "counted": keys.counted,
}
_OF_A_LISTENER: dict[str, Callable[[str, str], str]] = {
    "reserved": keys.reserved,
    "orders": keys.orders,
}
_OF_A_LOCK: dict[str, Callable[[str], str]] = {"lock": keys.lock, "waiting": keys.waiting}
_WORDS = {
    "pending": "the line",
    "scheduled": "the scheduled tasks",
    "started": "the started tasks",
    "complete": "the complete tasks",
    "failed": "the failed tasks",
    "cancelled": "the cancelled tasks",
    "tasks": "the index",
    "wake": "the wake-up marker",
    "reserved": "the list of listener {node}",
    "orders": "the marker of orders for listener {node}",
    "line": "line {line}",
    "counted": "the counted tasks",
}


class Place(NamedTuple):
    """A key that holds ids of tasks, or a marker.

    kind: pending, line, scheduled, reserved, started, complete, failed, cancelled, tasks (the
    index), wake, orders, counted, lock, waiting or staged.
    node: of a listener's own. line: the name of a line besides `pending`.
    lock, waiting and staged are of no queue; their `line` is the name of the lock, or of the chunk.
    """

    kind: str
    queue: str
    node: str = ""
    line: str = ""

    @property
    def key(self) -> str:
        if self.kind == "line":
            return keys.line(self.queue, self.line)
        if self.kind in _OF_A_LOCK:
            return _OF_A_LOCK[self.kind](self.line)
        if self.kind == "staged":
            return keys.staged(self.line)
        if self.kind in _OF_A_LISTENER:
            return _OF_A_LISTENER[self.kind](self.queue, self.node)
        return _KEYS[self.kind](self.queue)

    def __str__(self) -> str:
        if self.kind in _OF_A_LOCK:
            return f"the set of {'those who hold' if self.kind == 'lock' else 'lines that wait for'} lock {self.line}"
        if self.kind == "staged":
            return f"the staged chunk {self.line}"
        return f"{_WORDS[self.kind].format(node=self.node, line=self.line)} of queue {self.queue}"


class Entry(NamedTuple):
    """What stands in a place: a task id; among the started tasks `[node] [pid] [task]`, in a chunk
    `[task] [line] [eta]`.
    """

    place: Place
    text: str

    @property
    def is_staged(self) -> bool:
        """Tell whether the task waits out of sight for its run to be decided, or published."""
        return self.place.kind == "staged"


class Whereabouts(NamedTuple):
    """What of the hash of a task says where it has to be, by its fields of these names."""

    status: str | None = None
    queue: str | None = None
    node: str | None = None
    pid: str | None = None
    priority: str | None = None
    needs: str | None = None
    lock: str | None = None
    counted: str | None = None


WHEREABOUTS = Whereabouts._fields


def home(task: str, its: Whereabouts) -> list[Entry]:
    """Return every entry that a task with a status that there is must have, but for the one in the
    index.
    """
    status, queue, node = its.status or "", its.queue or "", its.node or ""
    line = line_of(its.priority, its.needs)
    if status == "pending" and line != DEFAULT:
        return [Entry(Place("line", queue, line=line), task)]
    if status not in HELD:
        return [Entry(Place(status, queue), task)]
    found = [Entry(Place("reserved", queue, node), task)]
    if status == "started":
        found += [Entry(Place("started", queue), keys.started_member(node, its.pid or "", task))]
    if its.lock is not None:
        found += [Entry(Place("lock", "", line=its.lock), task)]
    if its.counted is not None:
        found += [Entry(Place("counted", queue), task)]
    return found


def may_hold(entry: Entry, task: str, its: Whereabouts) -> bool:
    """Tell whether the entry agrees with the hash of the task.

    That of a pending task in the list of a listener does: it has been popped, and is about to be
    reserved.
    """
    place = entry.place
    if its.status is None or (its.queue != place.queue and place.kind != "lock"):
        return False
    if place.kind == "tasks" or (place.kind == "reserved" and its.status == "pending"):
        return True
    return its.status in STATUSES and entry in home(task, its)
