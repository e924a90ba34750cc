"""Snapshots: the ids of tasks at one instant, in slices that any process can read."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from blueque.errors import InvalidInput, InvalidType
from blueque.model.encoding import require_number, require_queue_name
from blueque.model.states import STATUSES

SLICE = 50_000  # ids


class Slice(NamedTuple):
    """Some ids of one part of a snapshot, oldest first. It can be pickled.

    listed_as: the status by which they were found.
    key: the frozen copy that has them, from place `first` up to `last`, counted from the oldest;
        empty: they are in `ids`.
    is_scored: the copy is a sorted set.
    """

    queue: str
    listed_as: str
    key: str
    first: int
    last: int
    is_scored: bool = False
    ids: tuple[str, ...] = ()


class Snapshot(NamedTuple):
    """The ids of the tasks of some queues with some statuses, all at one instant. It can be pickled.

    name: random. taken: when, by the clock of the client. keep: how many seconds Redis holds it.
    parts: one slice for each list, set or sorted set.
    """

    name: str
    taken: float
    keep: int
    parts: tuple[Slice, ...]

    @property
    def rows(self) -> int:
        """How many ids the snapshot holds."""
        return sum(part.last - part.first for part in self.parts)

    def slices(self, size: int | None = None, count: int | None = None) -> list[Slice]:
        """Return its slices, in order: of at most `size` ids each (50,000), or about `count` slices."""
        if size is None:
            size = SLICE if count is None else max(1, math.ceil(self.rows / max(count, 1)))
        if size < 1:
            raise InvalidInput(f"a slice holds 1 id or more, not {size}")
        return [piece for part in self.parts for piece in _cut(part, size)]


def _cut(part: Slice, size: int) -> Iterator[Slice]:
    for first in range(part.first, part.last, size):
        last = min(first + size, part.last)
        if part.key:
            yield part._replace(first=first, last=last)
        else:
            yield part._replace(first=0, last=last - first, ids=part.ids[first:last])


def require_queues(queues: str | Iterable[str]) -> list[str]:
    """Return the names of queues, one or several, each once."""
    names = [queues] if isinstance(queues, str) else list(queues)
    if not names:
        raise InvalidInput("no queue is named")
    return list(dict.fromkeys(require_queue_name(name) for name in names))


def require_statuses(statuses: str | Iterable[str], allowed: Sequence[str] = STATUSES) -> list[str]:
    """Return statuses, one or several, each once."""
    names = [statuses] if isinstance(statuses, str) else list(statuses)
    for name in names:
        if not isinstance(name, str):
            raise InvalidType(f"a status is a str, not {type(name).__name__}")
        if name not in allowed:
            raise InvalidInput(f"there is no status {name!r} here; there are {', '.join(allowed)}")
    if not names:
        raise InvalidInput("no status is named")
    return list(dict.fromkeys(names))


def require_keep(keep: float) -> int:
    """Return whole seconds for which a snapshot is held."""
    return math.ceil(require_number(keep, "keep", 1, 30 * 86400.0))
