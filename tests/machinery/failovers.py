"""Failovers while tasks run, of every kind, and what they cost: a primary, two replicas and three
Sentinels of our own, listeners of three hosts, and producers.

`PYTHONPATH=tests:tests/machinery:tests/legacy python tests/machinery/failovers.py
plain|min-replicas|replicas [--seconds 1200] [--tasks 200] [--seed N] [--directory DIR]` prints a
table, and exits 1 when a promise was broken.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from chaos_ledger import Ledger, Promises, Run, now
from chaos_node import QUEUE, Node, start_producer
from chaos_services import Network
from proof import ENDED, Proof, main, unended
from running import Programs, is_there, until
from sentinels import FAULTS, WHOLE, Sentinels, watched

from blueque import Client
from blueque.model import keys

HOSTS = {"one": 3, "two": 3, "three": 2}  # slots, each of them a listener, by host
REPLICAS, SENTINELS = 2, 3
DOWN_AFTER = 1000  # milliseconds; more than a busy machine makes a server wait
EVERY = 40.0  # seconds from one failover to the next
RUNNING = 60.0  # seconds until so many tasks run as a failover is to meet
DRAIN = 90.0  # seconds by which all has ended after the last failover


class Pace(NamedTuple):
    """How long things take, in seconds.

    task: at least and at most. held: what has happened to a primary lasts at most so much longer
        than the failover. at_once: then the server is a replica at once, and not when Sentinel sees
        to that.
    """

    task: tuple[float, float] = (2.0, 20.0)
    held: float = 8.0
    at_once: bool = False


class Variant(NamedTuple):
    """options: of each server. replicas: the setting of the programs. is_safe: nothing may be lost,
    and nothing run twice.
    """

    options: tuple[str, ...] = ()
    replicas: int = 0
    is_safe: bool = False


CAREFUL = ("--min-replicas-to-write", str(REPLICAS), "--min-replicas-max-lag", "2")
VARIANTS = {
    "plain": Variant(),
    "min-replicas": Variant(CAREFUL),
    "replicas": Variant(CAREFUL, 1, True),
}


class Failover(NamedTuple):
    """One failover. running: how many tasks ran when it began. seconds: until what had happened was
    over, and all listeners had beaten at the new primary.
    """

    kind: str
    running: int
    seconds: float


class Failovers(Proof):
    """One run."""

    def __init__(
        self, service: Sentinels, variant: Variant, directory: Path, seed: int, pace: Pace
    ) -> None:
        super().__init__(directory, seed)
        self._service, self._variant, self._pace, self._seed = service, variant, pace, seed
        self._ledger = Ledger(directory / "ledger")
        self._promises = Promises(directory / "accepted")
        self._client = Client(service.url, patience=5.0)
        replicas = {"BLUEQUE_REPLICAS": str(variant.replicas)}
        own = Network(service.url, [])
        self._nodes = [
            Node(
                name,
                own,
                directory,
                *("--beat", "1s", "--host", name),
                slots=slots,
                environ=replicas,
            )
            for name, slots in HOSTS.items()
        ]
        (directory / "producer").mkdir()
        self._producers = Programs(service.url, directory / "producer")
        self._chance = random.Random(seed)
        self._failovers: list[Failover] = []

    @contextlib.contextmanager
    def open(self) -> Iterator[None]:
        """Have no process of it left in the end."""
        with contextlib.ExitStack() as stack:
            for programs in [self._producers, *[node.programs for node in self._nodes]]:
                stack.enter_context(programs)
            stack.callback(self._client.close)
            yield

    def run(self, seconds: float, failovers: int, tasks: int) -> None:
        for node in self._nodes:
            node.start()
        accepted, replicas = self._promises.path, self._variant.replicas
        producer = start_producer(self._producers, accepted, self._seed, *self._pace.task, replicas)
        began, deck = now(), list[str]()
        for number in range(failovers):
            deck = deck or self._chance.sample(sorted(FAULTS), len(FAULTS))
            self._strike(deck.pop())
            time.sleep(max(began + seconds * (number + 1) / failovers - now(), 0.0))
        self.until(lambda: self._running() and len(self._ledger.runs) >= tasks, seconds, "tasks")
        producer.stop()
        until(self._service.is_whole, WHOLE, "all replicas at the primary")
        self._calm_down()
        self._judge()

    def _running(self) -> list[Run]:
        """Return the runs that certainly go on: they have noted their start, and their processes
        are there.
        """
        self._ledger.read()
        self._ledger.look(lambda run: is_there(run.pid), now())
        return self._ledger.running

    def _strike(self, kind: str) -> None:
        """Have the next failover, under at least half as many tasks as can run."""
        until(self._service.is_whole, WHOLE, "all replicas at the primary")
        half = sum(HOSTS.values()) // 2
        until(lambda: len(self._running()) >= half, RUNNING, f"{half} running tasks")
        running, began = len(self._running()), now()
        self.log(f"{kind} tasks={running}")
        held = self._chance.uniform(0.0, self._pace.held)
        self._service.strike(kind, QUEUE, held, self._pace.at_once, self.log)
        self._failovers.append(Failover(kind, running, now() - began))

    def _calm_down(self) -> None:
        redis, began = self._client.connections, now()

        def hanging() -> list[str]:
            (known,) = redis.read(("ZRANGE", keys.tasks(QUEUE), 0, -1))
            return unended(redis, known)

        self.until(lambda: not hanging(), DRAIN, "the end of every task")
        self.audit(redis)
        self.wrong += [f"task {task} has no end" for task in hanging()]
        self.table["seconds to drain"] = round(now() - began, 1)
        for node in self._nodes:
            assert node.listener is not None
            if node.listener.stop() != 0:
                self.wrong.append(f"node {node.name} has not left in order")

    def _judge(self) -> None:
        self._ledger.read()
        promises, runs = self._promises.read(), self._ledger.runs
        starts = Counter(run.task for run in runs)
        known = [task for task, promise in promises.items() if promise.is_accepted]
        ends = {task: self._client.get_task(task) for task in {*known, *starts}}
        losses = {
            "lost": [task for task in known if ends[task].status is None],
            "started twice": [task for task, count in starts.items() if count > 1],
            "ended twice": [task for task in starts if _ends_of(self._client, task) > 1],
        }
        by_kind = Counter(one.kind for one in self._failovers)
        self.table |= {
            "failovers": len(self._failovers),
            **{f"  {kind}": by_kind[kind] for kind in FAULTS},
            "tasks running in each, at least": min(one.running for one in self._failovers),
            "seconds of the longest": round(max(one.seconds for one in self._failovers), 1),
            "acknowledged": len(known),
            "answer unknown": len(promises) - len(known),
            "starts": len(runs),
            **{what: len(tasks) for what, tasks in losses.items()},
        }
        for what, tasks in losses.items():
            for task in tasks:
                self.log(f"{what}: {task}")
            if self._variant.is_safe and tasks:
                self.wrong.append(f"{what}: {len(tasks)}")
        self.wrong += [
            f"task {task} has {end.status}: {end.error}"
            for task, end in ends.items()
            if end.status in ("failed", "cancelled")
        ]
        self.wrong += [
            f"task {run.task} has come to its end, and not so in Redis"
            for run in runs
            if run.ended and ends[run.task].status not in ("complete", None)
        ]


def _ends_of(client: Client, task: str) -> int:
    """Return how many ends of a task Redis knows of."""
    (texts,) = client.connections.read(("LRANGE", keys.history(task), 0, -1))
    return sum(json.loads(text)["event"] in ENDED for text in texts)


def fail_over(
    variant: str,
    directory: Path,
    seed: int,
    seconds: float,
    failovers: int,
    tasks: int = 0,
    pace: Pace = Pace(),  # noqa: B008  # it does not change
) -> Failovers:
    """Have so many failovers in so many seconds, or longer, and return what came of it."""
    chosen = VARIANTS[variant]
    watching = watched(
        directory, REPLICAS, SENTINELS, *chosen.options, by_wire=True, down_after=DOWN_AFTER
    )
    with watching as service:
        run = Failovers(service, chosen, directory, seed, pace)
        with run.open():
            run.run(seconds, failovers, tasks)
    return run


def prove(given: argparse.Namespace) -> Failovers:
    failovers = round(given.seconds / EVERY)
    return fail_over(given.kind, given.directory, given.seed, given.seconds, failovers, given.tasks)


if __name__ == "__main__":
    sys.exit(main(prove, VARIANTS, __doc__ or ""))
