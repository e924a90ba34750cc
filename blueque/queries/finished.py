"""Finished tasks for retention: how many there are, and which are the oldest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from blueque.connection.redis import Redis
from blueque.model import keys
from blueque.model.states import Place
from blueque.protocol.pruning import FinishedTask, ended_at
from blueque.queries.steps import clock, in_step, of_each, read

if TYPE_CHECKING:
    from blueque.queries.steps import Reader


class Stock(NamedTuple):
    """The lengths and ends of lists of finished tasks.

    now: by the clock of Redis. lengths, oldest: by list; None: the list is empty.
    archiving: the queues that have an open archive batch.
    """

    now: float
    lengths: dict[Place, int]
    oldest: dict[Place, str | None]
    archiving: set[str]


def is_any(redis: Redis, places: Sequence[Place]) -> bool:
    """Return whether there is a task in any of these lists: one command."""
    return bool(redis.read(("EXISTS", *[place.key for place in places]))[0])


def stock(redis: Redis, places: Sequence[Place]) -> Stock:
    """Read the lengths of these lists and their ends: one round trip."""
    queues = dict.fromkeys(place.queue for place in places)
    now, archives, ends = read(
        redis,
        in_step(
            clock(),
            of_each({queue: _is_archiving(queue) for queue in queues}),
            of_each({place: _end(place) for place in places}),
        ),
    )
    return Stock(
        now,
        {place: length for place, (length, _) in ends.items()},
        {place: oldest for place, (_, oldest) in ends.items()},
        {queue for queue, is_open in archives.items() if is_open},
    )


def _is_archiving(queue: str) -> Reader[bool]:
    (exists,) = yield [("EXISTS", keys.archive(queue))]
    return bool(exists)


def _end(place: Place) -> Reader[tuple[int, str | None]]:
    length, oldest = yield [("LLEN", place.key), ("LINDEX", place.key, -1)]
    return length, oldest


def oldest(
    redis: Redis, places: Mapping[Place, int], count: int
) -> dict[Place, list[FinishedTask | None]]:
    """Return `count` tasks at the end of each list, oldest first: two round trips.

    places: how many tasks at the end of each list to skip. None stands for a task that has not
        ended in the status of the list.
    """
    reads = [
        ("LRANGE", place.key, -passed - count, -passed - 1) for place, passed in places.items()
    ]
    lists = [list(reversed(ids)) for ids in redis.read(*reads)]
    wanted = [(place, one) for place, ids in zip(places, lists, strict=True) for one in ids]
    found = iter(_seen(redis, wanted))
    return {place: [next(found) for _ in ids] for place, ids in zip(places, lists, strict=True)}


def from_tail(redis: Redis, place: Place, passed: int, count: int) -> list[str]:
    """Return `count` ids of a list, oldest first, after the first `passed`: one command."""
    (ids,) = redis.read(("LRANGE", place.key, -passed - count, -passed - 1))
    return list(reversed(ids))


_OF_ENDED = ("status", "queue", "finished", "updated", "dependents", "group")


def seen(redis: Redis, place: Place, tasks: Sequence[str]) -> list[FinishedTask | None]:
    """Return when each of these tasks of one list ended. None: it did not end in that status."""
    return _seen(redis, [(place, task) for task in tasks])


def _seen(redis: Redis, wanted: Sequence[tuple[Place, str]]) -> list[FinishedTask | None]:
    snapshots = redis.read(*[("HMGET", keys.task(task), *_OF_ENDED) for _, task in wanted])
    return [_ended(task, its, place) for (place, task), its in zip(wanted, snapshots, strict=True)]


def _ended(task: str, snapshot: Sequence[str | None], place: Place) -> FinishedTask | None:
    status, queue, finished, updated, dependents, group = snapshot
    at = ended_at(finished, updated) if (status, queue) == (place.kind, place.queue) else None
    return None if at is None else FinishedTask(task, at, dependents is not None, group)
