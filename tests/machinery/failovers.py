"""Failovers while tasks run, of every kind, and what they cost: a primary, two replicas and three
Sentinels of our own, listeners of three hosts, and producers.

`PYTHONPATH=tests:tests/machinery:tests/legacy python tests/machinery/failovers.py [--variant
NAME] [--seconds 1200] [--failovers 30] [--tasks 200] [--seed N] [--directory DIR]` prints a table,
and exits 1 when a promise was broken.
"""

from __future__ import annotations

import argparse
import contextlib
import inspect
import json
import logging
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from chaos_ledger import Ledger, Run
from chaos_stage import WORK, now
from running import Listener, Programs, is_there, until
from sentinels import FAULTS, WHOLE, Sentinels, beats, have_beaten, watched

from blueque import Client
from blueque.audit.audit import audit
from blueque.errors import Contended, OutcomeUnknown, RedisAway, RedisRefused
from blueque.model import keys

QUEUE = "failover"
BEAT = 1.0
HOSTS = {"one": 3, "two": 3, "three": 2}  # slots, each of them a listener, by host
REPLICAS, SENTINELS, PRODUCERS = 2, 3, 2
DOWN_AFTER = 1000  # milliseconds; more than a busy machine makes a server wait
BACKLOG = 8  # tasks in line that are enough
PATIENCE = 5.0  # seconds that a call of a producer takes, when it cannot reach Redis
RUNNING = 30.0  # seconds until so many tasks run as a failover is to meet
DRAIN = 90.0  # seconds by which all has ended after the last failover
ENDED = ("complete", "failed", "cancelled")


class Pace(NamedTuple):
    """How long things take, in seconds.

    task: at least and at most. held: what has happened to a primary lasts so much longer than the
        failover. at_once: then the server is a replica at once, and not when Sentinel sees to that.
    """

    task: tuple[float, float] = (2.0, 20.0)
    held: tuple[float, float] = (0.0, 8.0)
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


class Producer(threading.Thread):
    """Enqueues tasks while few are in line, and notes what came of each call.

    accepted: when a call has said so of each task. unknown: those of which it could not tell.
    """

    def __init__(self, client: Client, seconds: tuple[float, float], seed: int) -> None:
        super().__init__(daemon=True)
        self._client, self._seconds, self._chance = client, seconds, random.Random(seed)
        self.accepted: dict[str, float] = {}
        self.unknown: list[str] = []
        self.refused: Counter[str] = Counter()
        self.longest = 0.0
        self.stop = threading.Event()

    def run(self) -> None:
        queue, inspector = self._client.get_queue(QUEUE), self._client.get_inspector()
        while not self.stop.wait(0.1):
            began = now()
            try:
                if inspector.pending(QUEUE) < BACKLOG:
                    words = f"nap {self._chance.uniform(*self._seconds):.2f}"
                    task = queue.enqueue(words)
                    self.accepted[task] = now()
            except OutcomeUnknown as error:
                self.refused["answer unknown"] += 1
                self.unknown += filter(None, [error.task_id])
            except (RedisAway, RedisRefused, Contended) as error:
                self.refused[type(error).__name__] += 1
            self.longest = max(self.longest, now() - began)
        self._client.close()


class Failover(NamedTuple):
    """One failover. running: how many tasks ran when it began. named, left: after how many seconds
    Sentinel named another primary, and all listeners had beaten there.
    """

    kind: str
    running: int
    named: float
    left: float


class Stage:
    """Everything that takes part."""

    def __init__(
        self, service: Sentinels, variant: Variant, directory: Path, seed: int, pace: Pace
    ) -> None:
        self.service, self._options, self.pace = service, _options_of(variant), pace
        self._path, self._began = directory / "ledger", now()
        self._log_path = directory / "failovers.log"
        self.ledger = Ledger(self._path)
        self.control = self.client()
        self.hosts: dict[str, Programs] = {}
        self.listeners: list[Listener] = []
        self._chance = random.Random(seed)
        self._deck: list[str] = []
        self.failovers: list[Failover] = []
        self.wrong: list[str] = []
        for name in HOSTS:
            (directory / name).mkdir()
            self.hosts[name] = Programs(service.url, directory / name)

    def client(self) -> Client:
        return Client(self.service.url, patience=PATIENCE, **self._options)

    def start(self) -> None:
        for name, programs in self.hosts.items():
            programs.write(WORK)
            self.listeners.append(
                programs.listener(
                    "work:run",
                    *("--beat", f"{BEAT}s", "--host", name),
                    queue=QUEUE,
                    slots=HOSTS[name],
                    is_awaited=False,
                    environ={
                        "CHAOS_NODE": name,
                        "CHAOS_LEDGER": str(self._path),
                        **{f"BLUEQUE_{key.upper()}": str(n) for key, n in self._options.items()},
                    },
                )
            )

    def log(self, text: str, at: float | None = None) -> None:
        with self._log_path.open("a") as file:
            file.write(f"{(at or now()) - self._began:8.3f} {text}\n")

    def running(self) -> list[Run]:
        """Return the runs that certainly go on: they have noted their start, and their processes
        are there.
        """
        self.ledger.read()
        for run in self.ledger.running:
            run.process = run.pid
        self.ledger.look(lambda run: is_there(run.pid), now())
        return list(self.ledger.running)

    def strike(self) -> None:
        """Have the next failover, under at least half as many tasks as can run."""
        self._deck = self._deck or self._chance.sample(sorted(FAULTS), len(FAULTS))
        kind, service = self._deck.pop(), self.service
        until(service.is_whole, WHOLE, "all replicas at the primary")
        most = sum(HOSTS.values())
        until(lambda: len(self.running()) * 2 >= most, RUNNING, f"{most // 2} running tasks")
        primary, running = service.primary(), len(self.running())
        before = beats(primary, QUEUE)
        self.log(f"{kind} port={primary.port} tasks={running}")
        began = now()
        FAULTS[kind](service, primary)
        new = service.other_than(primary)
        named = now() - began
        self.log(f"primary port={new.port}")
        heal_at = now() + self._chance.uniform(*self.pace.held)
        is_healed = False

        def have_left() -> bool:
            nonlocal is_healed
            if not is_healed and now() >= heal_at:
                service.heal(primary, self.pace.at_once)
                is_healed = True
                self.log(f"healed port={primary.port}")
            return is_healed and have_beaten(new, QUEUE, before)

        try:
            until(have_left, WHOLE, "a beat of each listener at the new primary")
        finally:
            if not is_healed:
                service.heal(primary)
        self.failovers.append(Failover(kind, running, named, now() - began))
        self.log("all listeners have left")


def _options_of(variant: Variant) -> dict[str, Any]:
    """Return what a client is told besides its address."""
    if not variant.replicas or "replicas" not in inspect.signature(Client).parameters:
        return {}
    return {"replicas": variant.replicas}


class Failovers:
    """One run."""

    def __init__(self, stage: Stage, seed: int) -> None:
        self._stage = stage
        self._producers = [
            Producer(stage.client(), stage.pace.task, seed + number) for number in range(PRODUCERS)
        ]
        self.wrong: list[str] = []
        self.table: dict[str, object] = {}

    def run(self, seconds: float, failovers: int, tasks: int) -> None:
        stage = self._stage
        stage.start()
        for producer in self._producers:
            producer.start()
        began = now()
        try:
            for number in range(failovers):
                stage.strike()
                _sleep_until(began + seconds * (number + 1) / failovers)
            until(lambda: stage.ledger.read() or len(stage.ledger.runs) >= tasks, seconds, "tasks")
        finally:
            for producer in self._producers:
                producer.stop.set()
            for producer in self._producers:
                producer.join()
        self._calm_down()

    def _calm_down(self) -> None:
        stage, redis = self._stage, self._stage.control.connections
        until(stage.service.is_whole, WHOLE, "all replicas at the primary")
        known = dict(one for producer in self._producers for one in producer.accepted.items())
        unknown = [task for producer in self._producers for task in producer.unknown]
        began = now()
        self._until(lambda: not self._unended(), DRAIN, "the end of every task")
        self._until(lambda: not audit(redis, 0.3), 15.0, "an audit without findings")
        findings = [found.sentence for found in audit(redis, 0.5)]
        self.table["seconds to drain"] = round(now() - began, 1)
        hanging = self._unended()
        for listener in stage.listeners:
            self._until(lambda one=listener: one.stop() == 0, 1.0, "the leaving of a listener")  # type: ignore[misc]
        self._judge(known, unknown, hanging, findings)

    def _refused(self) -> Counter[str]:
        return sum((one.refused for one in self._producers), Counter[str]())

    def _until(self, look: Callable[[], object], seconds: float, what: str) -> None:
        try:
            until(look, seconds, what)
        except AssertionError as error:
            self.wrong.append(str(error))

    def _unended(self) -> list[str]:
        redis = self._stage.control.connections
        (known,) = redis.read(("ZRANGE", keys.tasks(QUEUE), 0, -1))
        found = (
            redis.read(*[("HGET", keys.task(task), "status") for task in known]) if known else []
        )
        return [task for task, status in zip(known, found, strict=True) if status not in ENDED]

    def _judge(
        self, known: dict[str, float], unknown: list[str], hanging: list[str], findings: list[str]
    ) -> None:
        stage = self._stage
        stage.ledger.read()
        runs = stage.ledger.runs
        starts = Counter(run.task for run in runs)
        ends = {task: stage.control.get_task(task) for task in {*known, *starts}}
        lost = [task for task in known if ends[task].status is None]
        doubled = [task for task, count in starts.items() if count > 1]
        twice = [task for task in starts if _ends_of(stage.control, task) > 1]
        failed = [task for task in ends if ends[task].status in ("failed", "cancelled")]
        untold = [
            run.task
            for run in runs
            if run.ended and ends[run.task].status not in ("complete", None)
        ]
        by_kind = Counter(one.kind for one in stage.failovers)
        self.table = {
            "failovers": len(stage.failovers),
            **{f"  {kind}": by_kind[kind] for kind in FAULTS},
            "tasks running in each, at least": min(one.running for one in stage.failovers),
            "seconds until another was named": _range(one.named for one in stage.failovers),
            "seconds until all had left": _range(one.left for one in stage.failovers),
            "acknowledged": len(known),
            "answer unknown": f"{len(unknown)}, of which {sum(task in starts for task in unknown)} ran",
            "refused to producers": dict(self._refused()),
            "longest call of a producer": f"{max(one.longest for one in self._producers):.1f} s",
            "starts": len(runs),
            "lost": len(lost),
            "started twice": len(doubled),
            "ended twice": len(twice),
            "ended otherwise": len(failed),
            "ended, and not so in Redis": len(untold),
            "without an end": len(hanging),
            "findings of the doctor": len(findings),
            **self.table,
        }
        for what, tasks in (("lost", lost), ("started twice", doubled), ("ended twice", twice)):
            for task in tasks:
                self._tell(what, task, known.get(task))
        self.wrong += [
            f"task {task} has {ends[task].status}: {ends[task].error}" for task in failed
        ]
        self.wrong += [f"task {task} has come to its end, and not so in Redis" for task in untold]
        self.wrong += [f"task {task} has no end" for task in hanging]
        self.wrong += findings

    def _tell(self, what: str, task: str, accepted: float | None) -> None:
        """Write what became of a task into the log, by whose clock all times are."""
        log = self._stage.log
        log(f"{what}: {task}")
        if accepted is not None:
            log("    accepted", accepted)
        for run in self._stage.ledger.runs_of(task):
            log(f"    attempt {run.attempt} began on {run.node}", run.began)


def _ends_of(client: Client, task: str) -> int:
    """Return how many ends of a task Redis knows of."""
    (texts,) = client.connections.read(("LRANGE", keys.history(task), 0, -1))
    return sum(json.loads(text)["event"] in ENDED for text in texts)


def _range(values: Iterable[float]) -> str:
    some = sorted(values)
    return f"{some[0]:.1f} to {some[-1]:.1f}, half of them within {some[len(some) // 2]:.1f}"


def _sleep_until(at: float) -> None:
    time.sleep(max(at - now(), 0.0))


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
    with (
        contextlib.ExitStack() as stack,
        watched(
            directory, REPLICAS, SENTINELS, *chosen.options, by_wire=True, down_after=DOWN_AFTER
        ) as service,
    ):
        stage = Stage(service, chosen, directory, seed, pace)
        for programs in stage.hosts.values():
            stack.enter_context(programs)
        stack.callback(stage.control.close)
        run = Failovers(stage, seed)
        run.run(seconds, failovers, tasks)
    if chosen.is_safe:
        run.wrong += [
            f"{what}: {run.table[what]}"
            for what in ("lost", "started twice", "ended twice")
            if run.table[what]
        ]
    return run


def report(run: Failovers) -> str:
    """Return the table, and what is wrong."""
    lines = [f"{name:35} {value}" for name, value in run.table.items()]
    return "\n".join([*lines, *[f"WRONG: {sentence}" for sentence in run.wrong]])


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--variant", choices=VARIANTS, default="replicas")
    parser.add_argument("--seconds", type=float, default=1200.0)
    parser.add_argument("--failovers", type=int, default=30)
    parser.add_argument("--tasks", type=int, default=200, help="go on until so many have begun")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000))
    parser.add_argument("--directory", type=Path, help="where everything is written; must be empty")
    given = parser.parse_args(argv)
    logging.getLogger("blueque").disabled = True
    with contextlib.ExitStack() as stack:
        directory = given.directory or Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="blueque-failovers-"))
        )
        directory.mkdir(exist_ok=True)
        print(f"variant {given.variant}, seed {given.seed}", flush=True)
        run = fail_over(
            given.variant, directory, given.seed, given.seconds, given.failovers, given.tasks
        )
        print(report(run), flush=True)
        if run.wrong:
            print((directory / "failovers.log").read_text())
    return bool(run.wrong)


if __name__ == "__main__":
    sys.exit(main())
