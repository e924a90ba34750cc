"""Cases of waiting: many listeners, an idle listener, and a listener of a hundred queues."""

from __future__ import annotations

import contextlib
import functools
import random
import sys
import time
from collections.abc import Callable, Iterator

import psutil

from bench import cpu, crowd, systems
from bench.rounds import percentile
from bench.setting import Bench, Outcome, Values, open_stage, reason
from bench.stage import LINE, Program, RunFailed, Stage, family

READY_TIMEOUT = 60.0  # seconds
SETTLE = 3.0  # seconds after which everything that happens once has happened
WINDOW = 10.0  # seconds of idling; a listener beats once in it
MINUTE = 60.0  # seconds of idling; its rarer looks fall in it, too
MIB = 2**20


def many_listeners(bench: Bench) -> Outcome:
    outcome = bench.outcome()
    count, tasks = bench.scaled(500, 10), bench.scaled(200, 10)
    with open_stage("--maxclients", "20000") as stage, _crowd(stage, count) as program:
        for _ in range(bench.rounds):
            bench.quiet.wait()
            bench.one(outcome, "blueque", lambda: _trickle(stage, program, tasks, outcome.samples))
        if "blueque" in outcome.failed:
            return outcome
        before = stage.commands()
        time.sleep(WINDOW + 1)
        outcome.add("blueque", {"commands": (stage.commands() - before - 1) / (WINDOW + 1) / count})
    outcome.rows["blueque"]["p99"] = [percentile(outcome.samples["blueque"], 99)]
    outcome.facts["listeners"] = f"{count:,}"
    return outcome


@contextlib.contextmanager
def _crowd(stage: Stage, count: int) -> Iterator[Program]:
    command = [
        sys.executable,
        "-m",
        "bench.crowd",
        stage.url,
        str(count),
        str(stage.directory / "crowd"),
    ]
    with stage.workers(systems.OURS, [command]) as programs:
        deadline = time.monotonic() + READY_TIMEOUT
        while not _said(stage):
            if time.monotonic() > deadline or programs[0].poll() is not None:
                raise RunFailed(
                    f"{count} listeners were not ready within {READY_TIMEOUT:.0f} s: {stage.complaint()}"
                )
            time.sleep(0.05)
        yield programs[0]


def _said(stage: Stage) -> list[str]:
    heard = stage.directory / "crowd"
    text = heard.read_text() if heard.exists() else ""
    return text[: text.rfind("\n") + 1].splitlines()


def _trickle(stage: Stage, program: Program, count: int, samples: dict[str, list[float]]) -> Values:
    queue = stage.client.get_queue(crowd.QUEUE)
    heard = len(_said(stage))
    for _ in range(count):
        queue.enqueue(repr(time.time()))
        time.sleep(random.uniform(0.005, 0.025))
    deadline = time.monotonic() + 20
    while len(taken := _taken(_said(stage)[heard:])) < count:
        if time.monotonic() > deadline or program.poll() is not None:
            raise RunFailed(f"only {len(taken)} of {count} tasks were taken")
        time.sleep(0.05)
    time.sleep(0.5)  # who was woken for nothing tells a little later
    woken = sum(int(line.split()[1]) for line in _said(stage)[heard:])
    samples.setdefault("blueque", []).extend(taken)
    return {"wakeups": woken / count, "p50": percentile(taken, 50)}


def _taken(lines: list[str]) -> list[float]:
    """Return the milliseconds that each task took to be taken."""
    return [1000 * float(line.split()[0]) for line in lines if not line.startswith("0 ")]


def idle(bench: Bench) -> Outcome:
    """All at once, each on a Redis of its own: one window is as long for all, and there is nothing
    to disturb.
    """
    outcome = bench.outcome()
    window = WINDOW if bench.scale >= 1 else max(WINDOW * bench.scale, 1.0)
    with contextlib.ExitStack() as stack:
        waiting: dict[str, tuple[Stage, list[Program]]] = {}
        for system in bench.systems:
            stage = stack.enter_context(open_stage())
            commands = system.idle(stage.place)
            if system.key == "blueque":
                commands = [
                    *commands,
                    [sys.executable, "-m", "blueque.cli.scheduler", "--redis-url", stage.url],
                ]
            try:
                waiting[system.key] = stage, stack.enter_context(stage.workers(system, commands))
            except OSError as error:
                outcome.failed[system.key] = reason(error)
        time.sleep(SETTLE + READY_TIMEOUT / 20)
        for _ in range(bench.rounds):
            bench.quiet.wait()
            looks = {key: _Look(stage, programs) for key, (stage, programs) in waiting.items()}
            time.sleep(window)
            for key, look in looks.items():
                bench.one(outcome, key, functools.partial(look.cost, is_ours=key == "blueque"))
        before = {key: waiting[key][0].commands() for key in outcome.rows}
        time.sleep(window * MINUTE / WINDOW)
        for key, commands in before.items():
            outcome.add(key, {"minute": float(waiting[key][0].commands() - commands - 1)})
    return outcome


class _Look:
    """What some programs had cost until now."""

    def __init__(self, stage: Stage, programs: list[Program]) -> None:
        self.stage, self.programs = stage, programs
        self.commands = stage.commands()
        self.seconds = _cpu_seconds(programs)
        self.at = time.monotonic()

    def cost(self, is_ours: bool) -> Values:
        """Return what they have cost since then, a second, and the memory that is theirs alone."""
        if any(program.poll() is not None for program in self.programs):
            raise RunFailed(f"a worker has ended: {self.stage.complaint()}")
        passed = time.monotonic() - self.at
        values = {
            "commands": (self.stage.commands() - self.commands - 1) / passed,
            "cpu": 100 * (_cpu_seconds(self.programs) - self.seconds) / passed,
            "uss": sum(_uss(member) for member in family(self.programs)) / MIB,
        }
        if is_ours:  # the listener is a child of the master, its warm child one of it
            slots = psutil.Process(self.programs[0].pid).children()
            members = [
                member for slot in slots for member in (slot, *slot.children(recursive=True))
            ]
            values["listener_uss"] = sum(_uss(member) for member in members) / MIB
            values["processes"] = float(len(members))
        return values


def _cpu_seconds(programs: list[Program]) -> float:
    return sum(cpu.of_process(member.pid) for member in family(programs))


def _uss(member: psutil.Process) -> int:
    try:
        return int(member.memory_full_info().uss)
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return 0


def hundred_queues(bench: Bench) -> Outcome:
    """A listener of one queue and a listener of a hundred, each on a Redis of its own, in turn."""
    outcome = Outcome()
    names = {"1": ["many.0"], "100": [f"many.{number}" for number in range(100)]}
    with contextlib.ExitStack() as stack:
        stages: dict[str, Stage] = {}
        runs: dict[str, Callable[[], Values]] = {}
        for row, queues in names.items():
            stage = stages[row] = stack.enter_context(open_stage())
            programs = stack.enter_context(
                stage.workers(systems.OURS, [systems.listener(stage.place, 1, *queues)])
            )
            runs[row] = functools.partial(
                _pick_up, outcome, row, stage, programs, queues, bench.scaled(20, 3)
            )
        bench.in_turn(outcome, runs)
        before = {row: stage.commands() for row, stage in stages.items()}
        began = time.monotonic()
        time.sleep(WINDOW if bench.scale >= 1 else 1.0)
        for row, stage in stages.items():
            if row not in outcome.failed:
                seconds = time.monotonic() - began
                outcome.add(row, {"commands": (stage.commands() - before[row] - 1) / seconds})
                outcome.rows[row]["p99"] = [percentile(outcome.samples[row], 99)]
    return outcome


def _pick_up(
    outcome: Outcome, row: str, stage: Stage, programs: list[Program], queues: list[str], count: int
) -> Values:
    delays = []
    for _ in range(count + 2):
        time.sleep(random.uniform(0.05, 0.12))
        done = stage.done()
        called = time.time()
        stage.client.get_queue(random.choice(queues)).enqueue("x" * 100)
        stage.wait_done(done + 1, programs)
        delays.append(1000 * (float(stage.ledger.read_bytes()[-LINE:]) - called))
    outcome.samples.setdefault(row, []).extend(delays[2:])
    return {"p50": percentile(delays[2:], 50)}
