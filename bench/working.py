"""Cases of workers: drain a line, and pick up a task when idle."""

from __future__ import annotations

import functools
import subprocess
import sys
import time

from bench.rounds import percentile
from bench.setting import Bench, Outcome, Values
from bench.stage import RunFailed
from bench.systems import REUSED, System

AT_A_TIME = 2
FEW = 20  # tasks of a drain that are not counted: the programs start meanwhile
DRAINED = {
    "blueque": 700,
    "reuse": 2000,
    "blueque_1_0_0": 500,
    "rq": 220,
    "celery": 2500,
    "dramatiq": 1200,
    "huey": 6000,
    "saq": 3000,
}
SLOW = {"blueque_1_0_0", "dramatiq"}  # they poll, more and more rarely: fewer samples take as long

FORKS = """\
import os, sys, time
count = int(sys.argv[1])
began = time.perf_counter()
for _ in range(count):
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
print(count / (time.perf_counter() - began))
"""


def drain(bench: Bench) -> Outcome:
    outcome = bench.outcome()
    stage = bench.stage

    def run(system: System) -> Values:
        stage.clear()
        count = bench.scaled(DRAINED[system.key], 2 * FEW)
        ahead = max(count // 20, FEW)
        stage.drive(system, "one", count)
        with stage.workers(system, system.workers(stage.place, AT_A_TIME)) as programs:
            stage.wait_done(ahead, programs)
            first, began = stage.done(), time.perf_counter()
            stage.wait_done(count, programs)
            return {"rate": (stage.done() - first) / (time.perf_counter() - began)}

    def forks() -> Values:
        count = bench.scaled(500)
        command = [sys.executable, "-S", "-E", "-c", FORKS, str(count)]
        forkers = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(AT_A_TIME)]
        try:
            return {"rate": sum(float(forker.communicate(timeout=60)[0]) for forker in forkers)}
        except subprocess.TimeoutExpired as error:
            raise RunFailed("bare forks took more than a minute") from error
        finally:
            for forker in forkers:
                forker.kill()
                forker.wait()

    systems = [*bench.systems, REUSED]
    bench.in_turn(
        outcome, {**{one.key: functools.partial(run, one) for one in systems}, "forks": forks}
    )
    return outcome


def pickup(bench: Bench) -> Outcome:
    outcome = bench.outcome()
    stage = bench.stage

    def run(system: System) -> Values:
        stage.clear()
        seconds = 5 if system.key in SLOW else 4
        with stage.workers(system, system.idle(stage.place)):
            delays = stage.drive(system, "pickup", bench.scaled(30, 3), seconds)["delays"]
        delays = [1000 * delay for delay in delays]
        outcome.samples.setdefault(system.key, []).extend(delays)
        return {"p50": percentile(delays, 50)}

    bench.in_turn(outcome, {one.key: functools.partial(run, one) for one in bench.systems})
    for row, delays in outcome.samples.items():
        if row in outcome.rows:
            outcome.rows[row] |= {"p95": [percentile(delays, 95)], "p99": [percentile(delays, 99)]}
            outcome.rows[row]["count"] = [float(len(delays))]
    return outcome
