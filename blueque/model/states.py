"""The places where the id of a task must be, or must not be, according to its hash."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple

from blueque.model import keys
from blueque.model.lines import DEFAULT, line_of

WAITING = ("pending", "scheduled")
FINISHED = ("complete", "failed", "cancelled")
HELD = ("reserved", "started")
# The error types of a task whose attempt ended in an unknown way. If the attempt still reports its
# end, that counts.
LOST = ("lost", "poison")
STATUSES = ("blocked", "scheduled", "pending", *HELD, *FINISHED)
# The places that are lists. Only a list can hold an entry twice.
LISTS = ("pending", "line", "reserved", *FINISHED)
_LINES = ("pending", "line")
ROOM = ("lock", "counted")  # what an attempt may hold besides its task
TYPES = {
    "blocked": "zset",
    "scheduled": "zset",
    "tasks": "zset",
    "started": "set",
    "wake": "zset",
    "orders": "zset",
    "waiting": "set",
    "tags": "zset",
    "unsettled": "zset",
    **dict.fromkeys(ROOM, "set"),
    **dict.fromkeys(LISTS, "list"),
}
MARK = "0"  # the one member that a marker may have

_KEYS: dict[str, Callable[[str], str]] = {
    "pending": keys.pending,
    "blocked": keys.blocked,
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
_OF_ALL = {"tags": keys.TAGS, "unsettled": keys.UNSETTLED_TASKS}
_OF_A_LOCK: dict[str, Callable[[str], str]] = {"lock": keys.lock, "waiting": keys.waiting}
_WORDS = {
    "pending": "the line",
    "blocked": "the blocked tasks",
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

    kind: blocked, pending, line, scheduled, reserved, started, complete, failed, cancelled, tasks (the
    index), wake, orders, counted, lock, waiting, tags or unsettled.
    node: of the listener, for its own places. line: the name of a line, for `line`.
    lock, waiting, tags and unsettled belong to no queue; `line` is the name of the lock, or the tag.
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
        if self.kind in _OF_ALL:
            return _OF_ALL[self.kind]
        if self.kind in _OF_A_LISTENER:
            return _OF_A_LISTENER[self.kind](self.queue, self.node)
        return _KEYS[self.kind](self.queue)

    def __str__(self) -> str:
        if self.kind in _OF_A_LOCK:
            return f"the set of {'those who hold' if self.kind == 'lock' else 'lines that wait for'} lock {self.line}"
        if self.kind == "tags":
            return f"the index of the tag {self.line}"
        if self.kind == "unsettled":
            return "the unsettled tasks"
        return f"{_WORDS[self.kind].format(node=self.node, line=self.line)} of queue {self.queue}"


class Entry(NamedTuple):
    """An entry of a place. text: a task id; in `started` `[node] [pid] [task]`, in `tags` `[tag] [task]`."""

    place: Place
    text: str


class Whereabouts(NamedTuple):
    """The fields of a task that determine where its id must be."""

    status: str | None = None
    queue: str | None = None
    node: str | None = None
    pid: str | None = None
    priority: str | None = None
    needs: str | None = None
    lock: str | None = None
    counted: str | None = None
    tags: str | None = None
    attempt: str | None = None
    dependents: str | None = None

    @classmethod
    def of(cls, fields: object) -> Whereabouts:
        """Return these fields of a record that has them, and others, as attributes."""
        return cls._make(getattr(fields, name) for name in cls._fields)


WHEREABOUTS = Whereabouts._fields


def home(task: str, fields: Whereabouts) -> list[Entry]:
    """Return every entry that a task with a valid status must have, except that in the index."""
    status, queue, node = fields.status or "", fields.queue or "", fields.node or ""
    line = line_of(fields.priority, fields.needs)
    if status == "pending" and line != DEFAULT:
        return [Entry(Place("line", queue, line=line), task)]
    if status not in HELD:
        return [Entry(Place(status, queue), task)]
    entries = [Entry(Place("reserved", queue, node), task)]
    if status == "started":
        entries += [
            Entry(Place("started", queue), keys.started_member(node, fields.pid or "", task))
        ]
    if fields.lock is not None:
        entries += [Entry(Place("lock", "", line=fields.lock), task)]
    if fields.counted is not None:
        entries += [Entry(Place("counted", queue), task)]
    return entries


def tagged(task: str, fields: Whereabouts) -> list[Entry]:
    """Return every entry that the task must have in the index of tags."""
    tags = dict.fromkeys((fields.tags or "").split())
    return [Entry(Place("tags", "", line=tag), keys.tag_entry(tag, task)) for tag in tags]


def wanted(task: str, fields: Whereabouts) -> list[Entry]:
    """Return every entry that a task with a valid status must have."""
    index = [Entry(Place("tasks", fields.queue or ""), task)] if fields.attempt is not None else []
    return [*home(task, fields), *index, *tagged(task, fields)]


def may_hold(entry: Entry, task: str, fields: Whereabouts) -> bool:
    """Return whether the entry agrees with the hash of the task.

    A pending task may be in the list of a listener that has popped it and is about to reserve it.
    """
    place = entry.place
    if place.kind in ("wake", "orders"):
        return entry.text == MARK
    if place.kind == "tags":
        return entry in tagged(task, fields)
    if place.kind == "unsettled":
        return fields.status in FINISHED and fields.dependents is not None
    if fields.status is None or (fields.queue != place.queue and place.kind != "lock"):
        return False
    if place.kind == "tasks" or (place.kind == "reserved" and fields.status == "pending"):
        return True
    return fields.status in STATUSES and entry in home(task, fields)


def fault(
    entry: Entry, task: str, fields: Whereabouts, found: Mapping[Entry, int]
) -> Literal["misplaced", "double", "missing"] | None:
    """Return how an entry of a task disagrees with its hash; None: it agrees.

    found: how often each checked entry exists. A pending task in the list of a listener was popped:
        it belongs there, no longer in its line. If it is in both, it belongs in line.
    """
    count = found.get(entry, 0)
    is_allowed = may_hold(entry, task, fields)
    if is_allowed and fields.status == "pending" and entry.place.kind in (*_LINES, "reserved"):
        in_line = home(task, fields)[0]
        lists = [each for each, number in found.items() if number and each.place.kind == "reserved"]
        popped = [each for each in lists if each.place.queue == fields.queue][:1]
        belongs = popped if popped and not found.get(in_line) else [in_line]
        is_allowed = entry in belongs
    if not is_allowed:
        return "misplaced" if count else None
    if count > 1:
        return "double"
    return None if count else "missing"
