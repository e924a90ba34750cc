"""Explores the scenarios: `python tests/explore.py --long MINUTES`, or `--scenario NAME` for one of them."""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import oracle
from actors import drain
from stepper import Actor, Bounds, Fault, Stepper, without_pauses
from world import QUEUE, World, process_table

from blueque import keys
from blueque.address import Address
from blueque.audit import audit
from blueque.connection import Redis, exchange, raise_refusal
from blueque.embedded import running_server
from blueque.socket_connection import SocketConnection

EVERY = frozenset(Fault)
NONE: frozenset[Fault] = frozenset()

Program = Callable[[World, Redis], None]


@dataclass(frozen=True)
class Scenario:
    """Some actors, what they find, and how far to go.

    bounds: preemptions and faults, a space for each pair; longer: when there is time.
    faulty: the actors that faults may strike; all if left out. patient: those whose calls try again by themselves.
    tolerated: see oracle.broken_invariant. check: what else must be true when all is over, before anything is recovered.
    untouched: listeners that nobody takes for dead. dead: those that 1.0.0 takes for dead.
    """

    name: str
    setup: Callable[[World], None]
    actors: Mapping[str, Program]
    bounds: Sequence[tuple[int, int]]
    longer: Sequence[tuple[int, int]] = ()
    faulty: Sequence[str] | None = None
    faults: frozenset[Fault] = EVERY
    patient: Sequence[str] = ("producer",)
    tolerated: frozenset[str] = frozenset()
    is_thorough: bool = False
    drain: Callable[[World], None] = drain
    check: Callable[[World, oracle.State], str | None] | None = None
    untouched: Sequence[str] = ()
    dead: frozenset[str] = frozenset()
    retry_safe: frozenset[str] = frozenset()


class Exploration(NamedTuple):
    """What came of it. `schedule` and `trace` are of the first run that broke a rule; `wrong` tells which."""

    schedules: int
    is_exhausted: bool
    seconds: float
    wrong: str | None = None
    schedule: Sequence[str] = ()
    trace: Sequence[str] = ()

    def __str__(self) -> str:
        extent = "exhausted" if self.is_exhausted else "not exhausted"
        told = f"{self.schedules} schedules in {self.seconds:.1f} s, {extent}"
        if self.wrong is None:
            return told
        return "\n".join([f"{told}: {self.wrong}", *self.trace, f"schedule = {list(self.schedule)!r}"])


@dataclass
class Ground:
    """A server, and what the setup of one scenario has put there."""

    address: Address
    scenario: Scenario
    bounds: Bounds
    redis: Redis = field(init=False)

    def __post_init__(self) -> None:
        self.redis = Redis(self._connect, 5.0)
        self._known: set[str] = set()
        self._ends: set[str] = set()                   # that have been seen to the end, and were right
        self.redis.read(("FLUSHALL",))
        self.given = {}
        world = self._world()
        self.scenario.setup(world)
        self.given = world.given
        (names,) = self.redis.read(("KEYS", "*"))
        dumps = self.redis.read(*[("DUMP", name) for name in names]) if names else []
        task_keys = [name for name in names if name.startswith((keys.task(""), keys.reserved(QUEUE, "")))]
        self._known_at_first = frozenset(task_keys)
        restore = [("RESTORE", name, 0, dump) for name, dump in zip(names, dumps, strict=True)]
        self._restore = [("UNWATCH",), ("FLUSHALL",), *restore]

    def run(self, prefix: Sequence[str] = ()) -> Stepper:
        """Make one run from the beginning."""
        connection = self.redis.connection()
        connection.ahead = None
        raise_refusal(exchange(connection, self._restore))
        world, scenario = self._world(), self.scenario
        self._known = set(self._known_at_first)
        actors = []
        for name, program in scenario.actors.items():
            may_fail = scenario.faulty is None or name in scenario.faulty
            actors.append(
                Actor(
                    name, lambda redis, program=program: program(world, redis), sorted(scenario.faults) if may_fail else [],
                    1e6 if name in scenario.patient else 0.0,
                )
            )
        stepper = Stepper(
            self._connect, actors, self.bounds, self._look, prefix, is_thorough=scenario.is_thorough
        )
        stepper.run()
        world.alive = [actor.name for actor in actors if not actor.is_dead]
        if stepper.wrong is None:
            stepper.wrong = self._end(world, stepper)
        return stepper

    def _world(self) -> World:
        world = World(self.redis, dict(self.given))
        world.dead |= self.scenario.dead
        world.ledger.retry_safe |= self.scenario.retry_safe
        return world

    def _connect(self) -> SocketConnection:
        return SocketConnection(self.address)

    def _state(self) -> oracle.State:
        return oracle.read_state(self.redis.connection(), QUEUE, self._known)

    def _look(self) -> str | None:
        return oracle.broken_invariant(self._state(), self.scenario.tolerated)

    def _end(self, world: World, stepper: Stepper) -> str | None:
        """See to what is left, and judge; an end that was judged already need not be judged again."""
        end = oracle.signature([self._everything(), world.ledger, world.alive, stepper.held])
        if end in self._ends:
            return None
        scenario = self.scenario
        state = self._state()
        wrong = scenario.check(world, state) if scenario.check is not None else None
        for node in set(scenario.untouched) & set(world.alive):
            wrong = wrong or oracle.unfinished_business(world.ledger, state, node)
        if wrong is None:
            scenario.drain(world)
            if stepper.deliver_late():
                scenario.drain(world)
            is_legacy = "legacy" in scenario.tolerated
            wrong = self._look() or oracle.verdict(world.ledger, self._state(), is_legacy) or self._audit()
        if wrong is None:
            self._ends.add(end)
        return wrong

    def _audit(self) -> str | None:
        findings = audit(self.redis)
        return "; ".join(finding.sentence for finding in findings) if findings else None

    def _everything(self) -> list[Any]:
        connection = self.redis.connection()
        (names,) = exchange(connection, [("KEYS", "*")])
        names.sort()
        return [names, *exchange(connection, [_reader(name) for name in names])] if names else []


def _reader(name: str) -> tuple[str | int, ...]:
    if name.startswith((keys.task(""), keys.PREFIX + "listener_")):
        return ("HGETALL", name)
    if name in (keys.started(QUEUE), keys.listeners(QUEUE)):
        return ("SMEMBERS", name)
    if name == keys.scheduled(QUEUE):
        return ("ZRANGE", name, 0, -1, "WITHSCORES")
    if name.endswith(f"_tasks_{QUEUE}") or name.startswith(keys.reserved(QUEUE, "")):
        return ("LRANGE", name, 0, -1)
    return ("ZRANGE", name, 0, -1, "WITHSCORES")


def explore(
    run: Callable[[Sequence[str]], Stepper], *, seconds: float | None = None, is_shortest: bool = False
) -> Exploration:
    """Run every schedule, those with the fewest interruptions and faults first, until one breaks a rule.

    run: makes one run that begins with these choices. seconds: when to stop.
    is_shortest: go on until there can be no shorter schedule that breaks one.
    """
    began = time.monotonic()
    waiting: dict[int, list[tuple[str, ...]]] = {0: [()]}  # by the number of interruptions and faults
    count, worst, limit = 0, None, float("inf")
    while waiting and min(waiting) <= limit and (seconds is None or time.monotonic() - began < seconds):
        cost = min(waiting)
        prefix = waiting[cost].pop()
        if not waiting[cost]:
            del waiting[cost]
        stepper = run(prefix)
        count += 1
        if stepper.wrong is None:
            _branch(stepper, len(prefix), waiting)
        elif worst is None or len(stepper.choices) < len(worst.choices):
            worst, limit = stepper, cost
            if not is_shortest:
                break
    spent = time.monotonic() - began
    if worst is not None:
        return Exploration(count, False, spent, worst.wrong, worst.choices, worst.trace())
    return Exploration(count, not waiting, spent)


def _branch(stepper: Stepper, start: int, waiting: dict[int, list[tuple[str, ...]]]) -> None:
    """Have every other choice tried that there was from the place `start` on."""
    for place in range(start, len(stepper.choices)):
        before = stepper.costs[place - 1] if place else 0
        for option in stepper.others[place]:
            cost = before + option.preemptions + option.faults
            waiting.setdefault(cost, []).append((*stepper.choices[:place], option.choice))


class Explorer:
    """Explores scenarios on one server."""

    def __init__(self, address: Address) -> None:
        self._address = address

    def ground(self, scenario: Scenario, bounds: tuple[int, int]) -> Ground:
        return Ground(self._address, scenario, Bounds(*bounds))

    def __call__(self, scenario: Scenario, bounds: tuple[int, int], **limits: Any) -> Exploration:
        """Explore a scenario within these bounds; limits: see `explore`."""
        return explore(self.ground(scenario, bounds).run, **limits)


@contextmanager
def open_explorer() -> Iterator[Explorer]:
    """Have a server and an explorer, for whom no time passes between two tries."""
    log = logging.getLogger("blueque")
    with running_server("--unixsocket", "redis.sock", "--appendonly", "no") as server, without_pauses(), process_table():
        was_disabled, log.disabled = log.disabled, True
        try:
            yield Explorer(Address(f"unix://{server.directory}/redis.sock"))
        finally:
            log.disabled = was_disabled


def main(argv: Sequence[str] | None = None) -> int:
    from scenarios import OURS, SCENARIOS  # here: it needs Scenario

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--long", type=float, metavar="MINUTES", help="explore further, for so long")
    parser.add_argument("--scenario", action="append", choices=SCENARIOS, metavar="NAME", help="only this one")
    given = parser.parse_args(argv)
    chosen = [SCENARIOS[name] for name in given.scenario] if given.scenario else OURS
    spaces = [(scenario, pair) for scenario in chosen for pair in (scenario.longer if given.long else scenario.bounds)]
    deadline = time.monotonic() + (given.long or 1e6) * 60
    status = 0
    with open_explorer() as run:
        for place, (scenario, pair) in enumerate(spaces):
            share = (deadline - time.monotonic()) / (len(spaces) - place)
            found = run(scenario, pair, seconds=share)
            print(f"{scenario.name}, {pair[0]} preemptions, {pair[1]} faults: {found}", flush=True)
            status |= found.wrong is not None
    return status


if __name__ == "__main__":
    sys.exit(main())
