"""The demo: `blueque dev` in a directory of its own measures Python's standard library, a task for
each package.

The demo kills a listener in the middle, and shows everything in a page.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
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
from blueque.demo.handler import QUEUE
from blueque.demo.programs import Program, Progress, WentWrong, end_all
from blueque.demo.results import print_redis, print_results
from blueque.errors import BluequeError
from blueque.model import units
from blueque.model.task import Task
from blueque.system import process, signals

REPORT = (
    "blueque-demo-report.html"  # the file that stays, in the directory where the demo was started
)
SLOTS = 2
SCHEDULED = 5  # tasks that are due 1, 2, ... seconds after the start
MISSING = "no_such_module"  # the task that fails on purpose
START_TIMEOUT = 30.0  # seconds in which `blueque dev` says its addresses
_REDIS = re.compile(r"export BLUEQUE_REDIS_URL=(\S+)")
_PAGE = re.compile(r"(http://\S+)/login#\S+")
_NO_PAGE = "There is no page"


class Interrupted(Exception):
    """A signal asks the demo to stop."""

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by {signals.signal_name(number)}; nothing is left behind")
        self.number = number


class Demo:
    """One run. Signals take effect in `pause` only, so whatever is started is also ended."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        numbers = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
        if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
            numbers.remove(signal.SIGHUP)  # the demo was started with nohup
        self._asked = signals.Signals(numbers)
        self.dev: Program | None = None
        self.url = ""
        self.page: re.Match[str] | None = None  # its address with the token; 1: without

    def pause(self, seconds: float | None) -> None:
        """Wait, without end if None. Raises Interrupted, WentWrong."""
        process.wait_readable([self._asked.fileno()], seconds)
        for number in self._asked.take():
            raise Interrupted(number)
        if self.dev is not None:
            self.dev.require_running()

    def start(self) -> int:
        """Start `blueque dev`, wait until it has printed its addresses, and return its pid."""
        arguments = ["dev", "blueque.demo.handler", "--slots", str(SLOTS)]
        self.dev = dev = Program(
            "blueque dev", ["-m", "blueque.cli.main", *arguments], self.directory
        )
        deadline = time.monotonic() + START_TIMEOUT
        while True:
            said = dev.said()
            redis, self.page = _REDIS.search(said), _PAGE.search(said)
            if redis and (self.page or _NO_PAGE in said):
                self.url = redis[1]
                return dev.pid
            if time.monotonic() > deadline:
                raise WentWrong(f"blueque dev has not started in {START_TIMEOUT:.0f} s:\n{said}")
            self.pause(0.05)


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
    process.become_subreaper()
    try:
        with tempfile.TemporaryDirectory(
            prefix="blueque-demo-", ignore_cleanup_errors=True
        ) as directory:
            demo = Demo(Path(directory))
            try:
                _run(demo, chosen.keep, chosen.pipeline and not chosen.no_pipeline)
            except BluequeError as error:
                said = demo.dev.last_lines() if demo.dev is not None else ""
                raise WentWrong(f"{error}; blueque dev has said:{said}") from error
            finally:
                end_all()
    except Interrupted as interrupted:
        print(f"\nbin/demo: {interrupted}", file=sys.stderr)
        return 128 + interrupted.number
    except BrokenPipeError:  # the reader has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 128 + signal.SIGPIPE
    except WentWrong as error:
        print(f"\nbin/demo: {error}", file=sys.stderr)
        return 1
    return 0


def _run(demo: Demo, is_kept: bool, has_pipeline: bool) -> None:
    print("Blueque demo: how large is the standard library of Python?", flush=True)
    pid = demo.start()
    print(f"  blueque dev  pid {pid}: Redis, scheduler, listener, page, for this demo only")
    print(f"  redis        {demo.url}")
    print(f"  listener     {SLOTS} tasks at a time, each in its own process")
    print(f"  page         {_page(demo)}")
    start = time.time()
    client = Client(demo.url, max_bytes=units.DEFAULT_MAX_BYTES)
    tasks = _submit(client, start)
    print(
        f"  tasks        {len(tasks)}, one for each package of Python {platform.python_version()}, the largest first;"
    )
    print(
        f"               {SCHEDULED} of them due 1 to {SCHEDULED} s from now, and one that fails on purpose\n",
        flush=True,
    )
    crash = Crash(client, tasks)
    ended = _watch(demo, client, tasks, crash)
    seconds = time.time() - start
    verify(tasks, ended)
    print_results(ended, seconds)
    crash.print_proof(None if demo.page is None else demo.page[1])
    print_redis(demo.url, QUEUE, ended)
    if has_pipeline:
        _run_pipeline(demo)
    if is_kept:
        _print_invitation(demo)
        demo.pause(None)
    what = "All of this but the report" if has_pipeline else "All of this"
    print(f"\n{what} is deleted now. To keep it: bin/demo --keep", flush=True)


def _page(demo: Demo) -> str:
    if demo.page is None:
        return "left out, as its packages are missing: pip install '.[web]'"
    return demo.page[0]


def _run_pipeline(demo: Demo) -> None:
    """Run the second part, a program of its own, which needs Java."""
    print("\nThe same as a pipeline: Spark finds the work, and archives the results.")
    sys.stdout.flush()
    words = [demo.url, str(demo.directory), str(Path.cwd() / REPORT)]
    pipeline = Program(
        "pipeline", ["-m", "blueque.demo.pipeline", *words], demo.directory, is_shown=True
    )
    while (code := pipeline.code()) is None:
        demo.pause(0.2)
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


def find_packages(stdlib: Path) -> list[tuple[str, Path]]:
    """Return (name, path) of every top-level package (a directory) and module (a .py file), largest
    first.

    With their tests; without site-packages, which is not the standard library, and directories
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


def _watch(demo: Demo, client: Client, tasks: Mapping[str, str], crash: Crash) -> dict[str, Task]:
    """Show the progress until all tasks have ended, and return their last snapshots."""
    progress = Progress(len(tasks))
    ended: dict[str, Task] = {}
    try:
        while len(ended) < len(tasks):
            demo.pause(0.2)
            seen = [client.get_task(task_id) for task_id in tasks if task_id not in ended]
            ended |= {task.id: task for task in seen if task.status in ("complete", "failed")}
            running = [task for task in seen if task.status == "started"]
            for line in crash.step(running, ended):
                progress.say(line)
            progress.show(len(ended), [tasks[task.id] for task in running])
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


def _print_invitation(demo: Demo) -> None:
    package = Path(__file__).parents[1]
    in_checkout = package.parent / "bin" / "blueque"
    program = str(in_checkout) if in_checkout.exists() else "blueque"
    parameters = json.dumps({"package": "blueque", "path": str(package)})
    print("\nEverything stays until Ctrl-C. In another terminal:")
    print(f"  export BLUEQUE_REDIS_URL={demo.url}")
    print(f"  {program} status")
    print(f"  {program} enqueue {QUEUE} {shlex.quote(parameters)}")
    if demo.page is not None:
        print(f"And in a browser:\n  {demo.page[0]}")
    sys.stdout.flush()
