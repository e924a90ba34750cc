"""Incomplete workflows: their producers have not made all tasks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from blueque.connection.redis import Command, Redis, time_of
from blueque.model import keys
from blueque.model.columns import to_microseconds
from blueque.model.group import MAKING
from blueque.queries import groups

FORGOTTEN = 86400.0  # seconds after which a producer is taken for dead


class Unfinished(NamedTuple):
    """A workflow whose tasks do not run unless its producer continues.

    updated: from its record. tasks: how many exist. age: seconds since the last one was added.
    is_cancelled: it was cancelled while incomplete, and has ended; age: since then.
    """

    group: str
    updated: str
    tasks: int
    age: float
    is_cancelled: bool = False


def workflows(redis: Redis, older_than: float) -> list[Unfinished]:
    """Return the incomplete workflows that have not changed for so many seconds."""
    time, names = redis.read(("TIME",), ("ZRANGE", keys.GROUPS, 0, -1))
    asked: list[Command] = [("HMGET", keys.group(each), "state", "updated") for each in names]
    replies, now = redis.read(*asked), time_of(time)
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
    """Yield cancelled incomplete workflows that may be removed.

    No task waits for them, they ended so many seconds ago, and their `keep` is over.
    """
    (time,) = redis.read(("TIME",))
    for seen in groups.load_all(redis):
        age = time_of(time) - seen.record.get("ended", 0.0)
        is_over = seen.state == "ended" and age >= max(older_than, seen.record.get("keep", 0))
        if is_over and not seen.is_whole and not seen.waiting:
            yield Unfinished(seen.name, "", seen.members, age, is_cancelled=True)
