"""The looks that several transactions share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from blueque.connection.redis import Command, Look
from blueque.model import keys
from blueque.protocol.fields import TaskFields
from blueque.protocol.packing import pack_with


class Reads:
    """The reads of a look in parts, so that none has to count those before it.

    reads = Reads()
    statuses = reads.add(("HGET", keys.task(task), "status") for task in tasks)
    ... replies[statuses]
    """

    def __init__(self) -> None:
        self.commands: list[Command] = []

    def add(self, commands: Iterable[Command]) -> slice:
        """Add a part, and return where its replies are."""
        first = len(self.commands)
        self.commands += commands
        return slice(first, len(self.commands))


def absence(task: str, is_drawn: bool = False) -> Look[*tuple[int, ...]]:
    """For enqueue and schedule: is the id new?

    is_drawn: it is random. Then no task has it, and the watch alone refuses a late write; only a
        further try of the call must ask.
    """
    key = keys.task(task)
    return Look((key,), () if is_drawn else (("EXISTS", key),), task)


def absence_of_all(tasks: Sequence[bytes]) -> Look[int, int]:
    """For many tasks with keys: how many of them exist, and how many keys of deleted ones are still
    in use? In most batches none or all do, and nothing more has to be asked.
    """
    return Look(
        [keys.task(task.decode()) for task in tasks],
        (exist_all(tasks), pack_with(("EXISTS",), tasks, keys.key_kept("").encode())),
        tasks[0].decode(),
    )


def exist_all(tasks: Sequence[bytes]) -> bytes:
    """Return the EXISTS of many tasks, with ids of one length."""
    return pack_with(("EXISTS",), tasks, keys.task("").encode())


class Known(NamedTuple):
    """What Redis knows of a task that is to be made. made_by: the mark of the call that has made it.
    kept: that mark, if the task was deleted and its key is still in use.
    """

    exists: int
    made_by: str | None = None
    kept: str | None = None

    @property
    def is_new(self) -> bool:
        return not self.exists and self.kept is None

    def is_of(self, mark: str) -> bool:
        """Return whether the call with this mark has made it."""
        return mark in (self.made_by, self.kept)


class LookAtEach:
    """What to watch and to read in order to know each of some tasks that are to be made.

    are_keyed: they have keys, so that any of them may be there. More may be added to `reads`.
    """

    def __init__(self, tasks: Sequence[str], are_keyed: bool) -> None:
        self.watch, self.reads = [keys.task(task) for task in tasks], Reads()
        self._exist = self.reads.add(("EXISTS", key) for key in self.watch)
        keyed = tasks if are_keyed else ()
        self._made_by = self.reads.add(("HGET", keys.task(task), "enqueued_by") for task in keyed)
        kept: Command = ("MGET", *map(keys.key_kept, keyed))
        self._kept = self.reads.add([kept] if keyed else [])

    def known(self, replies: Sequence[Any]) -> list[Known]:
        """Return what is known of each task."""
        exist, kept = replies[self._exist], replies[self._kept]
        if not kept:
            return [*map(Known, exist)]
        return [*map(Known, exist, replies[self._made_by], kept[0])]


def fields_of(task: str) -> Look[list[str | None]]:
    """For a transaction about one task: how does it stand? See TaskFields."""
    return Look((keys.task(task),), (read_task(task),), task)


def read_task(task: str) -> Command:
    """Return the read of the fields that TaskFields has."""
    return ("HMGET", keys.task(task), *TaskFields._fields)
