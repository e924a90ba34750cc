"""Scenarios in which Redis goes back, as when a replica takes over that has only a beginning of the
history.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import actors
import failover_actors
import schedule_actors
from failover_actors import drain_after, live, runs_on
from ground import Program, Scenario, by
from oracle import State
from world import World, join, put_in_line, start_one

RETRY = '{"max":1,"backoff":0}'
a, b = by(live, "a_1"), by(live, "b_1")
produce, canceller = by(actors.produce), by(actors.cancel, "t-1")
once_more = {"retry": RETRY, "parameters": "bad"}


def tasks(*names: str, nodes: tuple[str, ...] = ("a_1",), **fields: Any) -> Callable[[World], None]:
    def setup(world: World) -> None:
        join(world, *nodes)
        put_in_line(world, *names, **fields)

    return setup


def _started(world: World) -> None:
    """A task that has started, and whose listener knows of nothing else."""
    tasks("t-1")(world)
    start_one(world, "a_1")


def _planned(world: World) -> None:
    join(world, "a_1")
    schedule_actors.make(world, 1)


def is_whole(world: World, state: State) -> str | None:
    """Return what is wrong with a group whose producer has made the same call once more."""
    members = state.groups["g"].members if "g" in state.groups else []
    if "closed" not in world.ledger.notes:
        return "the call never comes to its end"
    return None if len(members) == 2 else f"the group is closed with {members}"


def is_fed(world: World, state: State) -> str | None:
    """Return what is wrong when the feed was run again to its end."""
    fed = [task for task in state.tasks if task.startswith("f-")]
    if len(fed) != 2:
        return f"of the rows there are {fed}"
    return world.ledger.notes[0] if world.ledger.notes else None


def back(
    name: str, setup: Callable[[World], None], actors: dict[str, Program], **more: Any
) -> Scenario:
    options = {
        "bounds": [(0, 1)],
        "longer": [(1, 1), (0, 2)],
        "faults": frozenset(),
        "drain": drain_after,
        "afterwards": runs_on,
        "goes_back": True,
    }
    return Scenario(f"back: {name}", setup, actors, **{**options, **more})


FAILOVERS = [
    back("a task runs", tasks("t-1"), {"a_1": a}),
    back("twice, while a task runs", tasks("t-1"), {"a_1": a}, bounds=[(0, 2)], longer=[(1, 2)]),
    back("a producer and a listener", tasks(), {"producer": produce, "a_1": a}),
    back("two listeners", tasks("t-1", nodes=("a_1", "b_1")), {"a_1": a, "b_1": b}),
    back(
        "a task is tried again",
        tasks("t-1", **once_more),
        {"a_1": a},
        retry_safe=frozenset({"t-1"}),
    ),
    back("a lock", tasks("t-1", needs="lock:x=1"), {"a_1": a}),
    back(
        "a task is cancelled", _started, {"ann": canceller, "a_1": by(failover_actors.go_on, "a_1")}
    ),
    back(
        "a task is handed back",
        _started,
        {"a_1": by(failover_actors.hand_back, "a_1")},
        retry_safe=frozenset({"t-1"}),
    ),
    back("a task makes others", tasks("t-1", parameters="spawn"), {"a_1": a}),
    back("a task ends with another", tasks("t-1", parameters="then"), {"a_1": a}),
    back(
        "a group of keys",
        tasks(),
        {"producer": failover_actors.drive, "a_1": a},
        afterwards=is_whole,
        drain=failover_actors.drain_group,
    ),
    back(
        "a schedule fires",
        _planned,
        {"s": schedule_actors.fire, "a_1": a},
        tolerated=frozenset({"forgotten"}),
        drain=failover_actors.drain_fired,
    ),
    back(
        "a feed",
        tasks(),
        {"feeder": failover_actors.feed},
        drain=failover_actors.drain_fed,
        afterwards=is_fed,
    ),
]
