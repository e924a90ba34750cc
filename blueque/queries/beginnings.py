"""The beginnings of many lists of tasks. Only those are read further that may have more of an answer,
so a list of a thousand queues does not cost a thousand times as much as one of a single queue.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from blueque.model import keys

if TYPE_CHECKING:
    from blueque.connection.redis import Command, Redis
    from blueque.model.task import Task

SETS = {"scheduled": keys.scheduled, "blocked": keys.blocked}
LISTS = {"failed": keys.failed, "cancelled": keys.cancelled, "complete": keys.complete}
FEW = 10_000  # ids: what is asked for is read at once if that is no more, all lists together
LEAST = 1  # ids of each list that are read first else
DEEPER = 8  # times as many are read next
MOST = 20_000  # ids of all lists together, after which no more are read


class Beginning(NamedTuple):
    """The first ids of a list, and how long it is. line: of pending tasks, else None."""

    status: str
    queue: str
    line: str | None = None
    ids: Sequence[str] = ()
    length: int = 0

    def ask(self, depth: int) -> list[Command]:
        """Return the commands that read its first ids and its length."""
        if self.line is not None:
            key = keys.line(self.queue, self.line)
            return [("LRANGE", key, -depth, -1), ("LLEN", key)]
        if self.status in SETS:
            key = SETS[self.status](self.queue)
            return [("ZRANGE", key, 0, depth - 1), ("ZCARD", key)]
        key = LISTS[self.status](self.queue)
        return [("LRANGE", key, 0, depth - 1), ("LLEN", key)]

    def may_have_more(self, tasks: Mapping[str, Task], best: Collection[str], limit: int) -> bool:
        """Tell whether a task behind those that were read may be one of the best."""
        if not len(self.ids) < self.length or len(self.ids) > limit:
            return False
        last = next((task for task in self.ids[::-1] if tasks[task].status == self.status), None)
        return last is None or last in best


def of_queues(queues: Iterable[str], statuses: Collection[str]) -> list[Beginning]:
    """Return the lists of these statuses, not yet read. Those of pending tasks are not among them."""
    wanted = [status for status in (*SETS, *LISTS) if status in statuses]
    return [Beginning(status, queue) for queue in queues for status in wanted]


def depth_of(count: int, limit: int) -> int:
    """Return how many ids to read first of each of so many lists."""
    whole = limit + 1
    return whole if count * whole <= FEW else max(min(2 * limit // count, whole), LEAST)


def ask(beginnings: Iterable[Beginning], depth: int) -> list[Command]:
    """Return the commands that read them; `take` takes the replies."""
    return [command for one in beginnings for command in one.ask(depth)]


def take(beginnings: Sequence[Beginning], replies: Sequence[Any]) -> list[Beginning]:
    """Return them with what Redis has answered."""
    return [
        one._replace(ids=ids if one.line is None else ids[::-1], length=length)
        for one, ids, length in zip(beginnings, replies[::2], replies[1::2], strict=True)
    ]


def deepened(
    redis: Redis, beginnings: Sequence[Beginning], places: Sequence[int], limit: int
) -> list[Beginning]:
    """Return them with more ids of those at these places: one round trip."""
    some = [beginnings[place] for place in places]
    deeper = [min(DEEPER * max(len(one.ids), 1), limit + 1) for one in some]
    asked = [one.ask(depth) for one, depth in zip(some, deeper, strict=True)]
    read = take(some, redis.read(*chain.from_iterable(asked)))
    found = [*beginnings]
    for place, one in zip(places, read, strict=True):
        found[place] = one
    return found
