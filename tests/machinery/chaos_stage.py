"""What chaos happens to: a Redis, the network in front of it, two nodes, a scheduler and a
producer, all of our own.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

from chaos_node import QUEUE, Node, can_be_apart, start_producer
from chaos_producer import SAFE
from chaos_services import SERVICES, Network, Service
from chaos_steady import Steady
from running import Program, Programs

from blueque import Client
from blueque.model import keys
from blueque.model.recurrence import Rule

BEAT, LEASE, LOST_AFTER = 0.2, 0.8, 3.0
PACE = ("--beat", f"{BEAT}s", "--lease", f"{LEASE}s", "--lost-after", f"{LOST_AFTER}s")
# Schedules that have planned times to catch up, by name: overlap, catch_up, and how many have passed.
TIMES = 90  # planned times: a list keeps them all
EVERY = 10  # seconds between two of them, at least
PASSED = 60  # those that have passed at the beginning, at most
POLICIES = {
    "nightly": ("allow", "all", 40),
    "hourly": ("skip", "last", PASSED),
    "weekly": ("queue", "last", 20),
    "monthly": ("skip", "none", PASSED),
}


class Stage:
    """Everything that takes part. The control connection has no wire in between.

    seconds: for how long there shall be planned times.
    """

    def __init__(self, service: Service, directory: Path, seed: int, seconds: float = 0.0) -> None:
        self.service, self.directory, self._seed = service, directory, seed
        self.ledger, self.accepted = directory / "ledger", directory / "accepted"
        self.control = Client(service.url, patience=5.0)
        one, two, rest = networks = [service.network() for _ in range(3)]
        self.wires = [wire for network in networks for wire in network.wires]
        self.nodes = [
            Node("one", one, directory, "--reuse", "1", *PACE),
            Node("two", two, directory, "--reuse", "5", *PACE, is_apart=can_be_apart()),
        ]
        (directory / "rest").mkdir()
        self.rest = Programs(rest.url, directory / "rest")
        self.steady = Steady(
            Client(_beside(service.url), patience=5.0),
            Network(_beside(rest.url), rest.wires),
            directory / "steady",
            seed,
        )
        self._every = max(EVERY, round(seconds / (TIMES - PASSED)))
        self.is_redis_well = True
        self.scheduler: Program | None = None
        self.producer: Program | None = None
        self.rules: dict[str, tuple[Rule, int]] = {}  # of the schedules, and their first times

    def open(self) -> None:
        for name in POLICIES:
            self._plan(name)
        for node in self.nodes:
            node.start()
        self.start_scheduler()
        self.steady.open()
        self.producer = start_producer(self.rest, self.accepted, self._seed)

    def _plan(self, name: str) -> None:
        """Make a schedule of which some planned times have passed, and nothing has come."""
        overlap, catch_up, missed = POLICIES[name]
        redis = self.control.connections
        clock, _ = redis.read(("TIME",), ("PING",))
        every = self._every
        begin = (int(clock[0]) // every - missed) * every
        rule = Rule(every=every, until=begin + (TIMES - 1) * every)
        schedule = self.control.set_schedule(
            name,
            queue=QUEUE,
            every=every,
            start=time.time() + 3600,  # nothing comes before it is paused
            until=time.time() + 7200,
            overlap=overlap,
            catch_up=catch_up,
            window="30d",
            parameters="nap 0.1",
            retry=SAFE,
        )
        schedule.pause("chaos")
        record = {"last": begin - 1, "planned": begin, "at": begin, "until": rule.until}
        redis.read(
            ("HDEL", keys.schedule(name), "start"),
            ("HSET", keys.schedule(name), *[word for pair in record.items() for word in pair]),
        )
        schedule.resume(catch_up=True)
        self.rules[name] = rule, begin

    def start_scheduler(self) -> None:
        self.scheduler = self.rest.scheduler()

    def node(self, name: str) -> Node:
        return next(node for node in self.nodes if node.name == name)

    def programs(self) -> list[Programs]:
        return [self.rest, self.steady.node.programs, *[node.programs for node in self.nodes]]

    def left(self) -> list[int]:
        return [pid for programs in self.programs() for pid in programs.left()]


@contextlib.contextmanager
def open_stage(
    directory: Path, seed: int, service: str = "plain", seconds: float = 0.0
) -> Iterator[Stage]:
    """Have a stage, and leave no process of it behind.

    service: one of SERVICES. seconds: see Stage.
    """
    with SERVICES[service](directory) as redis, contextlib.ExitStack() as stack:
        stage = Stage(redis, directory, seed, seconds)
        for wire in stage.wires:
            stack.callback(wire.close)
        for programs in stage.programs():
            stack.enter_context(programs)
        stack.callback(stage.control.close)
        stack.callback(stage.steady.control.close)
        yield stage


def _beside(url: str) -> str:
    """Return the address of another database of the same Redis."""
    return f"{url}{'&' if '?' in url else '?'}db=1"
