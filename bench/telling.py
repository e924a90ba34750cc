"""Cases of the output of tasks: many lines, and progress reports of a thousand tasks at once."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from bench.rounds import median
from bench.setting import Bench, Outcome, Values, open_stage
from bench.stage import RunFailed, Stage
from bench.systems import OURS
from bench.venvs import clean_environment
from blueque.model.attempt_ref import AttemptRef
from blueque.protocol import attempts, logs_and_checkpoints, membership, reserving
from blueque.protocol.membership import Heartbeat
from blueque.spool.log_tail import Line

LINES = 500_000
PER_SECOND = 50_000  # lines, of the program alone
LONGEST = 120.0  # seconds that a task may take
RUNNING = 1000  # tasks
SECONDS = 10  # for which they tell; a listener beats once in it
QUEUE = "telling"

# It works between two lines, so that alone it prints as many in a second as it is to print.
PRINTER = """\
import json, sys, time


def handle(task):
    say(task.parameters)

def say(asked):
    turns = range(asked["work"])
    began = time.perf_counter()
    for number in range(asked["lines"]):
        for _ in turns:
            pass
        print(f"frame {number} of the scene is done, and looks as it should")
    sys.stdout.flush()
    took = time.perf_counter() - began
    with open(asked["path"], "w") as file:
        file.write(str(took))

if __name__ == "__main__":
    say(json.load(sys.stdin))
"""


def printing(bench: Bench) -> Outcome:
    """The same program with its output in a file, by itself and as a task, in turn."""
    outcome, lines = Outcome(), bench.scaled(LINES, 20_000)
    with open_stage() as stage:
        script = stage.directory / "printer.py"
        script.write_text(PRINTER)
        work = _work(stage, script)
        plain = functools.partial(_print_alone, stage, script, work, lines)
        common = ["--redis-url", stage.url, "--spool", str(stage.directory / "spool")]
        ours = [sys.executable, "-m", "blueque.cli.listener"]
        handler = [*ours, "handler", "--handler", "printer:handle", *common]
        program = [*ours, "program", *common, "--exec", sys.executable, str(script)]
        with stage.workers(OURS, [handler, program]):
            bench.in_turn(
                outcome,
                {
                    "plain": plain,
                    "lines": functools.partial(plain, "-u"),
                    **{
                        row: functools.partial(_print_as_task, stage, row, work, lines)
                        for row in ("handler", "program")
                    },
                },
            )
    return outcome


def _work(stage: Stage, script: Path) -> int:
    """Return how many turns of its loop the program makes between two lines to print as many as it
    is to.
    """
    turns = 1000
    seconds = median([_print_alone(stage, script, turns, 5000)["seconds"] for _ in range(3)])
    return max(int(turns * 5000 / PER_SECOND / seconds), 1)


def _print_alone(stage: Stage, script: Path, work: int, lines: int, *options: str) -> Values:
    path = stage.directory / "took"
    asked = json.dumps({"work": work, "lines": lines, "path": str(path)})
    with (stage.directory / "printed").open("wb") as file:
        subprocess.run(
            [sys.executable, *options, str(script)],
            input=asked.encode(),
            stdout=file,
            env=clean_environment(),
            check=True,
            timeout=LONGEST,
        )
    return _rate(path, lines)


def _print_as_task(stage: Stage, queue: str, work: int, lines: int) -> Values:
    path = stage.directory / "took"
    path.unlink(missing_ok=True)
    task = stage.client.get_queue(queue).enqueue({"work": work, "lines": lines, "path": str(path)})
    ended = stage.client.wait(task, timeout=LONGEST)
    if ended.status != "complete":
        raise RunFailed(f"the task is {ended.status}: {ended.error or stage.complaint()}")
    return _rate(path, lines)


def _rate(path: Path, lines: int) -> Values:
    seconds = float(path.read_text())
    return {"seconds": seconds, "rate": lines / seconds}


class _Running(NamedTuple):
    """A started task, and its listener."""

    task: str
    token: str
    node: str
    instance: str


def reporting(bench: Bench) -> Outcome:
    """What a thousand listeners write for their tasks, by one program, and what Redis works for it."""
    outcome, count, seconds = Outcome(), bench.scaled(RUNNING, 20), bench.scaled(SECONDS, 1)
    with open_stage() as stage:
        running = [_start(stage, number) for number in range(count)]

        def progress(one: _Running, second: int) -> None:
            attempts.progress(
                stage.redis,
                AttemptRef(QUEUE, one.task, one.token, one.node),
                f"{second}/1000 frames",
                time.time(),
            )

        def line(one: _Running, second: int) -> None:
            said = Line(
                second,
                time.time(),
                "stdout",
                f"frame {second} of the scene is done, and looks as it should",
            )
            logs_and_checkpoints.log(
                stage.redis, AttemptRef(QUEUE, one.task, one.token, one.node), 1, [said]
            )

        beats = {one.node: 0 for one in running}
        bench.in_turn(
            outcome,
            {
                "beats": lambda: _tell(stage, running, beats, seconds, []),
                "progress": lambda: _tell(stage, running, beats, seconds, [progress]),
                "both": lambda: _tell(stage, running, beats, seconds, [progress, line]),
            },
        )
    return outcome


def _start(stage: Stage, number: int) -> _Running:
    node = f"host-{number}_{number + 1}"
    token = os.urandom(16).hex()
    instance = os.urandom(16).hex()
    now = time.time()
    stage.client.get_queue(QUEUE).enqueue({"scene": number})
    membership.register(
        stage.redis, QUEUE, node, instance, {"beat_every": 10, "lease": 60, "version": "2"}, now
    )
    popped = reserving.pop(stage.redis, QUEUE, node, instance)
    if (
        popped.task is None
        or reserving.reserve(
            stage.redis, AttemptRef(QUEUE, popped.task, token, node), instance, now
        )
        is None
    ):
        raise RunFailed("a task could not be reserved")
    attempts.start(stage.redis, AttemptRef(QUEUE, popped.task, token, node), number + 1, now)
    return _Running(popped.task, token, node, instance)


def _tell(
    stage: Stage,
    running: list[_Running],
    beats: dict[str, int],
    seconds: int,
    tell: list[Callable[[_Running, int], None]],
) -> Values:
    """Have each task tell once a second, evenly; a tenth of the listeners beat in each."""
    before, commands, began = stage.cpu_seconds(), stage.commands(), time.monotonic()
    first = int(time.time()) % 1_000_000  # so that lines of later rounds are new ones
    for second in range(seconds):
        for place, one in enumerate(running):
            ahead = began + second + place / len(running) - time.monotonic()
            if ahead > 0.002:
                time.sleep(ahead)
            for action in tell:
                action(one, first + second)
            if place % SECONDS == second:
                beats[one.node] += 1
                membership.beat(
                    stage.redis,
                    [Heartbeat(QUEUE, one.node, one.instance, beats[one.node])],
                    time.time(),
                    one.task,
                )
    passed = time.monotonic() - began
    if passed > 1.1 * seconds + 1:
        raise RunFailed(f"one program could not write that much: {seconds} s took {passed:.1f} s")
    return {
        "core": 100 * (stage.cpu_seconds() - before) / passed,
        "commands": (stage.commands() - commands - 1) / passed,
    }
