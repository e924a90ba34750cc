"""The demo: measures Python's standard library, a task for each package, on a temporary Redis. It kills a
listener in the middle, and shows all of it in a page.
"""

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
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from blueque.client import Client
from blueque.demo.crash import Crash
from blueque.demo.page import DemoPage, open_page
from blueque.demo.programs import (
    Interrupted,
    Interrupts,
    Program,
    Progress,
    WentWrong,
    end_descendants,
    open_server,
)
from blueque.demo.results import print_redis, print_results
from blueque.errors import BluequeError
from blueque.model import units
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
    page = open_page(stack, directory, url, interrupts)
    programs = [_start_scheduler(stack, directory, url), _start_listener(stack, directory, url)]
    _introduce(server, port, programs, page)
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
    watched = programs if page is None else [*programs, page]
    crash = Crash(client, programs[1].pid, tasks)
    ended = _watch(client, tasks, start, interrupts, watched, crash)
    seconds = time.time() - start
    verify(tasks, ended)
    print_results(ended, seconds)
    crash.print_proof(None if page is None else page.url)
    print_redis(port, QUEUE, ended)
    if has_pipeline:
        _run_pipeline(stack, directory, url, interrupts, watched)
    if is_kept:
        _print_invitation(url, page)
        interrupts.pause(None)
    what = "All of this but the report" if has_pipeline else "All of this"
    print(f"\n{what} is thrown away now. To play with it: bin/demo --keep", flush=True)


def _introduce(server: str, port: int, programs: Sequence[Program], page: DemoPage | None) -> None:
    print("Blueque demo: how large is the standard library of Python?")
    print(f"  redis      {server}, port {port}, for this demo only")
    print(f"  scheduler  pid {programs[0].pid}")
    print(
        f"  listener   pid {programs[1].pid}, {SLOTS} slots: so many tasks at a time, a process for each"
    )
    if page is None:
        print("  page       left out, for its packages are missing: pip install '.[web]'")
    else:
        print(f"  page       {page.address}")


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
    crash: Crash,
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
            running = [task for task in seen if task.status == "started"]
            for line in crash.step(running, ended):
                progress.say(line)
            progress.show(len(ended), [tasks[task.id] for task in running], time.time() - start)
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


def _print_invitation(url: str, page: DemoPage | None) -> None:
    package = Path(__file__).parents[1]
    in_checkout = package.parent / "bin" / "blueque"
    program = str(in_checkout) if in_checkout.exists() else "blueque"
    parameters = json.dumps({"package": "blueque", "path": str(package)})
    print("\nEverything stays until Ctrl-C. In another terminal:")
    print(f"  export BLUEQUE_REDIS_URL={url}")
    print(f"  {program} status")
    print(f"  {program} enqueue {QUEUE} {shlex.quote(parameters)}")
    if page is not None:
        print("And in a browser:")
        print(f"  {page.address}")
    sys.stdout.flush()
