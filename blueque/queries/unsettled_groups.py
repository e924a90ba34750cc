"""Work that is due for groups of tasks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from blueque.connection.redis import Command, Redis
from blueque.model import keys


class Unsettled(NamedTuple):
    """Work that is due for groups.

    members: ids of members that have ended, or run again, which their groups have not recorded.
    groups: the names of groups whose time has come, each with its score.
    """

    members: list[str]
    groups: list[tuple[str, float]]


class Cancellation(NamedTuple):
    """Who has cancelled a group, and why; all None: it was not cancelled."""

    at: str | None
    by: str | None
    reason: str | None


def unsettled(redis: Redis, now: float, members: int, groups: int) -> Unsettled:
    """Return the work that is due, at most so many members and groups."""
    tasks, names = redis.read(("ZRANGE", keys.UNSETTLED_MEMBERS, 0, members - 1), _due(now, groups))
    return Unsettled(tasks, _scored(names))


def due(redis: Redis, now: float, count: int) -> list[tuple[str, float]]:
    """Return the names of groups whose time has come, each with its score, lowest first."""
    (names,) = redis.read(_due(now, count))
    return _scored(names)


def _due(now: float, count: int) -> Command:
    return ("ZRANGEBYSCORE", keys.GROUPS, "-inf", now, "WITHSCORES", "LIMIT", 0, count)


def _scored(reply: Sequence[str]) -> list[tuple[str, float]]:
    return [(name, float(score)) for name, score in zip(reply[::2], reply[1::2], strict=True)]


def count_waiting(redis: Redis, group: str) -> int:
    """Return how many tasks wait for a group, including those that are gone."""
    (size,) = redis.read(("ZCARD", keys.awaiting(group)))
    return int(size)


def cancellation(redis: Redis, group: str) -> Cancellation:
    """Return the cancellation of a group."""
    (fields,) = redis.read(("HMGET", keys.group(group), "cancel", "cancelled_by", "cancel_reason"))
    return Cancellation._make(fields)
