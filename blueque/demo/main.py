"""The demo: measures Python's standard library, a task for each package, on a temporary Redis."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import shlex
import signal
import sys
import sysconfig
import tempfile
import textwrap
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from blueque.client import Client
from blueque.demo.programs import (
    Interrupted,
    Interrupts,
    Program,
    Progress,
    WentWrong,
    ask,
    end_descendants,
    open_server,
    redis_cli,
)
from blueque.errors import BluequeError
from blueque.model import keys, units
from blueque.model.task import Task
from blueque.system import process

QUEUE = "stdlib"
PIPELINE_QUEUE = "packages"  # the queue of the second part, pipeline.py
REPORT = (
    "blueque-demo-report.html"  # the file that stays, in the directory where the demo was started
)
SLOTS = 2
SCHEDULED = 5  # tasks that are due 1, 2, ... seconds after the start
MISSING = "no_such_module"  # the task that fails on purpose
TOP = 15
WIDTH = 79  # columns of a line
STUCK_AFTER = 120.0  # seconds without any task that ends, after which the demo gives up


def find_packages(stdlib: Path) -> list[tuple[str, Path]]:
    """Return (name, path) of every top-level package (a directory) and module (a .py file), largest
    first.

    With their tests. Without site-packages, which is not the standard library, and directories
    without Python files.
    """
    sizes: dict[tuple[str, Path], int] = {}
    for path in stdlib.iterdir():
        if path.suffix == ".py" and path.is_file():
            sizes[path.stem, path] = path.stat().st_size
        elif path.is_dir() and path.name.isidentifier():
            size = sum(file.stat().st_size for file in path.rglob("*.py"))
            if size:
                sizes[path.name, path] = size
    # With the largest at the end, one slot would work long after the other.
    return sorted(sizes, key=lambda package: (-sizes[package], package))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo and return its exit code."""
    parser = argparse.ArgumentParser(
        "bin/demo", description="Measure Python's standard library with Blueque."
    )
    parser.add_argument(
        "--keep", action="store_true", help="leave everything running at the end, until Ctrl-C"
    )
    parser.add_argument(
        "--no-pipeline",
        action="store_true",
        help="leave out the second part, which needs Java and Spark",
    )
    # bin/demo has checked Java and Spark
    parser.add_argument("--pipeline", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    has_pipeline = chosen.pipeline and not chosen.no_pipeline
    interrupts = Interrupts()
    process.become_subreaper()
    try:
        with contextlib.ExitStack() as stack:
            _run(stack, interrupts, chosen.keep, has_pipeline)
    except Interrupted as interrupted:
        print(f"\nbin/demo: {interrupted}", file=sys.stderr)
        return 128 + interrupted.number
    except BrokenPipeError:  # the reader has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 128 + signal.SIGPIPE
    except (BluequeError, WentWrong) as error:
        print(f"\nbin/demo: {error}", file=sys.stderr)
        return 1
    finally:
        end_descendants()
        interrupts.ignore()
    return 0


def _run(
    stack: contextlib.ExitStack, interrupts: Interrupts, is_kept: bool, has_pipeline: bool
) -> None:
    directory = Path(
        stack.enter_context(
            tempfile.TemporaryDirectory(prefix="blueque-demo-", ignore_cleanup_errors=True)
        )
    )
    port, server = open_server(stack, directory)
    interrupts.pause(0)
    url = f"redis://127.0.0.1:{port}/0"
    programs = [_start_scheduler(stack, directory, url), _start_listener(stack, directory, url)]
    print("Blueque demo: how large is the standard library of Python?")
    print(f"  redis      {server}, port {port}, for this demo only")
    print(f"  scheduler  pid {programs[0].pid}")
    print(
        f"  listener   pid {programs[1].pid}, {SLOTS} slots: so many tasks at a time, a process for each"
    )
    start = time.time()
    client = Client(url, max_bytes=units.DEFAULT_MAX_BYTES)
    tasks = _submit(client, start)
    print(
        f"  tasks      {len(tasks)}, one for each package of Python {platform.python_version()}, the largest first;"
    )
    print(
        f"             {SCHEDULED} of them due 1 to {SCHEDULED} s from now, and one that fails on purpose\n",
        flush=True,
    )
    ended = _watch(client, tasks, start, interrupts, programs)
    seconds = time.time() - start
    verify(tasks, ended)
    _print_results(ended, seconds)
    _print_redis(port, tasks, ended)
    if has_pipeline:
        _run_pipeline(stack, directory, url, interrupts, programs)
    if is_kept:
        _print_invitation(url)
        interrupts.pause(None)
    what = "All of this but the report" if has_pipeline else "All of this"
    print(f"\n{what} is thrown away now. To play with it: bin/demo --keep", flush=True)


def _start_scheduler(stack: contextlib.ExitStack, directory: Path, url: str) -> Program:
    arguments = ["-m", "blueque.cli.scheduler", "--redis-url", url]
    scheduler = Program("scheduler", arguments, directory, [signal.SIGTERM])
    stack.callback(scheduler.stop)
    return scheduler


def _start_listener(stack: contextlib.ExitStack, directory: Path, url: str) -> Program:
    arguments = [
        "-m",
        "blueque.cli.listener",
        QUEUE,
        PIPELINE_QUEUE,
        "--handler",
        "blueque.demo:measure",
        "--slots",
        str(SLOTS),
        "--redis-url",
        url,
        "--spool",
        str(directory / "spool"),
        "--grace",
        "2s",
    ]
    # The second signal: do not wait for running tasks.
    listener = Program("listener", arguments, directory, [signal.SIGTERM, signal.SIGINT])
    stack.callback(listener.stop)
    return listener


def _run_pipeline(
    stack: contextlib.ExitStack,
    directory: Path,
    url: str,
    interrupts: Interrupts,
    others: Sequence[Program],
) -> None:
    """Run the second part, a program of its own, which needs Java."""
    print("\nThe same as a pipeline: Spark finds the work, and archives what comes of it.")
    sys.stdout.flush()
    arguments = ["-m", "blueque.demo.pipeline", url, str(directory), str(Path.cwd() / REPORT)]
    pipeline = Program("pipeline", arguments, directory, [signal.SIGTERM], is_shown=True)
    stack.callback(pipeline.stop)
    while (code := pipeline.code()) is None:
        interrupts.pause(0.2)
        for program in others:
            program.require_running()
    if code != 0:
        pipeline.require_running()


def _submit(client: Client, now: float) -> dict[str, str]:
    """Create the tasks and return id -> package."""
    queue = client.get_queue(QUEUE)
    stdlib = Path(sysconfig.get_paths()["stdlib"])
    packages = find_packages(stdlib)
    tasks: dict[str, str] = {}
    for name, path in [*packages[:-SCHEDULED], (MISSING, stdlib / f"{MISSING}.py")]:
        tasks[queue.enqueue({"package": name, "path": str(path)})] = name
    for delay, (name, path) in enumerate(packages[-SCHEDULED:], 1):
        tasks[queue.schedule({"package": name, "path": str(path)}, now + delay)] = name
    return tasks


def _watch(
    client: Client,
    tasks: Mapping[str, str],
    start: float,
    interrupts: Interrupts,
    programs: Sequence[Program],
) -> dict[str, Task]:
    """Show the progress until all tasks have ended, and return their last snapshots."""
    progress = Progress(len(tasks))
    ended: dict[str, Task] = {}
    last_end = time.monotonic()
    try:
        while len(ended) < len(tasks):
            interrupts.pause(0.2)
            for program in programs:
                program.require_running()
            seen = [client.get_task(task_id) for task_id in tasks if task_id not in ended]
            fresh = {task.id: task for task in seen if task.status in ("complete", "failed")}
            if fresh:
                last_end = time.monotonic()
            elif time.monotonic() - last_end > STUCK_AFTER:
                raise WentWrong(
                    f"{len(ended)} of {len(tasks)} tasks have ended, and none in the last {STUCK_AFTER:.0f} s"
                )
            ended.update(fresh)
            progress.show(
                len(ended),
                [tasks[task.id] for task in seen if task.status == "started"],
                time.time() - start,
            )
    finally:
        progress.leave()
    return ended


def verify(tasks: Mapping[str, str], ended: Mapping[str, Task]) -> None:
    """Raise WentWrong unless every task has its own result, except the task that has to fail.

    tasks: id -> package. ended: the last snapshot of each.
    """
    if ended.keys() != tasks.keys():
        raise WentWrong(f"{len(tasks)} tasks were created, and {len(ended)} have ended")
    failed = sorted(tasks[task.id] for task in ended.values() if task.status == "failed")
    if failed != [MISSING]:
        raise WentWrong(
            f"{MISSING} alone should have failed, but these have: {', '.join(failed) or 'none'}"
        )
    for task in ended.values():
        if task.status == "complete" and task.result["package"] != tasks[task.id]:
            raise WentWrong(
                f"the task for {tasks[task.id]} has the result of {task.result['package']}"
            )
        if task.eta is not None and (task.started or 0.0) < task.eta:
            raise WentWrong(f"the task for {tasks[task.id]} started before its time")


def _rank(ended: Mapping[str, Task]) -> list[Task]:
    """Return the complete tasks, the one with most lines first."""
    complete = [task for task in ended.values() if task.status == "complete"]
    return sorted(complete, key=lambda task: -task.result["lines"])


def _print_results(ended: Mapping[str, Task], seconds: float) -> None:
    ranking = _rank(ended)
    print(
        f"{'package':<22}{'files':>8}{'lines':>10}{'functions':>11}{'classes':>9}{'deepest':>9}{'seconds':>9}"
    )
    for task in ranking[:TOP]:
        _print_row(task.result, (task.finished or 0.0) - (task.started or 0.0))
    total = {
        name: sum(task.result[name] for task in ranking)
        for name in ("files", "lines", "functions", "classes")
    }
    deepest = max(task.result["deepest"] for task in ranking)
    _print_row({"package": f"all {len(ranking)}", **total, "deepest": deepest}, seconds)
    unreadable = sum(task.result["unreadable"] for task in ranking)
    if unreadable:
        print(
            f"({unreadable} files are bad Python on purpose, for tests: only their lines are counted.)"
        )
    (failed,) = (task for task in ended.values() if task.status == "failed")
    print(
        f"\n{len(ended)} tasks: {len(ranking)} complete, 1 failed, as it should, in {seconds:.1f} s:"
    )
    print(_folded(f"{failed.parameters['package']}: {failed.error}"))


def _print_row(row: Mapping[str, Any], seconds: float) -> None:
    print(
        f"{row['package'][:22]:<22}{row['files']:>8,}{row['lines']:>10,}{row['functions']:>11,}{row['classes']:>9,}"
        f"{row['deepest']:>9}{seconds:>9.2f}"
    )


def _print_redis(port: int, tasks: Mapping[str, str], ended: Mapping[str, Task]) -> None:
    """Print commands for redis-cli, and their output."""
    largest = keys.task(_rank(ended)[0].id)
    failed = next(keys.task(task_id) for task_id, package in tasks.items() if package == MISSING)
    print("\nThe same in Redis, which anybody can ask:")
    for words in (
        ("LLEN", keys.complete(QUEUE)),
        ("LLEN", keys.failed(QUEUE)),
        ("ZCARD", keys.tasks(QUEUE)),
        ("SMEMBERS", keys.listeners(QUEUE)),
        ("HMGET", largest, "status", "attempt", "pid", "result"),
        ("HMGET", failed, "status", "error_type", "error"),
    ):
        command = f"$ {redis_cli() or 'redis-cli'} -p {port} {shlex.join(words)}"
        if len(command) > WIDTH:  # its arguments go on the next line
            command = f"$ {redis_cli() or 'redis-cli'} -p {port} {shlex.join(words[:2])} \\\n    {shlex.join(words[2:])}"
        print(command)
        for line in ask(port, *words):
            print(_folded(line))


def _folded(text: str) -> str:
    """Return the text folded to the terminal; a long path goes to the next line."""
    return textwrap.fill(
        text, WIDTH, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False
    )


def _print_invitation(url: str) -> None:
    package = Path(__file__).parents[1]
    in_checkout = package.parent / "bin" / "blueque"
    program = str(in_checkout) if in_checkout.exists() else "blueque"
    parameters = json.dumps({"package": "blueque", "path": str(package)})
    print("\nRedis, the scheduler and the listener stay until Ctrl-C. In another terminal:")
    print(f"  export BLUEQUE_REDIS_URL={url}")
    print(f"  {program} status")
    print(f"  {program} enqueue {QUEUE} {shlex.quote(parameters)}", flush=True)
