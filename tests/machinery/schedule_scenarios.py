"""The scenarios of schedules that the explorer goes through."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import actors
import schedule_actors
from ground import Scenario, by
from oracle import State
from schedule_actors import NAME, decide_one, drain_planned, fire, make
from transactions import protocol
from world import QUEUE, World, join, start_one

from blueque.connection.redis import Redis
from blueque.model import keys
from blueque.model.ids import id_of_occurrence

BESIDE, DELETED = frozenset({"beside"}), frozenset({"deleted"})
FORGOTTEN = frozenset({"forgotten"})


# What there is at the beginning


def planned(*nodes: str, past: int = 1, **options: Any) -> Callable[[World], None]:
    """A schedule of which some planned times are due."""

    def setup(world: World) -> None:
        join(world, *nodes)
        make(world, past, **options)

    return setup


def begun(*nodes: str, past: int = 2, decided: int = 1, **options: Any) -> Callable[[World], None]:
    """One whose first task the first node has started. decided: planned times that have passed."""

    def setup(world: World) -> None:
        planned(*nodes, past=past, **options)(world)
        decide_one(world)
        start_one(world, nodes[0])
        for _ in range(decided - 1):
            decide_one(world)

    return setup


def _rolled_back(world: World) -> None:
    """A task of a schedule that runs, and of which Redis has forgotten all."""
    planned("a_1")(world)
    (record, score) = world.redis.read(
        ("DUMP", keys.schedule(NAME)), ("ZSCORE", keys.SCHEDULES, NAME)
    )
    decide_one(world)
    task = start_one(world, "a_1")
    world.redis.read(
        ("RESTORE", keys.schedule(NAME), 0, record, "REPLACE"),
        ("ZADD", keys.SCHEDULES, score, NAME),
        ("DEL", keys.occurrences(NAME), keys.task(task.id), keys.history(task.id)),
        ("DEL", keys.reserved(QUEUE, "a_1"), keys.started(QUEUE)),
        ("ZREM", keys.tasks(QUEUE), task.id),
    )


# What must be true besides


def has_come(world: World, state: State) -> str | None:
    """Nothing that is due is undecided, and each task that came has begun once, unless somebody has
    ended it before.
    """
    if NAME in state.schedules:
        record = state.schedules[NAME].record
        if int(record["planned"]) <= state.now:
            return f"{record['planned']} was due, and has come to nothing"
    for task, its in state.tasks.items():
        times = len(world.ledger.starts.get(task, ()))
        is_more = times > 1 + world.ledger.consents[task] and task not in world.ledger.retry_safe
        if is_more or (not times and its["status"] == "complete"):
            return f"task {task} is {its['status']}, and has begun {times} times"
    return None


def is_as_told(world: World, state: State) -> str | None:
    """What a person was told was triggered has come once."""
    if NAME not in state.schedules:
        return has_come(world, state)
    history, notes = state.schedules[NAME].history, world.ledger.notes
    triggered = [one for one in history if one.what == "triggered"]
    if len(triggered) > 1 or ("triggered" in notes and not triggered):
        return f"a trigger has made {len(triggered)} tasks"
    return has_come(world, state)


def stays_paused(world: World, state: State) -> str | None:
    """When a pause has been answered, nothing comes any more."""
    made, notes = state.schedules[NAME].record.get("made", "0"), world.ledger.notes
    is_right = len(notes) < 2 or notes[1] == int(made)
    return None if is_right else f"{notes[1]} were made when it was paused, and {made} are"


def nothing_before_its_time(world: World, state: State) -> str | None:
    """What is planned for tomorrow has come to nothing yet."""
    record, (today,) = state.schedules[NAME].record, world.given["times"]
    is_right = int(record["last"]) == today
    return has_come(world, state) if is_right else f"{record['last']} has come, and is not due"


def has_waited(world: World, state: State) -> str | None:
    """Each planned time of a schedule that lets one wait: the second waits, whatever ends first."""
    came = [one.what for one in state.schedules[NAME].history]
    is_right = came[:2] == ["made", "made"]
    return has_come(world, state) if is_right else f"the planned times came to {came}"


def _reporting(world: World, redis: Redis) -> None:
    """Be a listener whose task has just ended."""
    task = world.given["task"]
    actors.report(world, redis, task, actors.execute(world, task))


def _report_and_delete(world: World, redis: Redis) -> None:
    """Be a listener whose task has just ended, and a person who has no use for it."""
    _reporting(world, redis)
    world.ledger.deleted.add(world.given["task"].id)
    actors.insist(lambda: protocol.delete(redis, QUEUE, world.given["task"].id))


def _failing(world: World, redis: Redis) -> None:
    """Be a listener whose task has just failed, and may be tried again."""
    world.ledger.retry_safe.add(world.given["task"].id)
    _reporting(world, redis)


def _failing_again(world: World, redis: Redis) -> None:
    """Be a listener, like the next one: each task fails, and may be tried again."""
    times = world.given["times"]
    world.ledger.retry_safe |= {id_of_occurrence(NAME, planned) for planned in times}
    actors.work(world, redis, "b_1")


ours = functools.partial(
    Scenario,
    bounds=[(1, 0), (0, 1)],
    longer=[(2, 0), (1, 1)],
    drain=drain_planned,
    afterwards=has_come,
)
a = by(actors.work, "a_1")
b = by(actors.work, "b_1")

SCHEDULES = [
    ours(
        "two who fire",
        planned("a_1"),
        {"s": fire, "s2": fire, "a_1": a},
        faulty=["s"],
        untouched=["a_1"],
        longer=[(2, 1), (3, 0)],
    ),
    ours(
        "three times are due, and the last comes", planned("a_1", past=3), {"s": fire, "s2": fire}
    ),
    ours(
        "fire, and a new rule",
        planned("a_1", past=2),
        {"s": fire, "p": by(schedule_actors.change, every=2 * schedule_actors.DAY)},
    ),
    ours(
        "fire, and a pause",
        planned("a_1"),
        {"s": fire, "p": schedule_actors.pause},
        check=stays_paused,
    ),
    ours(
        "fire, and a pause that ends",
        planned("a_1", past=2),
        {"s": fire, "p": by(schedule_actors.pause_and_resume, False)},
    ),
    ours(
        "fire, and no schedule any more", planned("a_1"), {"s": fire, "p": schedule_actors.delete}
    ),
    ours(
        "fire, and another of this name",
        planned("a_1"),
        {"s": fire, "p": schedule_actors.delete_and_make},
    ),
    ours(
        "one waits, and another comes",
        begun("a_1", "b_1", past=3, decided=2, overlap="queue"),
        {"s": fire, "a_1": _reporting, "b_1": b},
        bounds=[(1, 0)],
        afterwards=has_waited,
    ),
    ours(
        "one waits behind another that is tried again, and a third comes",
        begun("a_1", "b_1", past=3, decided=2, overlap="queue", parameters="bad", retry=1),
        {"s": fire, "a_1": _failing, "b_1": _failing_again},
        bounds=[(1, 0)],
    ),
    ours(
        "skipped, or the one before ends",
        begun("a_1"),
        {"s": fire, "a_1": _reporting},
        faulty=["s"],
    ),
    ours(
        "skipped, or the one before is tried again",
        begun("a_1", "b_1", parameters="bad", retry=1),
        {"s": fire, "a_1": _failing, "b_1": b},
        bounds=[(1, 0)],
    ),
    ours(
        "fire, and trigger",
        planned("a_1"),
        {"s": fire, "p": schedule_actors.trigger},
        afterwards=is_as_told,
    ),
    ours(
        "fire, and a forced trigger",
        planned("a_1", overlap="queue"),
        {"s": fire, "p": by(schedule_actors.trigger, True)},
        afterwards=is_as_told,
        tolerated=BESIDE,
    ),
    ours(
        "forgotten by Redis, and fired again",
        _rolled_back,
        {"a_1": by(actors.put_back, "a_1"), "s": fire},
        tolerated=FORGOTTEN,
        faulty=["s"],
    ),
    ours(
        "fire, and backfill",
        planned("a_1", past=3, overlap="allow", catch_up="all"),
        {"s": fire, "p": schedule_actors.backfill},
        tolerated=FORGOTTEN,
    ),
    ours(
        "fire, and the one before is deleted",
        begun("a_1"),
        {"s": fire, "a_1": _report_and_delete},
        faulty=["s"],
        tolerated=DELETED,
    ),
    ours(
        "two who fire, with clocks a day apart",
        planned("a_1"),
        {"s": by(fire, schedule_actors.DAY), "s2": by(fire, -schedule_actors.DAY)},
        bounds=[(1, 0)],
        afterwards=nothing_before_its_time,
    ),
]
