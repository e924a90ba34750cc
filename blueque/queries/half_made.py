"""Blocked tasks whose producer has not named all tasks for which they wait, and workflows whose
producer has not made all tasks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from blueque.connection.redis import Command, Redis
from blueque.model import keys
from blueque.model.columns import to_microseconds
from blueque.model.conditions import HOLD
from blueque.model.group import MAKING
from blueque.queries import groups
from blueque.queries.steps import to_seconds

AT_ONCE = 1000  # tasks in one round trip
FORGOTTEN = 86400.0  # seconds after which a producer is taken for dead


class HalfMade(NamedTuple):
    """A task that never runs unless its producer goes on.

    age: seconds since the producer has last changed it.
    """

    queue: str
    task: str
    age: float


class Unfinished(NamedTuple):
    """A workflow whose tasks do not run unless its producer goes on.

    updated: as its record has it. tasks: how many are there. age: seconds since the last of them
        came. is_cancelled: before all were there, and it has ended; age: since then.
    """

    group: str
    updated: str
    tasks: int
    age: float
    is_cancelled: bool = False


def workflows(redis: Redis, older_than: float) -> list[Unfinished]:
    """Return the workflows whose tasks are not all there, and that have not changed for so many
    seconds.
    """
    time, names = redis.read(("TIME",), ("ZRANGE", keys.GROUPS, 0, -1))
    asked: list[Command] = [("HMGET", keys.group(each), "state", "updated") for each in names]
    replies, now = redis.read(*asked), to_seconds(time)
    making = {
        name: updated or ""
        for name, (state, updated) in zip(names, replies, strict=True)
        if state == MAKING
    }
    found = [
        Unfinished(seen.name, updated, seen.members, now - (to_microseconds(updated) or 0) / 1e6)
        for seen in groups.load_named(redis, [*making])
        for updated in [making[seen.name]]
    ]
    return [each for each in found if each.age >= older_than]


def removable(redis: Redis, older_than: float) -> Iterator[Unfinished]:
    """Yield the workflows that were cancelled before all tasks were there, and for which no task
    waits, if they ended so many seconds ago, and their time to be kept is over.
    """
    (time,) = redis.read(("TIME",))
    for seen in groups.load_all(redis):
        age = to_seconds(time) - seen.record.get("ended", 0.0)
        is_over = seen.state == "ended" and age >= max(older_than, seen.record.get("keep", 0))
        if is_over and not seen.is_whole and not seen.waiting:
            yield Unfinished(seen.name, "", seen.members, age, is_cancelled=True)


def find(redis: Redis, queues: Iterable[str], older_than: float) -> list[HalfMade]:
    """Return the tasks of these queues that have the condition `hold`, and that have not changed for
    so many seconds. Those of an unfinished workflow are left to that.
    """
    (time,) = redis.read(("TIME",))
    now = to_seconds(time)
    making = {each.group for each in workflows(redis, 0.0)}
    found = [
        HalfMade(queue, task, now - (to_microseconds(updated) or 0) / 1e6)
        for queue in queues
        for task, updated, group in _held_back(redis, queue)
        if group not in making
    ]
    return [each for each in found if each.age >= older_than]


def _held_back(redis: Redis, queue: str) -> Iterator[tuple[str, str, str | None]]:
    """Yield the tasks of a queue with that condition, when each was changed, and its group."""
    cursor, seen = "0", set[str]()  # a cursor may return a member twice
    while True:
        ((cursor, flat),) = redis.read(("ZSCAN", keys.blocked(queue), cursor, "COUNT", AT_ONCE))
        tasks = flat[::2]
        asked: list[Command] = [("HEXISTS", keys.conditions(task), HOLD) for task in tasks]
        asked += [("HMGET", keys.task(task), "status", "updated", "group") for task in tasks]
        replies = redis.read(*asked)
        for task, is_held, state in zip(tasks, replies, replies[len(tasks) :], strict=False):
            if is_held and state[0] == "blocked" and task not in seen:
                seen.add(task)
                yield task, state[1] or "", state[2]
        if cursor == "0":
            return
