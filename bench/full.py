"""Cases of a Redis that is full: a drain beside a million complete tasks, and a scheduler with a
million tasks that are due tomorrow.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import sys
import time
import uuid
from collections.abc import Callable, Iterator

from bench import cpu, systems
from bench.comparing import MICRO, WARM_UP, open_seat, values_of
from bench.looking import complete_tasks, send_all
from bench.rounds import percentile, rotated
from bench.setting import Bench, Outcome, Values, open_stage
from bench.stage import Program, RunFailed, Stage
from bench.systems import QUEUE
from bench.working import AT_A_TIME
from blueque.connection.redis import Command
from blueque.model import keys

MANY = 1_000_000  # tasks
BLOCKS, BLOCK = 8, 50  # of a round; tasks of each
DUE, SOON = 5000, 1.0  # tasks that get due together, so many seconds after they were scheduled
DAY = 86400.0
LONGEST = 60.0  # seconds that putting them in line may take
POLL = 0.01  # seconds
WINDOW = 10.0  # seconds in which the scheduler has nothing to do
LATER, OTHER = "later", "other"  # queues: of scheduled tasks, and of a producer beside them


def drain(bench: Bench) -> Outcome:
    """Two listeners in turn, in blocks of a fraction of a second, each on a Redis of its own."""
    outcome, count = Outcome(), bench.scaled(MANY, 1000)
    with contextlib.ExitStack() as stack:
        seats = {
            row: stack.enter_context(open_seat(systems.OURS, "bulk", AT_A_TIME))
            for row in ("empty", "full")
        }
        send_all(seats["full"].stage, complete_tasks(QUEUE, count, time.time()))
        for seat in seats.values():
            seat.block(WARM_UP)
        for number in range(bench.rounds):
            bench.quiet.wait()
            for seat in seats.values():
                seat.settle()
                seat.answers.clear()
            before = {row: seat.used() for row, seat in seats.items()}
            for block in range(bench.scaled(BLOCKS, 2)):
                for row in rotated(list(seats), number + block):
                    seat = seats[row]
                    seat.answers.append(seat.block(bench.scaled(BLOCK, 5)))
            for row, seat in seats.items():
                seat.settle()
                outcome.add(row, values_of(seat, before[row]))
    return outcome


def scheduler(bench: Bench) -> Outcome:
    """Two schedulers in turn, each on a Redis of its own."""
    outcome = Outcome()
    with contextlib.ExitStack() as stack:
        runs = {}
        for row, count in {"few": DUE, "many": MANY}.items():
            stage = stack.enter_context(open_stage())
            _schedule(stage, bench.scaled(count, 100))
            command = [sys.executable, "-m", "blueque.cli.scheduler", "--redis-url", stage.url]
            (program,) = stack.enter_context(stage.workers(systems.OURS, [command]))
            _wait_promoted(stage, program, 1, _due(stage, 1, SOON))  # it has begun
            runs[row] = functools.partial(_promotion, bench, stage, program)
        bench.in_turn(outcome, runs)
    return outcome


def _schedule(stage: Stage, count: int) -> None:
    """Put so many tasks into Redis that are due tomorrow, as `schedule` does."""
    now = time.time()

    def commands() -> Iterator[Command]:
        yield ("ZADD", keys.QUEUES, 0, LATER)
        for _ in range(count):
            task = str(uuid.uuid4())
            times = ("created", now, "updated", now, "eta", now + DAY)
            yield ("HSET", keys.task(task), "status", "scheduled", "queue", LATER, *times)
            yield ("ZADD", keys.scheduled(LATER), now + DAY, task)
            yield ("ZADD", keys.tasks(LATER), now, task)

    send_all(stage, commands())


def _promotion(bench: Bench, stage: Stage, program: Program) -> Values:
    """Let it idle; then have tasks be due, and once more while another program enqueues."""
    count, window = bench.scaled(DUE, 20), max(WINDOW * min(bench.scale, 1.0), 0.5)
    commands, used = stage.commands(), cpu.of_process(program.pid)
    time.sleep(window)
    idle: Values = {
        "commands": (stage.commands() - commands - 1) / window,
        "idle": 100 * (cpu.of_process(program.pid) - used) / window,
    }
    eta = _due(stage, count, SOON)
    spent = stage.cpu_seconds() + cpu.of_process(program.pid)
    took = _wait_promoted(stage, program, count, eta)
    spent = stage.cpu_seconds() + cpu.of_process(program.pid) - spent
    eta, latencies = _due(stage, count, SOON), list[float]()
    queue = stage.client.get_queue(OTHER)

    def produce() -> None:
        began = time.perf_counter()
        queue.enqueue("x" * 100)
        if time.time() >= eta:
            latencies.append(1000 * (time.perf_counter() - began))

    _wait_promoted(stage, program, count, eta, produce)
    stage.redis.read(("DEL", keys.pending(OTHER)))
    return {
        **idle,
        "rate": count / took,
        "cost": MICRO * spent / count,
        "p50": percentile(latencies, 50),
        "p99": percentile(latencies, 99),
    }


def _due(stage: Stage, count: int, seconds: float) -> float:
    """Schedule so many tasks for one time, and return it."""
    eta = time.time() + seconds
    stage.client.get_queue(LATER).schedule_many(itertools.repeat("x" * 100, count), eta)
    return eta


def _wait_promoted(
    stage: Stage,
    program: Program,
    count: int,
    eta: float,
    meanwhile: Callable[[], object] = lambda: time.sleep(POLL),
) -> float:
    """Wait until so many are in line, and take them out. Return how many seconds after the eta."""
    while stage.redis.read(("LLEN", keys.pending(LATER)))[0] < count:
        if program.poll() is not None or time.time() > eta + LONGEST:
            raise RunFailed(f"the scheduler has not put them in line: {stage.complaint()}")
        meanwhile()
    seconds = time.time() - eta
    stage.redis.read(("DEL", keys.pending(LATER)))
    return seconds
