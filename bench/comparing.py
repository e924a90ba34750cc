"""Cases of a comparison: what a task costs in processor time under two versions, and how fast it
goes.

In each round both sides start anew, each on a Redis of its own, and then take turns in blocks of a
fraction of a second, in
the order A B B A A B B A: other load on the machine slows both alike. The processor time of a side
is read when it has nothing to do, before its first block and after its last: no task is half
counted, and no start of a program is counted. Producers and their Redis are read before and after
each block, and the median block counts.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import psutil

from bench import cpu
from bench.load import Quiet
from bench.rounds import median, percentile, rotated
from bench.setting import FAILURES, Outcome, Values, open_stage, reason
from bench.stage import DRIVER_TIMEOUT, Program, RunFailed, Stage, last_line
from bench.systems import System
from bench.working import AT_A_TIME

MICRO = 1e6
REST = 0.08  # seconds in which a listener that has nothing to do uses no time
STILL = 0.0002  # seconds of processor time that do not count as use
SETTLE_TIMEOUT = 20.0  # seconds
WARM_UP = 40  # tasks
PAIRS = 4  # listeners of each side that idle at the same time
IDLE_WINDOW = 20.0  # seconds: two beats
SLOTS = (1, 2, 8)  # of listeners whose memory is measured
# Seconds without a task after which a slot has no more processes than it needs: a minute, two beats.
UNNEEDED = 80.0

Answer = dict[str, Any]


class Plan(NamedTuple):
    """What is measured, and how much of it. scale: sizes times this."""

    sides: Sequence[System]
    rounds: int
    scale: float
    quiet: Quiet

    def scaled(self, count: int, least: int) -> int:
        return max(int(count * self.scale), least)


class Comparison(NamedTuple):
    """A case. metrics: those beside the costs, with their words. unit: of the costs.

    cost: says how many times as much it is; worse, better: what that is called.
    """

    name: str
    title: str
    run: Callable[[Plan], Outcome]
    metrics: dict[str, str]
    unit: str = "us of CPU per task"
    cost: str = "a task costs {} times the CPU"
    worse: str = "slower"
    better: str = "faster"


class Seat:
    """A side in a round: its Redis, its driver, and its listener if it has one."""

    def __init__(
        self, side: System, stage: Stage, driver: Program, listener: Program | None
    ) -> None:
        self.side, self.stage, self.driver, self.listener = side, stage, driver, listener
        self.answers: list[Answer] = []

    def block(self, count: int) -> Answer:
        """Have the driver do so many, and their tasks run if there is a listener."""
        assert self.driver.stdin is not None and self.driver.stdout is not None
        before, used = self.stage.done(), self.stage.cpu_seconds()
        with contextlib.suppress(BrokenPipeError):  # it has ended, and gives no answer
            self.driver.stdin.write(b"%d\n" % count)
            self.driver.stdin.flush()
        if not select.select([self.driver.stdout], [], [], DRIVER_TIMEOUT)[0]:
            raise RunFailed(f"no answer within {DRIVER_TIMEOUT:.0f} s")
        line = self.driver.stdout.readline()
        if not line:
            assert self.driver.stderr is not None
            raise RunFailed(last_line(self.driver.stderr.read()) or "its driver has ended")
        answer: Answer = {**json.loads(line), "redis": self.stage.cpu_seconds() - used}
        if self.listener is not None:
            self.stage.wait_done(before + answer["tasks"], [self.listener])
            times = self.stage.times(before)
            answer["seconds"] = times[-1] - times[0]
        return answer

    def stay_on_core(self, number: int) -> None:
        """Have the driver and Redis share a core: where the kernel puts two that take turns changes
        what each call costs.
        """
        cores = sorted(os.sched_getaffinity(0))
        for pid in (self.driver.pid, self.stage.server.pid):
            os.sched_setaffinity(pid, {cores[number % len(cores)]})

    def used(self) -> Values:
        """Return the seconds of processor time that Redis and the listener have used."""
        redis = {"redis": self.stage.cpu_seconds()}
        if self.listener is None:
            return redis
        if self.listener.poll() is not None:
            raise RunFailed(f"a listener has ended: {self.stage.complaint()}")
        return {**cpu.of_listener(self.listener.pid), **redis}

    def memory(self) -> tuple[float, float]:
        """Return the KiB of memory that the slots have, and that their processes have. A page that n
        processes share counts as 1/n for each.
        """
        assert self.listener is not None
        slots = psutil.Process(self.listener.pid).children()
        processes = [child for slot in slots for child in slot.children(recursive=True)]
        return sum(map(_share, slots)), sum(map(_share, processes))

    def settle(self) -> None:
        """Wait until every task has ended, and the listener has reaped its process and forked the
        next one.
        """
        if self.listener is None:
            return
        deadline, inspector = time.monotonic() + SETTLE_TIMEOUT, self.stage.client.get_inspector()
        is_busy, used = True, self.used()
        while is_busy:
            if time.monotonic() > deadline:
                raise RunFailed(
                    f"the listener did not come to rest within {SETTLE_TIMEOUT:.0f} s: {self.stage.complaint()}"
                )
            time.sleep(REST)
            is_busy = any(
                any((line.counts.pending, line.counts.reserved, line.counts.started))
                for line in inspector.overview().lines
            )
            before, used = used, self.used()
            is_busy |= (
                used["listener"] + used["tasks"] - before["listener"] - before["tasks"] > STILL
            )


def enqueue(plan: Plan) -> Outcome:
    return _in_turn(plan, "one", plan.scaled(60, 2), plan.scaled(100, 10), 0)


def bulk(plan: Plan) -> Outcome:
    return _in_turn(plan, "bulk", plan.scaled(24, 2), plan.scaled(5000, 10), 0)


def drain(plan: Plan) -> Outcome:
    return _in_turn(plan, "bulk", plan.scaled(8, 2), plan.scaled(50, 5), AT_A_TIME)


def pickup(plan: Plan) -> Outcome:
    return _in_turn(plan, "pickup", plan.scaled(60, 4), 1, 1)


def idle(plan: Plan) -> Outcome:
    """Four listeners of each side at the same time, each on a Redis of its own, in windows of 20 s."""
    outcome, window = Outcome(), max(plan.scale, 0.05) * IDLE_WINDOW
    with contextlib.ExitStack() as stack:
        seats = [
            stack.enter_context(open_seat(side, "one", 1, "--hz", "1"))
            for _ in range(PAIRS)
            for side in plan.sides
        ]
        for seat in seats:
            seat.block(WARM_UP)
        for _ in range(-(-plan.rounds // PAIRS)):
            plan.quiet.wait()
            for seat in seats:
                seat.settle()
            before = [seat.used() for seat in seats]
            time.sleep(window)
            for seat, used in zip(seats, before, strict=True):
                outcome.add(seat.side.key, _costs(used, seat.used(), window / 60))
    return outcome


def memory(plan: Plan) -> Outcome:
    """Listeners of 1, 2 and 8 slots of each side at the same time, each on a Redis of its own, which
    have run tasks and have had none for more than a minute.
    """
    return _memory(plan, plan.scaled(WARM_UP, 2))


def unused(plan: Plan) -> Outcome:
    """The same of listeners that have never had a task."""
    return _memory(plan, 0)


def _memory(plan: Plan, tasks_each: int) -> Outcome:
    outcome, rest = Outcome(), max(plan.scale, 0.01) * UNNEEDED
    for _ in range(-(-plan.rounds // PAIRS)):
        with contextlib.ExitStack() as stack:
            seats = [
                {slots: stack.enter_context(open_seat(side, "bulk", slots)) for slots in SLOTS}
                for side in plan.sides
            ]
            for seat_of in seats if tasks_each else ():
                for slots, seat in seat_of.items():
                    seat.block(tasks_each * slots)
            time.sleep(rest)
            for seat_of in seats:
                used = {slots: seat_of[slots].memory() for slots in SLOTS}
                per_slot = {str(slots): sum(used[slots]) / slots for slots in SLOTS}
                listener, tasks = used[1]
                costs = {"listener": listener, "tasks": tasks, "all": listener + tasks}
                outcome.add(seat_of[1].side.key, {**costs, **per_slot})
    return outcome


COMPARISONS = [
    Comparison(
        "enqueue",
        "enqueue: one by one, producer and Redis on one core",
        enqueue,
        {"rate": "tasks/s"},
    ),
    Comparison("bulk", "bulk: enqueue_many", bulk, {"rate": "tasks/s"}),
    Comparison("drain", "drain: tasks that do nothing, two slots", drain, {"rate": "tasks/s"}),
    Comparison(
        "pickup",
        "pickup: one task at a time, one idle slot",
        pickup,
        {"p50": "p50 ms until it runs"},
    ),
    Comparison("idle", "idle: an empty listener, one slot", idle, {}, "us of CPU per minute"),
    Comparison(
        "memory",
        "memory: an empty listener, its slots with their processes",
        memory,
        {str(slots): f"of each of {slots} slots" for slots in SLOTS[1:]},
        "KiB of memory (PSS), one slot",
        "a slot takes {} times the memory",
        "larger",
        "smaller",
    ),
    Comparison(
        "unused",
        "unused: a listener that has never had a task, its slots with their processes",
        unused,
        {str(slots): f"of each of {slots} slots" for slots in SLOTS[1:]},
        "KiB of memory (PSS), one slot",
        "a slot takes {} times the memory",
        "larger",
        "smaller",
    ),
]


def measured(case: Comparison, plan: Plan) -> Outcome:
    """Run a case; if it fails, the outcome says why."""
    try:
        return case.run(plan)
    except FAILURES as error:
        return Outcome(failed={case.name: reason(error)})


def _in_turn(plan: Plan, command: str, blocks: int, count: int, slots: int) -> Outcome:
    """Have the drivers of both sides do so many blocks of so many tasks in each round."""
    outcome = Outcome()
    for number in range(plan.rounds):
        plan.quiet.wait()
        with contextlib.ExitStack() as stack:
            seats = [stack.enter_context(open_seat(side, command, slots)) for side in plan.sides]
            for seat in seats:
                if command == "one":
                    seat.stay_on_core(number)
                seat.block(WARM_UP if command != "pickup" else 3)
                seat.settle()
            before = [seat.used() for seat in seats]
            for block in range(blocks):
                for seat in rotated(seats, number + block):
                    seat.answers.append(seat.block(count))
            for seat, used in zip(seats, before, strict=True):
                seat.settle()
                outcome.add(seat.side.key, values_of(seat, used))
    return outcome


@contextlib.contextmanager
def open_seat(side: System, command: str, slots: int, *options: str) -> Iterator[Seat]:
    """Start a Redis, a driver, and a listener of so many slots, if any; they are gone at the end."""
    with contextlib.ExitStack() as stack:
        stage = stack.enter_context(open_stage(*options))
        listener = (
            stack.enter_context(stage.workers(side, side.workers(stage.place, slots)))[0]
            if slots
            else None
        )
        yield Seat(side, stage, stack.enter_context(stage.driver(side, "serve", command)), listener)


def values_of(seat: Seat, before: Values) -> Values:
    """Return what the blocks of a round have brought. The processor time of a producer counts where
    no listener works.
    """
    tasks = sum(answer["tasks"] for answer in seat.answers)
    if seat.listener is None:
        used = {"producer": _median_block(seat, "cpu"), "redis": _median_block(seat, "redis")}
        costs = _costs(dict.fromkeys(used, 0.0), used, 1)
    else:
        costs = _costs(before, seat.used(), tasks)
    delays = [delay for answer in seat.answers for delay in answer.get("delays", [])]
    if delays:
        return {**costs, "p50": 1000 * percentile(delays, 50)}
    return {**costs, "rate": tasks / sum(answer["seconds"] for answer in seat.answers)}


def _share(process: psutil.Process) -> float:
    try:
        return float(process.memory_full_info().pss) / 1024
    except psutil.NoSuchProcess:
        return 0.0


def _median_block(seat: Seat, what: str) -> float:
    return median([answer[what] / answer["tasks"] for answer in seat.answers])


def _costs(before: Values, after: Values, units: float) -> Values:
    """Return microseconds for each task or minute."""
    costs = {
        process: MICRO * (after[process] - seconds) / units for process, seconds in before.items()
    }
    return {**costs, "all": sum(costs.values())}
