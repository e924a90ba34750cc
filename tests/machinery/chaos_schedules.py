"""Schedules of every ten seconds, many of them with hundreds of planned times to catch up, while
schedulers and listeners, whose clocks are an hour apart, are killed again and again.

`PYTHONPATH=tests:tests/machinery python tests/machinery/chaos_schedules.py [--schedulers 10]
[--listeners 100] [--schedules 60] [--seconds 120] [--seed N] [--directory DIR]` prints what happened,
and exits 1 when a planned time has come to no task and no reason, or to two, or too early.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from running import Listener, Program, Programs, is_there, patched
from schedule_judge import wrong_history

from blueque import Client, WrongSchedule
from blueque.model import keys
from blueque.model.ids import id_of_occurrence
from blueque.model.recurrence import Rule
from blueque.model.schedule import Occurrence
from blueque.queries import schedules
from blueque.system.embedded_redis import running_server

QUEUE = "reports"
EVERY = 10  # seconds between two planned times
SLOTS = 10  # listeners of one master
CLOCKS = (0.0, 3600.0, 0.0, -3600.0)  # by which the clocks of processes are ahead, in turn
BETWEEN_KILLS = (0.2, 0.8)  # seconds
BETWEEN_WAVES = 2.0  # seconds between two new schedules
DRAIN = 120.0  # seconds in which all that is due comes, and all tasks end

# overlap, catch_up, and how many planned times have passed before anything fires
POLICIES = [
    ("allow", "all", 40),
    ("skip", "last", 300),
    ("queue", "last", 200),
    ("allow", "none", 100),
    ("skip", "none", 1500),
]

# By a clock that is not shifted.
WORK = """
    import os
    import time

    ledger = os.open("ledger", os.O_WRONLY | os.O_CREAT | os.O_APPEND)


    def run(task):
        at = time.clock_gettime(time.CLOCK_REALTIME)
        os.write(ledger, f"{task.id} {task.planned.timestamp():.0f} {at:.3f}\\n".encode())
        time.sleep(task.parameters["nap"])
"""


class Sizes(NamedTuple):
    """schedules: at the beginning. seconds: of kills. naps: how long tasks take, at random; the last
    is left out if they may run at the same time.
    """

    schedulers: int
    listeners: int
    schedules: int
    seconds: float
    naps: Sequence[float] = (0.0, 0.1, 0.3)


class Crew:
    """The schedulers and the masters, of which some process is killed now and then."""

    def __init__(self, programs: Programs, sizes: Sizes, chance: random.Random) -> None:
        self._programs, self._random = programs, chance
        self._slots = [
            min(SLOTS, sizes.listeners - begin) for begin in range(0, sizes.listeners, SLOTS)
        ]
        self._listeners: list[Listener] = [
            self._listener(place, True) for place in range(len(self._slots))
        ]
        self._schedulers: list[Program] = [
            self._scheduler(place) for place in range(sizes.schedulers)
        ]
        self._next = time.monotonic() + 1.0
        self.kills: Counter[str] = Counter()

    def _environ(self, place: int) -> dict[str, str]:
        # All that comes of a schedule stays in its list.
        return patched({"model.schedule.KEPT": 1_000_000}, ahead=CLOCKS[place % len(CLOCKS)])

    def _listener(self, place: int, is_awaited: bool = False) -> Listener:
        return self._programs.listener(
            "work:run",
            "--beat",
            "1s",
            "--reuse",
            "100",
            queue=QUEUE,
            slots=self._slots[place],
            is_awaited=is_awaited,
            environ=self._environ(place + 1),
        )

    def _scheduler(self, place: int) -> Program:
        return self._programs.scheduler(environ=self._environ(place))

    def step(self) -> None:
        """Kill a process if it is time."""
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + self._random.uniform(*BETWEEN_KILLS)
        kind = self._random.choice([*["a listener"] * 3, "a master", "a scheduler"])
        some: Sequence[Program] = self._schedulers if kind == "a scheduler" else self._listeners
        pids = [program.pid for program in some]
        if kind == "a listener":
            pids = [pid for listener in self._listeners for pid in listener.slots()]
        if pids and is_there(pid := self._random.choice(pids)):
            os.kill(pid, signal.SIGKILL)
            self.kills[kind] += 1
        self.mend()

    def mend(self) -> None:
        """Start again what was killed."""
        for place, listener in enumerate(self._listeners):
            if not listener.is_running:
                self._listeners[place] = self._listener(place)
        for place, scheduler in enumerate(self._schedulers):
            if not scheduler.is_running:
                self._schedulers[place] = self._scheduler(place)


class People:
    """Those who make schedules, pause and trigger them."""

    def __init__(self, client: Client, sizes: Sizes, chance: random.Random) -> None:
        self._client, self._naps, self._random = client, sizes.naps, chance
        self.begun: dict[str, int] = {}  # name -> the first planned time
        self.made: set[str] = set()  # tasks that were triggered
        self._next = time.monotonic()

    def step(self) -> None:
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + BETWEEN_WAVES
        self.make()
        name = self._random.choice([*self.begun])
        schedule = self._client.get_schedule(name)
        try:
            what = self._random.choice(["trigger", "pause", "pause and catch up"])
            if what == "trigger":
                self.made.add(schedule.trigger())
            else:
                schedule.pause("ann")
                schedule.resume(catch_up=what != "pause")
        except WrongSchedule:
            return

    def make(self) -> None:
        """Make a schedule of which some planned times have passed, and nothing has come."""
        number = len(self.begun)
        overlap, catch_up, missed = POLICIES[number % len(POLICIES)]
        name, redis = f"s{number}", self._client.connections
        naps = self._naps[:-1] if overlap == "allow" else self._naps
        given: dict[str, Any] = {"parameters": {"nap": self._random.choice(naps)}}
        # Nothing is due before it is paused.
        later = time.time() + 3600
        schedule = self._client.set_schedule(
            name,
            queue=QUEUE,
            every=EVERY,
            start=later,
            overlap=overlap,
            catch_up=catch_up,
            window="30d",
            **given,
        )
        schedule.pause("ann")
        clock, _ = redis.read(("TIME",), ("HDEL", keys.schedule(name), "start"))
        begin = (int(clock[0]) // EVERY - missed) * EVERY
        self.begun[name] = begin
        redis.read(("HSET", keys.schedule(name), "last", begin - 1, "planned", begin, "at", begin))
        schedule.resume(catch_up=True)


class Judgement:
    """What has come of the planned times."""

    def __init__(self, client: Client, people: People, ledger: Path) -> None:
        self._client = client
        self.wrong: list[str] = []
        self.count: Counter[str] = Counter()
        expected = set(people.made)
        for name, begin in people.begun.items():
            expected |= self._judge(name, begin)
        redis = client.connections
        (known,) = redis.read(("ZRANGE", keys.tasks(QUEUE), 0, -1))
        self.wrong += [f"task {task} is of no planned time" for task in {*known} - expected]
        self.wrong += [f"task {task} is not there" for task in expected - {*known}]
        self._judge_tasks(known, ledger)

    def _judge(self, name: str, begin: int) -> set[str]:
        """Return the tasks that there should be of a schedule."""
        record = schedules.records(self._client.connections, [name])[0]
        assert isinstance(record, dict)
        history = schedules.occurrences(self._client.connections, name, 10_000_000)[::-1]
        wrong = wrong_history(Rule(every=EVERY), begin, record, history, name)
        if wrong is not None:
            self.wrong.append(f"schedule {name}: {wrong}")
        for one in history:
            self.count[_kind(one)] += one.times or 1
        return {id_of_occurrence(name, one.planned) for one in history if one.what == "made"}

    def _judge_tasks(self, known: Sequence[str], ledger: Path) -> None:
        begun: Counter[str] = Counter()
        for line in ledger.read_text().splitlines():
            task, planned, at = line.split()
            begun[task] += 1
            if float(at) < float(planned):
                self.wrong.append(f"task {task} has begun {float(planned) - float(at):g} s early")
        self.wrong += [f"task {task} has begun twice" for task in begun if begun[task] > 1]
        for task in known:
            status = self._client.get_task(task).status
            self.count[f"task {status}"] += 1
            if status == "complete" and task not in begun:
                self.wrong.append(f"task {task} is complete, and has not begun")


def _kind(one: Occurrence) -> str:
    return one.what if one.why is None else f"{one.what} ({one.why})"


def chaos(sizes: Sizes, seed: int, directory: Path) -> tuple[list[str], str]:
    """Have it all happen. Return what is wrong, and a report."""
    chance = random.Random(seed)
    with running_server() as server, Programs(server.url, directory) as programs:
        programs.write(WORK)
        people = People(programs.client, sizes, chance)
        for _ in range(sizes.schedules):
            people.make()
        began = time.monotonic()
        crew = Crew(programs, sizes, chance)
        while time.monotonic() - began < sizes.seconds:
            crew.step()
            people.step()
            time.sleep(0.01)
        crew.mend()
        left = _drain(programs.client, people)
        took = time.monotonic() - began
        found = Judgement(programs.client, people, directory / "ledger")
        wrong = [*left, *found.wrong]
        kills = ", ".join(f"{count} x {kind}" for kind, count in sorted(crew.kills.items()))
        counts = ", ".join(f"{count:,} {kind}" for kind, count in sorted(found.count.items()))
        return wrong, (
            f"seed {seed}: {sizes.schedulers} schedulers, {sizes.listeners} listeners, "
            f"{len(people.begun)} schedules, {took:.1f} s; killed: {kills}; {counts}"
        )


def _drain(client: Client, people: People) -> list[str]:
    """Wait until all that is due has come, and all tasks have ended. Return what has not."""
    redis, names = client.connections, [*people.begun]
    deadline, stop = time.monotonic() + DRAIN, int(time.time())
    left: list[str] = names
    while left and time.monotonic() < deadline:
        found = zip(names, schedules.records(redis, names), strict=True)
        left = [
            f"schedule {name}, whose next time is {record['planned']}, is behind {stop}"
            for name, record in found
            if isinstance(record, dict) and int(record["planned"]) <= stop
        ]
        time.sleep(0.05)
    for name in names:
        client.get_schedule(name).pause("ann", "the end")
    while not left and time.monotonic() < deadline:
        (tasks,) = redis.read(("ZRANGE", keys.tasks(QUEUE), 0, -1))
        statuses = redis.read(*[("HGET", keys.task(task), "status") for task in tasks])
        if {*statuses} <= {"complete", "failed", "cancelled"}:
            return []
        time.sleep(0.1)
    return left or [f"not all tasks have ended: {Counter(statuses)}"]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--schedulers", type=int, default=10)
    parser.add_argument("--listeners", type=int, default=100)
    parser.add_argument("--schedules", type=int, default=60)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(2), "big"))
    parser.add_argument("--directory", type=Path)
    options = parser.parse_args()
    directory = options.directory or Path(tempfile.mkdtemp(prefix="blueque-schedules."))
    directory.mkdir(exist_ok=True)
    sizes = Sizes(
        options.schedulers,
        options.listeners,
        options.schedules,
        options.seconds,
        (0.0, 0.1, 0.3, 12.0),  # the last takes longer than until the next planned time
    )
    wrong, report = chaos(sizes, options.seed, directory)
    print(report, *wrong[:20], sep="\n")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
