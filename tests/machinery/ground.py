"""A scenario, and the ground on which its runs are made: each begins with the same Redis and is
judged at its end.
"""

from __future__ import annotations

import functools
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import oracle
from actors import drain
from schedule_judge import wrong_schedules
from stepper import Actor, Bounds, Fault, Stepper
from world import QUEUE, World, draw_as

from blueque.audit.audit import audit
from blueque.connection.address import Address
from blueque.connection.plain import SocketConnection
from blueque.connection.redis import Command, Redis, pack, raise_refusal
from blueque.model import keys

EVERY = frozenset(Fault)

Program = Callable[[World, Redis], None]
Check = Callable[[World, oracle.State], str | None]


def by(act: Callable[..., None], *given: object, **named: object) -> Program:
    """Return a program: one of the functions in actors, with what it takes besides the world and
    the connection.
    """
    return lambda world, redis: act(world, redis, *given, **named)


@dataclass(frozen=True)
class Scenario:
    """Some actors, what they find, and how far to go.

    bounds: preemptions and faults, a space for each pair; longer: when there is time, without a word
        one preemption more together with a fault, or one fault more where nothing is preempted.
    faulty: the actors that faults may strike; all if left out. patient: those whose calls try again
        by themselves.
    tolerated: see oracle.broken_invariant.
    check: what else must be true when all is over, before anything is recovered; afterwards: and
        after that.
    frail: listeners of 1.0.0 that faults may strike; what it then does by itself to a task of its
        own is left out.
    untouched: listeners that nobody takes for dead. dead: those that 1.0.0 takes for dead.
    retry_safe: tasks that may be started again without asking.
    goes_back: whether Redis may go back, which is a fault of nobody.
    """

    name: str
    setup: Callable[[World], None]
    actors: Mapping[str, Program]
    bounds: Sequence[tuple[int, int]] = ((2, 0), (0, 1))
    longer: Sequence[tuple[int, int]] | None = None
    faulty: Sequence[str] | None = None
    faults: frozenset[Fault] = EVERY
    patient: Sequence[str] = ("producer",)
    tolerated: frozenset[str] = frozenset()
    is_thorough: bool = False
    drain: Callable[[World], None] = drain
    check: Check | None = None
    afterwards: Check | None = None
    frail: Sequence[str] = ()
    untouched: Sequence[str] = ()
    dead: frozenset[str] = frozenset()
    retry_safe: frozenset[str] = frozenset()
    goes_back: bool = False

    def longer_bounds(self) -> Sequence[tuple[int, int]]:
        if self.longer is not None:
            return self.longer
        preemptions, faults = map(max, zip(*self.bounds, strict=True))
        return [(preemptions + 1, 1) if preemptions else (0, faults + 1)]


class Ground:
    """A server, on which one scenario is run within some bounds; is_reduced: see Stepper."""

    def __init__(
        self, address: Address, scenario: Scenario, bounds: Bounds, is_reduced: bool
    ) -> None:
        self.address = address
        self.scenario = scenario
        self.bounds = bounds
        self.is_reduced = is_reduced
        self.redis = Redis(self._connect, 5.0)
        self._stepper: Stepper | None = None  # of the run that is being made
        # for looks from whatever thread: only one runs at a time
        self._eye: SocketConnection | None = None
        self._beginning: list[bytes] = []  # puts everything as the setup has left it
        self._given: dict[str, Any] = {}
        self._known: set[str] = set()
        self._known_at_first: set[str] = set()
        self._planned: dict[str, oracle.Planned] = {}  # the schedules as the setup has left them
        self._ends: set[str] = set()  # that have been seen to the end, and were right

    def prepare(self) -> None:
        """Set the scenario up, and keep what there is then for every run."""
        self._eye = self._connect()
        self.redis.read(("FLUSHALL",))
        world = self._world()
        draw_as("setup")
        self.scenario.setup(world)
        self._given = world.given
        (names,) = self.redis.read(("KEYS", "*"))
        dumps = self.redis.read(*[("DUMP", name) for name in names]) if names else []
        restore = [("RESTORE", name, 0, dump) for name, dump in zip(names, dumps, strict=True)]
        self._beginning = [pack(command) for command in [("FLUSHALL",), *restore]]
        self._known_at_first = set()
        self._planned = oracle.read_state(self._eye, QUEUE, self._known_at_first).schedules

    def run(self, prefix: Sequence[str] = ()) -> Stepper:
        """Make one run from the beginning."""
        if self._eye is None:
            self.prepare()
        self._see(*self._beginning)
        self._known = set(self._known_at_first)
        world = self._world()
        actors = [self._actor(name, world) for name in self.scenario.actors]
        stepper = Stepper(
            self._connect,
            actors,
            self.bounds,
            self._look,
            prefix,
            is_thorough=self.scenario.is_thorough,
            is_reduced=self.is_reduced,
            begin_again=(lambda: self._see(*self._beginning)) if self.scenario.goes_back else None,
            went_back=lambda: oracle.undo(world.ledger, self._state()),
        )
        self._stepper = stepper
        stepper.run()
        draw_as("whoever comes when all is over")
        world.alive = [actor.name for actor in actors if not actor.is_dead]
        if stepper.wrong is None:
            stepper.wrong = self._end(world, stepper)
        return stepper

    def close(self) -> None:
        self.redis.close()
        if self._eye is not None:
            self._eye.close()

    def _actor(self, name: str, world: World) -> Actor:
        scenario = self.scenario
        may_fail = scenario.faulty is None or name in scenario.faulty

        def program(redis: Redis) -> None:
            draw_as(name)
            scenario.actors[name](world, redis)

        patience = 1e6 if name in scenario.patient else 0.0
        return Actor(name, program, sorted(scenario.faults) if may_fail else [], patience)

    def _world(self) -> World:
        world = World(self.redis, dict(self._given))
        world.dead |= self.scenario.dead
        world.ledger.retry_safe |= self.scenario.retry_safe
        return world

    def _connect(self) -> SocketConnection:
        return SocketConnection(self.address)

    def _state(self) -> oracle.State:
        assert self._eye is not None
        return oracle.read_state(self._eye, QUEUE, self._known)

    def _look(self) -> str | None:
        state, tolerated = self._judged()[0], self.scenario.tolerated
        return oracle.broken_invariant(state, tolerated) or wrong_schedules(
            state, self._planned, tolerated
        )

    def _judged(self) -> tuple[oracle.State, set[str]]:
        """Return what Redis holds, but for the tasks that 1.0.0 has ruined without us; and those."""
        state = self._state()
        assert self._stepper is not None
        struck = {choice.partition(": ")[0] for choice in self._stepper.choices if ": " in choice}
        ruined = oracle.ruined(state, struck & set(self.scenario.frail))
        return oracle.leave_out(state, ruined), ruined

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
            state, ruined = self._judged()
            wrong = oracle.broken_invariant(state, scenario.tolerated)
            wrong = (
                wrong
                or wrong_schedules(state, self._planned, scenario.tolerated)
                or oracle.verdict(world.ledger, state, is_legacy, ruined)
                or self._audit(ruined)
                or self._released_twice(state)
            )
            if wrong is None and scenario.afterwards is not None:
                wrong = scenario.afterwards(world, self._state())
        if wrong is None:
            self._ends.add(end)
        return wrong

    def _audit(self, left_out: set[str]) -> str | None:
        findings = [finding for finding in audit(self.redis) if finding.task not in left_out]
        return "; ".join(finding.sentence for finding in findings) if findings else None

    def _released_twice(self, state: oracle.State) -> str | None:
        """Return which task was let go more often than it has had to wait."""
        for task in state.conditions.keys() & state.tasks.keys():
            (texts,) = self._see(("LRANGE", keys.history(task), 0, -1))
            told = Counter(json.loads(text)["event"] for text in texts)
            if told["unblocked"] > 1 + told["requeued"]:
                return f"task {task} was let go {told['unblocked']} times"
        return None

    def _everything(self) -> list[Any]:
        (names,) = self._see(("KEYS", "*"))
        # The events are told apart by their times alone, and no transaction looks at them.
        names = sorted(name for name in names if not name.startswith(oracle.EVENTS))
        return [names, *self._see(*map(_packed_reader, names))] if names else []

    def _see(self, *commands: Command) -> list[Any]:
        assert self._eye is not None
        replies = self._eye.exchange(commands)
        raise_refusal(replies)
        return replies


@functools.lru_cache(1024)
def _packed_reader(name: str) -> bytes:
    return pack(_reader(name))


def _reader(name: str) -> tuple[str | int, ...]:
    if name.startswith(
        (
            keys.task(""),
            keys.PREFIX + "listener_",
            keys.settings(""),
            keys.archive(""),
            keys.checkpoint(""),
            keys.conditions(""),
            keys.inputs(""),
            keys.group(""),
            keys.schedule(""),
            keys.PREFIX + "feed_",
            keys.PREFIX + "fed_",
        )
    ):
        return ("HGETALL", name)
    if name.startswith((keys.key_kept(""), keys.PREFIX + "feeder_")):
        return ("GET", name)
    if name.startswith(keys.spawned("")):  # ids of 16 bytes each
        return ("SCARD", name)
    if name in (keys.started(QUEUE), keys.listeners(QUEUE), keys.counted(QUEUE)):
        return ("SMEMBERS", name)
    if name.startswith(
        (keys.lock(""), keys.waiting(""), keys.open_members(""), keys.bad_members(""))
    ):
        return ("SMEMBERS", name)
    lists = {keys.complete(QUEUE), keys.failed(QUEUE), keys.cancelled(QUEUE)}
    if name in lists or name.startswith(
        (keys.pending(""), keys.reserved(QUEUE, ""), keys.PREFIX + "line_", keys.occurrences(""))
    ):
        return ("LRANGE", name, 0, -1)
    return ("ZRANGE", name, 0, -1, "WITHSCORES")
