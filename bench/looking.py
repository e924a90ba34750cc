"""Cases of reading: `blueque status` with few and with many tasks in Redis, and the help of verbs,
which needs none.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import subprocess
import sys
import time
import uuid
from collections.abc import Iterable, Iterator

from bench.rounds import median, percentile
from bench.setting import Bench, Outcome, Values, open_stage
from bench.stage import RunFailed, Stage
from bench.venvs import ROOT, clean_environment
from blueque.cli.main import VERBS
from blueque.connection.redis import Command
from blueque.model import keys
from blueque.protocol import membership

QUEUES, LISTENERS, RUNNING = 200, 2, 6  # listeners and running tasks are of each queue
MANY_QUEUES = [1000, 10_000]
AT_WORK = 100  # one queue of so many has a listener, and tasks that wait and run
LOOKS = 20  # and as many starts of a program
STARTS = 5  # of each verb, to find the slowest
AT_ONCE = 4000  # commands in one write


def overview(bench: Bench) -> Outcome:
    """The same look at two servers, in turn: in a program that runs already, and the program as a
    whole.
    """
    outcome, looks = Outcome(), bench.scaled(LOOKS, 2)
    with contextlib.ExitStack() as stack:
        runs = {}
        for row, count in {
            "few": bench.scaled(10_000, QUEUES),
            "many": bench.scaled(1_000_000, QUEUES),
        }.items():
            stage = stack.enter_context(open_stage())
            _fill(stage, max(count // QUEUES, 1))
            runs[row] = functools.partial(_look, stage, looks)
        bench.in_turn(outcome, runs)
    return outcome


def many_queues(bench: Bench) -> Outcome:
    """The same with many queues, most of which have nothing but complete tasks."""
    outcome, looks = Outcome(), bench.scaled(LOOKS // 4, 2)
    with contextlib.ExitStack() as stack:
        runs = {}
        for queues in MANY_QUEUES:
            stage = stack.enter_context(open_stage())
            count = bench.scaled(queues, AT_WORK)
            _fill_queues(stage, count)
            outcome.add(str(queues), {"queues": float(count)})
            runs[str(queues)] = functools.partial(_look, stage, looks)
        bench.in_turn(outcome, runs)
    return outcome


def help_of_verbs(bench: Bench, verbs: Iterable[str] = tuple(VERBS)) -> Outcome:
    """The imports of a producer, the help of `blueque`, and that of the verb that takes longest,
    beside what Python and click take without us.
    """
    outcome, starts = Outcome(), bench.scaled(LOOKS, 2)
    took = {
        verb: min(_starts([*_PROGRAM, verb, "--help"], bench.scaled(STARTS, 1))) for verb in verbs
    }
    outcome.facts["slowest"] = slowest = max(took, key=lambda verb: took[verb])
    commands = {
        "pass": [sys.executable, "-c", "pass"],
        "click": [sys.executable, "-c", "import click"],
        "import": [sys.executable, "-c", "import blueque"],
        "producer": [sys.executable, "-c", "from blueque import Client, Queue"],
        "help": [*_PROGRAM, "--help"],
        "verb": [*_PROGRAM, slowest, "--help"],
    }

    def run(command: list[str]) -> Values:
        return {"p50": median(_starts(command, starts))}

    bench.in_turn(
        outcome, {row: functools.partial(run, command) for row, command in commands.items()}
    )
    return outcome


# As bin/blueque starts it.
_PROGRAM = [sys.executable, "-P", "-m", "blueque.cli.main"]


def _look(stage: Stage, looks: int) -> Values:
    inspector = stage.client.get_inspector()
    inspector.overview()  # the first one connects
    took = []
    for _ in range(looks):
        began = time.perf_counter()
        inspector.overview()
        took.append(1000 * (time.perf_counter() - began))
    whole = _starts([*_PROGRAM, "status"], looks, BLUEQUE_REDIS_URL=stage.url)
    return {
        "p50": percentile(took, 50),
        "p95": percentile(took, 95),
        "whole": percentile(whole, 50),
    }


def _starts(command: list[str], times: int, **more: str) -> list[float]:
    """Run a program so often, with its output into a pipe, and return how many milliseconds each
    run has taken.
    """
    environment = {**clean_environment(), "PYTHONPATH": str(ROOT), **more}
    took = []
    for _ in range(times):
        began = time.perf_counter()
        done = subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )
        took.append(1000 * (time.perf_counter() - began))
        if done.returncode:
            raise RunFailed(
                f"{' '.join(command[-2:])}: exit {done.returncode}: {done.stderr.strip()[-200:]}"
            )
    return took


def _fill(stage: Stage, each: int) -> None:
    """Put so many tasks into each queue: three fifths complete, one failed, one pending; and some
    that run.
    """
    now = time.time()
    for number in range(QUEUES):
        queue = f"queue.{number}"
        nodes = [f"host-{number % 20}_{number * LISTENERS + one}" for one in range(LISTENERS)]
        for node in nodes:
            register(stage, queue, node, now)
        send_all(stage, tasks(queue, nodes[0], each, now))


def _fill_queues(stage: Stage, count: int) -> None:
    now = time.time()
    names = [f"tenant.{number}" for number in range(count)]
    send_all(stage, (command for queue in names for command in _done(queue, now)))
    for number, queue in enumerate(names[::AT_WORK]):
        node = f"host-{number % 20}_{number + 1}"
        register(stage, queue, node, now)
        send_all(stage, tasks(queue, node, 5, now))


def register(stage: Stage, queue: str, node: str, now: float) -> None:
    facts: dict[str, str | int | float] = {"beat_every": 10, "lease": 86400, "version": "2"}
    membership.register(stage.redis, queue, node, "i", facts, now)


def send_all(stage: Stage, commands: Iterable[Command]) -> None:
    """Send any number of commands, some thousands in one write."""
    left = iter(commands)
    while some := list(itertools.islice(left, AT_ONCE)):
        stage.redis.read(*some)


def _done(queue: str, now: float) -> Iterator[Command]:
    """Yield the commands that make a queue with two complete tasks."""
    yield ("ZADD", keys.QUEUES, 0, queue)
    yield ("HSET", keys.totals(queue), "complete", 2)
    yield from complete_tasks(queue, 2, now)


def complete_tasks(queue: str, count: int, now: float) -> Iterator[Command]:
    """Yield the commands that make so many complete tasks."""
    for _ in range(count):
        task = str(uuid.uuid4())
        yield (
            "HSET",
            keys.task(task),
            "status",
            "complete",
            *_usual(queue, now),
            *_ended("h_1", now),
        )
        yield ("LPUSH", keys.complete(queue), task)
        yield ("ZADD", keys.tasks(queue), now - 90000, task)


def _usual(queue: str, now: float) -> tuple[str | float, ...]:
    """Return the fields that each task has."""
    times = ("created", now - 90000, "updated", now - 80000)
    return ("queue", queue, "parameters", '{"input": "a.mov"}', *times)


def _ended(node: str, now: float) -> tuple[str | float, ...]:
    """Return the fields that an attempt which has ended adds to those."""
    times = ("started", now - 7200, "finished", now - 7200)
    return ("node", node, "pid", 77, "attempt", 1, *times)


def tasks(
    queue: str, node: str, each: int, now: float, running: int = RUNNING
) -> Iterator[Command]:
    """Yield the commands that make so many tasks, and some that run."""
    usual, ended = _usual(queue, now), _ended(node, now)
    lists = {
        "complete": keys.complete(queue),
        "failed": keys.failed(queue),
        "pending": keys.pending(queue),
    }
    for number in range(each):
        status = ("complete", "complete", "complete", "failed", "pending")[number % 5]
        task = str(uuid.uuid4())
        yield (
            "HSET",
            keys.task(task),
            "status",
            status,
            *usual,
            *(() if status == "pending" else ended),
        )
        yield ("LPUSH", lists[status], task)
    for _ in range(running):
        task = str(uuid.uuid4())
        told = ("progress", "41/100 epochs", "progress_at", now)
        yield ("HSET", keys.task(task), "status", "started", *usual, *ended[:8], *told)
        yield ("SADD", keys.started(queue), keys.started_member(node, 77, task))
