"""Where the id of a task is: the commands by which it leaves its places, and enters others.

`model.states.home` defines where a task is. A transaction names the fields that it has read, and
the new ones; the places follow from them.
"""

from __future__ import annotations

from blueque.connection.redis import Command
from blueque.model import keys
from blueque.model.states import HELD, LISTS, TYPES, Entry, home
from blueque.protocol.fields import TaskFields, list_lines

# The lists that a task leaves with each of its entries: there may be two of them. The others are
# long. There it is looked for from the tail, where what is deleted is.
_SHORT = ("pending", "line", "reserved")


def leave(task: str, fields: TaskFields) -> list[Command]:
    """Return the commands that take a task out of each place where it is.

    An attempt gives back its lock and its running place in the queue, and wakes a listener that may
    wait for them.
    """
    commands = [_removal(entry) for entry in home(task, fields.whereabouts)]
    if fields.status in HELD and (fields.lock is not None or fields.counted is not None):
        commands += [("ZADD", keys.wake(fields.queue or ""), 0, 0)]
    return commands


def enter(
    task: str, fields: TaskFields, at: float | str = 0, is_first: bool = False
) -> list[Command]:
    """Return the commands that put a task in each place that its fields require.

    at: when a scheduled task is due, or a blocked one is rechecked. is_first: as the next of its
        line, if it is pending; otherwise it is the last.
    """
    commands = [addition(entry, at, is_first) for entry in home(task, fields.whereabouts)]
    if fields.status == "pending":
        queue = fields.queue or ""
        commands += [*list_lines(queue, fields.line), ("ZADD", keys.wake(queue), 0, 0)]
    return commands


def _removal(entry: Entry) -> Command:
    place, text = entry
    if place.kind in LISTS:
        return ("LREM", place.key, 0 if place.kind in _SHORT else -1, text)
    return ("ZREM" if TYPES[place.kind] == "zset" else "SREM", place.key, text)


def addition(entry: Entry, at: float | str, is_first: bool = False) -> Command:
    """Return the command that makes an entry. at: its score, if the place has scores."""
    place, text = entry
    if place.kind in LISTS:
        return ("RPUSH" if is_first else "LPUSH", place.key, text)
    if TYPES[place.kind] == "zset":
        return ("ZADD", place.key, at, text)
    return ("SADD", place.key, text)
