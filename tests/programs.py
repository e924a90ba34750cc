"""Programs as other processes, for tests: started, read, told to stop, and certainly gone when the test is over."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parent.parent
MARK = "STARTED_BY_TEST"                               # in the environment of all that we start, and of all they fork
DEADLINE = 15.0

# What tasks do, under our programs and under 1.0.0. Nothing heavy: each task process imports it.
_WORK = '''\
import os
import time


def record(task):
    """Write one line into the ledger, whole or not at all."""
    line = f"{task.id} {os.environ['RUNNER']} {time.time()}\\n".encode()
    ledger = os.open(os.environ["LEDGER"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(ledger, line)
    os.close(ledger)
    return "recorded"


def hold(task):
    record(task)
    while not os.path.exists(os.environ["RELEASED"]):
        time.sleep(0.005)
    return "released"


def show(task):
    record(task)
    return ascii(task.parameters)


def refuse(task):
    raise ValueError("Äpfel and \\udcff")
'''


class Line(NamedTuple):
    """One line of the ledger: which task was run by whom (`ours` or `1.0.0`), and when."""

    task: str
    runner: str
    at: float


class Program:
    """A process that we have started."""

    def __init__(self, command: list[str], environment: dict[str, str], directory: Path, name: str) -> None:
        self._said, self._log = directory / f"{name}.out", directory / f"{name}.log"
        with self._said.open("wb") as said, self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command, env=environment, cwd=directory, stdin=subprocess.DEVNULL, stdout=said, stderr=log,
                process_group=0,                       # a Ctrl-C is for the tests, which then end what they started
            )
        self.pid = self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    @property
    def log(self) -> str:
        """What it has written to its standard error so far."""
        return self._log.read_text(errors="replace")

    def said(self) -> list[Any]:
        """Return what it has written to its standard output so far: one JSON value in each line."""
        lines = self._said.read_text().splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def send(self, number: int) -> None:
        self._process.send_signal(number)

    def wait(self, seconds: float = DEADLINE) -> int:
        """Wait for its end; return its exit code or minus the signal. Raises subprocess.TimeoutExpired."""
        return self._process.wait(seconds)

    def stop(self, number: int = signal.SIGTERM, seconds: float = DEADLINE) -> int:
        """Send a signal and wait for its end."""
        self.send(number)
        return self.wait(seconds)


class Programs:
    """The processes of one test. Its programs work in `directory`; the module `work` there is what their tasks do."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._mark = uuid.uuid4().hex
        self._started: list[Program] = []
        (directory / "work.py").write_text(_WORK)

    def start(self, command: list[str], runner: str, **environment: str) -> Program:
        """Start any program. runner: how its tasks sign the ledger."""
        own = {
            MARK: self._mark, "RUNNER": runner,
            "LEDGER": str(self.directory / "ledger"), "RELEASED": str(self.directory / "released"),
        }
        name = f"program{len(self._started)}"
        self._started.append(Program(command, clean_environment() | own | environment, self.directory, name))
        return self._started[-1]

    def listener(self, url: str, queue: str, handler: str = "record", slots: int = 2) -> Program:
        """Start blueque-listener for one of the callables of `work`."""
        return self.start([
            sys.executable, "-m", "blueque.cli.listener", queue, "--run", f"work:{handler}", "--slots", str(slots),
            "--redis-url", url, "--spool", str(self.directory / "spool"),
        ], "ours", PYTHONPATH=str(ROOT))

    def scheduler(self, url: str) -> Program:
        """Start blueque-scheduler."""
        return self.start([sys.executable, "-m", "blueque.cli.scheduler", "--redis-url", url], "ours", PYTHONPATH=str(ROOT))

    def ledger(self) -> list[Line]:
        """Return which tasks have been run."""
        try:
            lines = (self.directory / "ledger").read_text().splitlines()
        except FileNotFoundError:
            return []
        return [Line(task, runner, float(at)) for task, runner, at in (line.split() for line in lines)]

    def release(self) -> None:
        """Let the tasks that `work.hold` holds end."""
        (self.directory / "released").touch()

    def kill(self) -> None:
        """End all that is left, one pid after the other, and whatever it has forked."""
        for program in self._started:
            if program.is_running:
                program.send(signal.SIGKILL)
            program.wait()
        until(self._kill_forks, "what our programs forked is gone")

    def _kill_forks(self) -> bool:
        left = [int(entry) for entry in os.listdir("/proc") if entry.isdecimal() and self._is_ours(int(entry))]
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return not left

    def _is_ours(self, pid: int) -> bool:
        try:                                           # a zombie has no environment any more
            return f"{MARK}={self._mark}".encode() in Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            return False


@contextlib.contextmanager
def running_programs(directory: Path) -> Iterator[Programs]:
    """Start programs in a directory, and end them all."""
    programs = Programs(directory)
    try:
        yield programs
    finally:
        programs.kill()


def until(is_true: Callable[[], object], what: str, seconds: float = DEADLINE) -> None:
    """Wait for what another process does, and tells nobody. Raises TimeoutError, which no test expects of a bug."""
    if not comes(is_true, seconds):
        raise TimeoutError(f"not within {seconds:g} s: {what}")


def comes(is_true: Callable[[], object], seconds: float) -> bool:
    """Look until it is so; False when it is not within that time."""
    deadline = time.monotonic() + seconds
    while not is_true():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True


def clean_environment() -> dict[str, str]:
    """Return our environment without what a user may have set for Python, for Blueque or for a virtual environment."""
    ours = ("PYTHON", "BLUEQUE_", "REDIS_", "VIRTUAL_ENV")
    return {name: value for name, value in os.environ.items() if not name.startswith(ours)}
