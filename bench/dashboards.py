"""The case of the page beside the dashboards of others: one queue of waiting tasks, looked at."""

from __future__ import annotations

import contextlib
import functools
import gzip
import http.client
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from bench import cpu
from bench.rounds import percentile
from bench.setting import Bench, Outcome, Values, reason
from bench.stage import PEERS, Program, RunFailed, Stage, last_line
from bench.systems import OURS, SYSTEMS, System
from bench.venvs import DIRECTORY, INSTALL_TIMEOUT, ROOT, InstallFailed, install, python_of

TASKS, LOOKS, VIEWERS = 10_000, 20, 50
START_TIMEOUT = 60.0  # seconds
MOST_OF_WORKERS = 500  # tasks that a worker runs
SYSTEM = {system.key: system for system in SYSTEMS}


class Dashboard(NamedTuple):
    """A page of others. fill: the system whose driver puts tasks in line, None: its own script does.

    overview, listed: what its page asks for, again and again: the queues, and the first 100 tasks.
    """

    fill: System | None
    command: Callable[[str, int], list[str]]  # given the address of Redis, and a port
    overview: str
    listed: str
    requirements: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()  # of npm
    is_kept: bool = False  # it keeps what it has read, and forgets it at /bench
    is_of_workers: bool = False  # it knows only the tasks that a worker has had


DASHBOARDS = {
    "blueque": Dashboard(
        OURS,
        lambda url, port: [sys.executable, "-m", "bench.page", url, str(port)],
        "/",
        "/tasks?state=pending&limit=100",
        is_kept=True,
    ),
    "rq_dashboard": Dashboard(
        SYSTEM["rq"],
        lambda url, port: [
            str(python_of("rq_dashboard").parent / "rq-dashboard"),
            *("-u", url, "-b", "127.0.0.1", "-p", str(port)),
        ],
        "/0/data/queues.json",
        "/0/data/jobs/bench/queued/100/asc/1.json",
        ("rq-dashboard", "six"),  # which it needs, and does not say
    ),
    "flower": Dashboard(
        SYSTEM["celery"],
        lambda url, port: [
            *("env", "FLOWER_UNAUTHENTICATED_API=true"),
            str(python_of("flower").parent / "celery"),
            *("-A", "drive_celery", "flower", f"--port={port}", "--address=127.0.0.1"),
        ],
        "/workers?json=1",
        "/api/tasks?limit=100",
        ("flower", "celery[redis]"),
        is_of_workers=True,
    ),
    "bull_board": Dashboard(
        None,
        lambda url, port: _node("bull_board", "serve", url, str(port)),
        "/api/queues",
        "/api/queues?activeQueue=bench&status=waiting&page=1&jobsPerPage=100",
        packages=("bullmq", "ioredis", "@bull-board/api", "@bull-board/express", "express"),
    ),
}


def dashboards(bench: Bench) -> Outcome:
    """Each page with a Redis of its own kind of tasks in it."""
    outcome = Outcome()
    runs = {key: functools.partial(_run, bench, key) for key in DASHBOARDS}
    bench.in_turn(outcome, runs)
    return outcome


def _run(bench: Bench, key: str) -> Values:
    its, stage = DASHBOARDS[key], bench.stage
    if its.requirements:
        install(key, [*its.requirements])
    if its.packages:
        _install_packages(key, its.packages)
    if its.fill is not None and its.fill is not OURS:
        install(its.fill.key, its.fill.requirements)
    stage.clear()
    count = bench.scaled(TASKS)
    if its.fill is not None:
        stage.drive(its.fill, "bulk", count)
    else:
        _ask_node(key, "fill", stage.url, str(count))
    with _served(stage, key, its) as (program, port):
        if its.is_of_workers:
            _work(stage)
        return _look(bench, its, program, port)


def _look(bench: Bench, its: Dashboard, program: Program, port: int) -> Values:
    stage, looks = bench.stage, bench.scaled(LOOKS, 3)
    values: Values = {}
    for name, path in (("overview", its.overview), ("listed", its.listed)):
        took, used = [], cpu.of_process(program.pid)
        for _ in range(looks):
            took.append(_get(port, path)[0])
            if its.is_kept:
                _get(port, "/bench")
        values[name] = percentile(took, 50)
        values[f"{name}_cpu"] = 1000 * (cpu.of_process(program.pid) - used) / looks
    values["kb"] = len(gzip.compress(_get(port, its.listed)[1], 6)) / 1000
    for name, count in (("one", 1), ("many", VIEWERS)):
        if its.is_kept:
            _get(port, "/bench")
        before = stage.commands()
        for _ in range(count):
            _get(port, its.overview)
        values[name] = float(stage.commands() - before - 1)
    return values


def _get(port: int, path: str) -> tuple[float, bytes]:
    """Return after how many milliseconds the first byte came, and the answer."""
    asking = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    with contextlib.closing(asking):
        began = time.perf_counter()
        asking.request("GET", path)
        answer = asking.getresponse()
        took = 1000 * (time.perf_counter() - began)
        body = answer.read()
        if answer.status != 200:
            raise RunFailed(f"{path}: {answer.status}")
        return took, body


@contextlib.contextmanager
def _served(stage: Stage, key: str, its: Dashboard) -> Iterator[tuple[Program, int]]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    system = (its.fill or OURS)._replace(checkout=ROOT)
    with stage.workers(system, [its.command(stage.url, port)]) as (program,):
        deadline = time.monotonic() + START_TIMEOUT
        while True:
            try:
                _get(port, its.overview)
                break
            except OSError as error:
                if program.poll() is not None or time.monotonic() > deadline:
                    raise RunFailed(stage.complaint()) from error
                time.sleep(0.1)
        yield program, port


def _work(stage: Stage) -> None:
    """Have a worker run all tasks, and tell of each."""
    celery = SYSTEM["celery"]
    (command,) = celery.workers(stage.place, 1)
    with stage.workers(celery, [[*command, "-E"]]) as programs:
        stage.wait_done(MOST_OF_WORKERS, programs)


def _install_packages(key: str, packages: Sequence[str]) -> None:
    place = DIRECTORY / key
    if (place / "node_modules").exists():
        return
    place.mkdir(parents=True, exist_ok=True)
    command = ["npm", "install", "--no-audit", "--no-fund", "--silent", *packages]
    try:
        subprocess.run(command, cwd=place, check=True, capture_output=True, timeout=INSTALL_TIMEOUT)
    except (OSError, subprocess.SubprocessError) as error:
        raise InstallFailed(f"npm cannot install {packages[0]}: {reason(error)}") from error


def _node(key: str, *words: str) -> list[str]:
    modules = DIRECTORY / key / "node_modules"
    return ["env", f"NODE_PATH={modules}", "node", str(PEERS / f"{key}.cjs"), *words]


def _ask_node(key: str, *words: str) -> None:
    done = subprocess.run(_node(key, *words), capture_output=True, timeout=INSTALL_TIMEOUT)
    if done.returncode:
        raise RunFailed(last_line(done.stderr) or f"exit {done.returncode}")
