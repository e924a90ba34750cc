"""Sees without polling when some queues have nothing left to do.

All of them are read in one MULTI, so that a task which changes its place meanwhile, or ends and
makes others, is always seen.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from blueque.connection.redis import Command, Redis, raise_refusal
from blueque.errors import WaitTimedOut
from blueque.model import keys
from blueque.model.task import Task
from blueque.queries.task_ends import Watcher, ends

COALESCE = 0.05  # seconds between two looks at queues that change all the time


class Left(NamedTuple):
    """How many tasks of a queue are left. due: for a past time. running: reserved or started."""

    pending: int = 0
    due: int = 0
    running: int = 0
    blocked: int = 0

    def __str__(self) -> str:
        counts = zip(self, self._fields, strict=True)
        return ", ".join(f"{number} {name}" for number, name in counts if number)


class QueueWatcher(Watcher):
    """Watches queues until none has anything left to do.

    `left` holds what is left, and `statuses` has it as text.
    """

    least_rest = COALESCE

    def __init__(self, redis: Redis, queues: Sequence[str]) -> None:
        super().__init__(redis, queues)
        self.left = dict.fromkeys(queues, Left())
        # The lines besides the default line, and the listeners, as they were at the last look.
        self._lines: dict[str, list[str]] = {queue: [] for queue in queues}
        self._nodes: dict[str, list[str]] = {queue: [] for queue in queues}

    def blocked(self) -> list[str]:
        """Return the queues in which only blocked tasks are left."""
        return [name for name, left in self.left.items() if left == Left(blocked=left.blocked or 1)]

    def timed_out(self, timeout: float) -> WaitTimedOut:
        (first, left), *others = self.statuses.items()
        which = f"queue {first!r} has" if not others else f"{len(self.statuses)} queues have"
        what = f": {left}" if not others and left else ""
        message = f"{which} tasks left after {timeout:g} s{what}"
        return WaitTimedOut(timeout, self.statuses, message)

    def _look(self) -> Iterator[Task]:
        self._tracked.changed()
        while not self._read():  # another line or listener has come
            pass
        self.statuses = {queue: str(left) for queue, left in self.left.items() if any(left)}
        self.has_looked = True
        yield from ()

    def _read(self) -> bool:
        """Read all queues. False: there are new lines or listeners, which were not read."""
        now = time.time()
        asked = {queue: self._ask(queue, now) for queue in self.left}
        commands = [command for some in asked.values() for command in some]
        replies = self._tracked.exchange(("MULTI",), *commands, ("EXEC",))
        raise_refusal(replies)
        raise_refusal(replies[-1])
        found, is_known = iter(replies[-1]), True
        for queue, some in asked.items():
            is_known = self._take(queue, [next(found) for _ in some]) and is_known
        return is_known

    def _ask(self, queue: str, now: float) -> list[Command]:
        return [
            ("ZRANGE", keys.lines(queue), 0, -1),
            ("SMEMBERS", keys.listeners(queue)),
            ("ZCOUNT", keys.scheduled(queue), "-inf", now),
            ("SCARD", keys.started(queue)),
            ("ZCARD", keys.blocked(queue)),
            ("LLEN", keys.pending(queue)),
            *[("LLEN", keys.line(queue, name)) for name in self._lines[queue]],
            *[("LLEN", keys.reserved(queue, node)) for node in self._nodes[queue]],
        ]

    def _take(self, queue: str, replies: Sequence[Any]) -> bool:
        lines, nodes, due, started, blocked, *lengths = replies
        count = 1 + len(self._lines[queue])
        held = sum(lengths[count:])  # what is started, too
        self.left[queue] = Left(sum(lengths[:count]), due, max(held, started), blocked)
        known = {*self._lines[queue]}, {*self._nodes[queue]}
        self._lines[queue], self._nodes[queue] = [*lines], [*nodes]
        return {*lines} <= known[0] and {*nodes} <= known[1]


def join(watcher: QueueWatcher, patience: float, timeout: float | None) -> None:
    """Wait until nothing is left to do. Arguments and errors are those of `ends`."""
    for _ in ends(watcher, patience, timeout):
        pass
