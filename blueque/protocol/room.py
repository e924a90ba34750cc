"""Room in bounded queues, for the transactions that put new tasks in line. See docs/protocol/placement.md, "Room".

The look of such a transaction says, too, which queues are bounded. That costs no round trip. Of a
bounded queue the lines are watched and counted before each try, and what does not fit is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from blueque.connection.redis import AnyLook, Connection, Redis, exchange, raise_refusal
from blueque.errors import QueueFull, RedisRefused
from blueque.model import keys
from blueque.model.queue_settings import OLDEST
from blueque.protocol.transaction import Change, LookAgain, Verdict, transact

Result = TypeVar("Result")


class Room:
    """How many more tasks a queue takes.

    is_watched: it was read, and what it depends on is watched until the next EXEC.
    most: its `max_pending`; None: any number.
    """

    def __init__(self, queue: str) -> None:
        self.queue, self.is_watched = queue, False
        self.most: int | None = None
        self._pending, self._discards = 0, False

    def refuses(self, tasks: int) -> QueueFull | None:
        """Return why so many more tasks do not fit; None: they fit."""
        if self.most is None or self._pending + tasks <= self.most:
            return None
        return QueueFull(self.queue, self.most, self._pending, tasks, self._discards)

    def watch(self, connection: Connection) -> None:
        """Read the room, and watch what it depends on until the next EXEC."""
        self.is_watched = False
        try:
            self._watch(connection)
        except RedisRefused:
            exchange(connection, [("UNWATCH",)])
            raise
        self.is_watched = True

    def _watch(self, connection: Connection) -> None:
        settings, lines = keys.settings(self.queue), keys.lines(self.queue)
        replies = exchange(
            connection,
            [
                ("WATCH", settings, lines, keys.pending(self.queue)),
                ("HMGET", settings, "max_pending", "discard"),
                ("LLEN", keys.pending(self.queue)),
                ("ZRANGE", lines, 0, -1),
            ],
        )
        raise_refusal(replies)
        _, (most, discard), self._pending, names = replies
        self.most = int(most[:20]) if most is not None and most.isdecimal() else None
        self._discards = discard == OLDEST
        if self.most is None or not names:
            return
        others = [keys.line(self.queue, name) for name in names]
        replies = exchange(connection, [("WATCH", *others), *[("LLEN", key) for key in others]])
        raise_refusal(replies)
        self._pending += sum(replies[1:])


def transact_in_line(
    redis: Redis, name: str, look: AnyLook, decide: Callable[..., Verdict[Result]], **how: Any
) -> Result:
    """Run a transaction that puts new tasks in line; see `transact` for its result and errors.

    look: of `with_bounds`, as are those of `spare` and `again`.
    decide: gets the replies to all other reads; `joins` of its Change says how many tasks join.
    Raises QueueFull when they do not fit into a bounded queue.
    """
    rooms: dict[str, Room] = {}

    def decide_in_line(*replies: Any) -> Verdict[Result]:
        verdict, bounded = decide(*replies[:-1]), replies[-1]
        if bounded and isinstance(verdict, Change):
            joins = {queue: tasks for queue, tasks in verdict.joins.items() if queue in bounded}
            _require_all([(_room_of(rooms, queue), tasks) for queue, tasks in joins.items()])
        return verdict

    def watch(connection: Connection) -> None:
        for room in rooms.values():
            room.watch(connection)

    return transact(redis, name, look, decide_in_line, before=watch, **how)


def _require_all(wanted: Sequence[tuple[Room, int]]) -> None:
    """Raise QueueFull unless all of it fits: of the queue for which nothing can be discarded, if
    there is one. Then nothing is discarded in the others in vain.
    """
    full = [refusal for room, tasks in wanted if (refusal := room.refuses(tasks)) is not None]
    if full:
        raise min(full, key=lambda refusal: refusal.excess is not None)


def _room_of(rooms: dict[str, Room], queue: str) -> Room:
    """Return the room of a queue. Raises LookAgain if it is not watched yet."""
    room = rooms.setdefault(queue, Room(queue))
    if not room.is_watched:
        raise LookAgain
    return room
