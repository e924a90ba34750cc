"""The case of selecting: what a task costs a listener of one queue and of many, all but one empty."""

from __future__ import annotations

import functools

from bench import cpu, systems
from bench.setting import Bench, Outcome, Values
from bench.stage import RunFailed
from blueque.model.queue_order import NAMES

MICRO = 1e6
TASKS = 500
FEW = 60  # tasks that are not counted: programs start, and what happens once happens
COUNTS = (1, 20, 200)  # queues of the listener


def many_queues(bench: Bench) -> Outcome:
    """One slot drains one queue, which is in the middle of those that it listens to. The tasks are
    in line before it starts, so that Redis has no work but its own.
    """
    outcome = bench.outcome_of_ours()
    bench.in_turn(
        outcome,
        {
            row_of(count, select): functools.partial(_drain, bench, count, select)
            for count in COUNTS
            for select in NAMES
        },
    )
    return outcome


def row_of(count: int, select: str) -> str:
    return f"{count} {select}"


def _drain(bench: Bench, count: int, select: str) -> Values:
    stage, tasks, few = bench.stage, bench.scaled(TASKS, 20), bench.scaled(FEW, 5)
    queues = [f"many.{number}" for number in range(count)]
    stage.clear()
    stage.client.get_queue(queues[count // 2]).enqueue_many([{"text": "x" * 88}] * (few + tasks))
    command = [*systems.listener(stage.place, 1, *queues), "--select", select]
    with stage.workers(systems.OURS, [command]) as programs:
        master = programs[0]

        def used() -> tuple[int, float, float, int]:
            listener = cpu.of_listener(master.pid)["listener"]
            return stage.done(), listener, stage.cpu_seconds(), stage.commands()

        stage.wait_done(few, programs)
        before = used()
        stage.wait_done(few + tasks - 1, programs)
        after = used()
        if master.poll() is not None:
            raise RunFailed(f"the listener has ended: {stage.complaint()}")
    done, listener, redis, commands = (now - then for now, then in zip(after, before, strict=True))
    values = {"listener": MICRO * listener / done, "redis": MICRO * redis / done}
    return {**values, "all": sum(values.values()), "commands": commands / done}
