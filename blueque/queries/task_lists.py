"""The lists of a queue in which tasks stand, and the tasks that its listeners have."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from blueque.model import keys
from blueque.model.lines import DEFAULT
from blueque.queries.listeners import held, members
from blueque.queries.queues import lines
from blueque.queries.steps import in_step, of_each

if TYPE_CHECKING:
    from blueque.connection.redis import Command
    from blueque.queries.steps import Reader

T = TypeVar("T")

_SETS = {"scheduled": keys.scheduled, "blocked": keys.blocked}
_LISTS = {"failed": keys.failed, "cancelled": keys.cancelled, "complete": keys.complete}
_UNFINISHED = ("started", "reserved", "pending")
MAX_LINES = 100  # lines of a queue that are read, besides the default line
IDS_AT_ONCE = 10_000  # in one command


class TaskList(NamedTuple):
    """A list of the ids of tasks. line: of pending tasks; None: it is not a line.

    from_tail: its last entry is its first task.
    """

    queue: str
    status: str
    line: str | None = None
    from_tail: bool = False

    @property
    def _key(self) -> str:
        if self.line is not None:
            return keys.line(self.queue, self.line)
        return (_SETS | _LISTS)[self.status](self.queue)

    def length(self) -> Reader[int]:
        """Read how long it is: one round trip."""
        (found,) = yield [("ZCARD" if self.status in _SETS else "LLEN", self._key)]
        return int(found)

    def first(self, count: int) -> Reader[list[str]]:
        """Read its first ids: one round trip."""
        pages = yield [*self._pages(count)]
        return [task for page in pages for task in (page[::-1] if self.from_tail else page)]

    def beginning(self, count: int) -> Reader[tuple[list[str], int]]:
        """Read its first ids, and how long it is: one round trip."""
        return in_step(self.first(count), self.length())

    def _pages(self, count: int) -> Iterator[Command]:
        command = "ZRANGE" if self.status in _SETS else "LRANGE"
        for first in range(0, count, IDS_AT_ONCE):
            last = min(first + IDS_AT_ONCE, count) - 1
            yield (
                command,
                self._key,
                *((-last - 1, -first - 1) if self.from_tail else (first, last)),
            )


class Unfinished(NamedTuple, Generic[T]):
    """The unfinished tasks of a queue that are neither scheduled nor blocked.

    held: ids of tasks that its listeners have.
    started: ids of tasks that count as started; most of them are held, too.
    lines: the result for each line with pending tasks.
    """

    held: Sequence[str] = ()
    started: Sequence[str] = ()
    lines: Mapping[TaskList, T] = {}


def lists_of(queue: str, statuses: Collection[str], from_tail: bool = False) -> list[TaskList]:
    """Return the lists of these statuses, except lines of pending tasks.

    from_tail: read finished tasks in the order in which they ended.
    """
    wanted = [status for status in (*_SETS, *_LISTS) if status in statuses]
    return [TaskList(queue, status, from_tail=from_tail and status in _LISTS) for status in wanted]


def unfinished(
    queue: str, statuses: Collection[str], of_line: Callable[[TaskList, int], Reader[T]]
) -> Reader[Unfinished[T]]:
    """Read the tasks of a queue with these statuses: two round trips, or none.

    of_line: reads one of so many lines in one round trip.
    """
    if not any(status in statuses for status in _UNFINISHED):
        return Unfinished()
    found, names = yield from in_step(members(queue), lines(queue, MAX_LINES))
    named = [DEFAULT, *names] if "pending" in statuses else []
    lists = [TaskList(queue, "pending", name, from_tail=True) for name in named]
    # A pending task may be in a listener's own list: the listener died between pop and reserve.
    ids, of_lines = yield from in_step(
        held(queue, found), of_each({one: of_line(one, len(lists)) for one in lists})
    )
    return Unfinished(ids, found.started_tasks, of_lines)
