"""What the actors of the explorer do with schedules. The clock of Redis decides, so their records are
put back: each has planned times that have passed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from actors import drain_tied, insist
from transactions import protocol
from world import QUEUE, World, to_this_actor

from blueque.connection.redis import Redis, time_of
from blueque.errors import NoSuchSchedule, WrongSchedule
from blueque.model import keys
from blueque.model.ids import id_of_occurrence
from blueque.model.schedule import Definition
from blueque.producer.firing import Firing
from blueque.producer.schedules import define
from blueque.protocol.occurrences import fields_of_task, plan_of
from blueque.protocol.schedules import Define, Pause, Resume
from blueque.queries import schedules

NAME = "daily"
DAY = 86400  # seconds: longer than an exploration takes
LATE = 5  # seconds since the last planned time


# Beginnings


def make(world: World, past: int, **options: Any) -> None:
    """Have a schedule of which so many planned times are due, and nothing was ever decided."""
    now = int(time_of(world.redis.read(("TIME",))[0]))
    begin = now - LATE - (past - 1) * DAY
    definition = _defined(world, {"start": begin, **options})
    protocol.set_schedule(world.redis, NAME, Define(definition, "hand"), "ann")
    record = {"created": begin - 0.5, "last": begin - 1, "planned": begin, "at": begin}
    flat = [part for pair in record.items() for part in pair]
    world.redis.read(("HSET", keys.schedule(NAME), *flat), ("ZADD", keys.SCHEDULES, begin, NAME))
    world.given["times"] = [begin + DAY * number for number in range(past)]


def decide_one(world: World) -> None:
    """Have the next planned time come to what it comes to, as if it were all that is due."""
    record = schedules.records(world.redis, [NAME])[0]
    assert isinstance(record, dict)
    plan = plan_of(NAME, record, float(record["at"]) + LATE)
    assert plan is not None and protocol.fire(world.redis, NAME, plan) is not None


def _defined(world: World, options: dict[str, Any]) -> Definition:
    given = {"every": DAY, "parameters": "ok", "window": 100 * DAY, **options}
    return define(world.queue(), NAME, given.pop("parameters"), **given)


# Those who fire


def fire(world: World, redis: Redis, ahead: float = 0.0) -> None:
    """Be a scheduler that makes what is due. ahead: its own clock."""
    to_this_actor.ahead = ahead
    firing = Firing(redis)
    while insist(firing.step) == 0.0:
        pass


# People


def change(world: World, redis: Redis, **options: Any) -> None:
    """Be a person who defines the schedule otherwise, or again."""
    begin = world.given["times"][0]
    definition = _defined(world, {"start": begin, **options})
    insist(lambda: protocol.set_schedule(redis, NAME, Define(definition, "hand"), "ann"))


def _asked(world: World, action: Callable[[], object], what: str) -> None:
    """Do it, and note whether it was done. It is fine if it is refused."""
    try:
        insist(action)
    except (NoSuchSchedule, WrongSchedule):
        return
    world.ledger.notes.append(what)


def pause(world: World, redis: Redis) -> None:
    _asked(world, lambda: protocol.set_schedule(redis, NAME, Pause(), "ann"), "paused")
    # Whatever fires from now on makes nothing.
    world.ledger.notes.append(_made(world))


def pause_and_resume(world: World, redis: Redis, catches_up: bool) -> None:
    _asked(world, lambda: protocol.set_schedule(redis, NAME, Pause(), "ann"), "paused")
    _asked(world, lambda: protocol.set_schedule(redis, NAME, Resume(catches_up), "ann"), "resumed")


def delete(world: World, redis: Redis) -> None:
    insist(lambda: protocol.delete_schedule(redis, NAME, "ann"))
    world.ledger.notes.append("deleted")


def delete_and_make(world: World, redis: Redis) -> None:
    delete(world, redis)
    change(world, redis)


def trigger(world: World, redis: Redis, is_forced: bool = False) -> None:
    _asked(world, lambda: protocol.trigger(redis, NAME, "mark", "ann", is_forced), "triggered")


def backfill(world: World, redis: Redis) -> None:
    """Be a person who wants the tasks of all past times."""
    definition = _defined(world, {"start": world.given["times"][0], "overlap": "allow"})
    for planned in world.given["times"]:
        task, fields = id_of_occurrence(NAME, planned), fields_of_task(NAME, definition, planned)
        own = {**fields, "enqueued_by": "ann"}
        insist(lambda: protocol.enqueue(redis, QUEUE, task, "ok", time.time(), own))  # noqa: B023


def _made(world: World) -> int:
    (made,) = world.redis.read(("HGET", keys.schedule(NAME), "made"))
    return int(made or 0)


# When all is over


def drain_planned(world: World) -> None:
    """Be whoever comes next: end a pause, make what is due, and run it."""
    try:
        protocol.set_schedule(world.redis, NAME, Resume(True), "ann")
    except NoSuchSchedule:
        pass
    for _ in range(2):
        fire(world, world.redis)
        drain_tied(world)
