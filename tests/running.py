"""Programs under test as real processes: start them with handlers written on the spot, follow them,
leave none behind.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import termios
import textwrap
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from blueque import Client, Task
from blueque.model import keys
from blueque.system import hosts, process
from blueque.system.signals import ECHO
from blueque.task_process.keeper import NAME
from blueque.task_process.main import NAME as TASK_NAME

if TYPE_CHECKING:
    import prepared
    from forked import Forked

    Started = subprocess.Popen[bytes] | Forked | prepared.Listener

PATIENCE = 15.0  # seconds after which something awaited will never come
# as in pyproject.toml
TEST_PATHS = [str(Path(__file__).parent / part) for part in ("", "machinery", "legacy")]
# where the package lies: programs here run in another directory
ROOT = Path(__file__).parent.parent
BLUEQUE = [sys.executable, "-m", "blueque.cli.main"]
LISTENER = [sys.executable, "-P", "-m", "blueque.cli.listener"]
MARK = "RUN_BY_TEST"  # an environment variable by which a test's processes are known

PATCHED = "PATCHED_BY_TEST"  # the variable that tests/patched reads
AHEAD = "AHEAD_BY_TEST"  # and the one for the clock

T = TypeVar("T")


def until(look: Callable[[], T], seconds: float = PATIENCE, what: str = "it") -> T:
    """Look until there is something to see, and return it. For what another process does, and tells
    nobody.
    """
    deadline = time.monotonic() + seconds
    pause = 0.005
    while True:
        seen = look()
        if seen:
            return seen
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        time.sleep(pause)
        # or the looks would take the processor from what they wait for
        pause = min(1.2 * pause, 0.02)


def outcome(client: Client, task_id: str, seconds: float = PATIENCE) -> Task:
    """Wait until the task has ended and return it."""

    def ended() -> Task | None:
        task = client.get_task(task_id)
        return task if task.status in ("complete", "failed") else None

    return until(ended, seconds, f"the end of task {task_id}")


def is_there(pid: int) -> bool:
    """Tell whether the process exists and has not ended."""
    return state_of(pid) not in ("", "Z", "X")


def state_of(pid: int) -> str:
    """Return the letter the kernel has for what a process does; empty when there is none."""
    return _stat(pid)[0]


def parent_of(pid: int) -> int:
    """Return the pid of the parent; 0 when there is no such process."""
    return int(_stat(pid)[1] or 0)


def children_of(pid: int) -> set[int]:
    """Return the processes whose parent it is, those that have ended and are not reaped among them;
    of a slot, the children of its keeper in its place.
    """
    found = process.children(pid)
    keepers = {child for child in found if is_keeper(child)}
    return (found - keepers).union(*map(process.children, keepers))


def task_processes_of(slot: int) -> set[int]:
    """Return the task processes of a slot, once they have their name."""
    return {child for child in children_of(slot) if _command_and_name(child)[1] == TASK_NAME}


def is_keeper(pid: int) -> bool:
    """Tell whether it is a keeper, which has the command line of the task processes, too."""
    command, name = _command_and_name(pid)
    return name == NAME or (NAME.encode() in command and name != TASK_NAME)


def keeper_of(slot: int) -> int:
    """Return the pid of the keeper of a slot, once it has imported what it needs."""
    (keeper,) = until(
        lambda: [child for child in process.children(slot) if _command_and_name(child)[1] == NAME],
        what="a keeper",
    )
    return keeper


def slot_of_process(pid: int) -> int:
    """Return the slot to which the keeper of a task process belongs."""
    return parent_of(parent_of(pid))


def _command_and_name(pid: int) -> tuple[list[bytes], str]:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        return words, Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return [], ""


def memory_of(pid: int) -> int:
    """Return how many bytes of memory the process uses."""
    return int((Path("/proc") / str(pid) / "statm").read_text().split()[1]) * os.sysconf(
        "SC_PAGESIZE"
    )


class Program:
    """One program that runs, with each of its outputs in a file."""

    def __init__(self, popen: Started, printed: Path, log: Path) -> None:
        self._popen = popen
        self._printed, self._log = printed, log
        self.pid = popen.pid

    @property
    def printed(self) -> str:
        """What is on its standard output."""
        return self._printed.read_text(errors="backslashreplace")

    @property
    def log(self) -> str:
        """What is on its standard error."""
        return self._log.read_text(errors="backslashreplace")

    def said(self) -> list[Any]:
        """Return the values that it has printed: JSON, one in each line."""
        return [
            json.loads(line)
            for line in self.printed.splitlines(keepends=True)
            if line.endswith("\n")
        ]

    def lines(self, text: str) -> list[str]:
        """Return the lines of the log that hold the text."""
        return [line for line in self.log.splitlines() if text in line]

    def says(self, text: str, seconds: float = PATIENCE) -> None:
        """Wait until the log holds the text."""
        try:
            until(lambda: text in self.log or not self.is_running, seconds, f"{text!r} in the log")
        except AssertionError as error:
            raise AssertionError(f"{error}; it said:\n{self.log}") from None
        assert text in self.log, self.log

    @property
    def is_running(self) -> bool:
        return self._popen.poll() is None

    def send(self, number: int) -> None:
        self._popen.send_signal(number)  # not os.kill: its pid may be another's by now

    def send_again(self, number: int) -> None:
        """Send a signal that came before, when it is not taken for the same one any more."""
        time.sleep(ECHO)
        self.send(number)

    def wait(self, seconds: float = PATIENCE) -> int:
        """Return its exit code, or minus the signal that ended it."""
        try:
            return self._popen.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still there after {seconds:g} s; it said:\n{self.log}") from None

    def stop(self, number: int = signal.SIGTERM, seconds: float = PATIENCE) -> int:
        """Tell it to leave, and return its exit code."""
        self.send(number)
        return self.wait(seconds)


class Listener(Program):
    """A blueque-listener: its pid is the master's."""

    def __init__(
        self, popen: Started, printed: Path, log: Path, client: Client, queue: str
    ) -> None:
        super().__init__(popen, printed, log)
        self._client, self.queue = client, queue

    def slots(self) -> list[int]:
        """Return the pids of its registered listeners, oldest first."""
        nodes = self._client.get_inspector().listeners(self.queue)
        pids = {int(node.rpartition("_")[2]) for node in nodes}
        # Not by `children_of`, which looks at every process there is, again and again.
        return sorted(pid for pid in pids if is_there(pid) and parent_of(pid) == self.pid)

    def ready(self, slots: int = 1) -> Listener:
        """Wait until so many listeners are registered."""
        try:
            until(
                lambda: len(self.slots()) == slots or not self.is_running,
                what="a registered listener",
            )
        except AssertionError as error:
            raise AssertionError(f"{error}; it said:\n{self.log}") from None
        assert self.is_running, self.log
        return self


class Programs:
    """What a test starts, all in one directory, which is also where the handlers lie."""

    def __init__(self, url: str, directory: Path, environ: Mapping[str, str] | None = None) -> None:
        self.url, self.directory = url, directory
        self._environ = environ or {}  # of all of them
        self.client = Client(url, patience=PATIENCE)
        self._mark = uuid.uuid4().hex
        self._started: list[Started] = []

    def __enter__(self) -> Programs:
        return self

    def __exit__(self, *_: object) -> None:
        deadline = time.monotonic() + PATIENCE
        for popen in self._started:  # it may not have its mark yet
            popen.send_signal(signal.SIGKILL)
        while left := self.left():  # again: what one of them was just starting
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            assert time.monotonic() < deadline, f"processes that cannot be ended: {left}"
            time.sleep(0.005)
        for popen in self._started:
            popen.wait(PATIENCE)
        self.client.close()

    def left(self) -> list[int]:
        """Return the processes that a test has started, directly or not, and that have not ended."""
        mark = f"{MARK}={self._mark}".encode()
        found = []
        for pid in _pids():
            with (
                contextlib.suppress(OSError),
                open(f"/proc/{pid}/environ", "rb", buffering=0) as file,
            ):
                if mark in file.read().split(b"\0"):
                    found.append(pid)
        return [pid for pid in found if is_there(pid)]

    def write(self, text: str, name: str = "work.py", mode: int = 0o644) -> Path:
        """Write a handler module or a program into the directory."""
        path = self.directory / name
        path.write_text(textwrap.dedent(text).lstrip())
        path.chmod(mode)
        return path

    def listener(
        self,
        *work: str,
        queue: str = "work",
        slots: int = 1,
        grace: str = "30s",
        spool: str = "spool",
        on_term: str = "drain",
        is_awaited: bool = True,
        before: tuple[str, ...] = (),
        **options: Any,
    ) -> Listener:
        """Start a blueque-listener and wait until it listens.

        work: `module:callable`, or `--exec`, a program and its arguments.
        spool: a name in the directory, or a path.
        on_term: as in a container, wherever the tests run.
        before: a command that becomes the listener by exec.
        """
        kind = () if "--exec" in work else ("--handler",)
        arguments = [
            queue,
            "--slots",
            str(slots),
            "--redis-url",
            self.url,
            "--spool",
            str(self.directory / spool),
            "--grace",
            grace,
            "--on-term",
            on_term,
            *kind,
            *work,
        ]
        listener = self.started_as(arguments, queue, before=before, **options)
        return listener.ready(slots) if is_awaited else listener

    def started_as(
        self,
        arguments: list[str],
        queue: str,
        environ: Mapping[str, str] | None = None,
        before: tuple[str, ...] = (),
        **options: Any,
    ) -> Listener:
        """Start a blueque-listener with these arguments and no others."""
        if before or not self._may_fork(environ, **options):
            command = [*before, *LISTENER, *arguments]
            return Listener(*self._start(command, environ, **options), self.client, queue)
        return Listener(*self._fork_listener(arguments, environ), self.client, queue)

    def listen(self, *arguments: str, environ: Mapping[str, str] | None = None) -> Program:
        """Start a blueque-listener of any queues with these arguments, and wait until it listens."""
        listener = self.start(self._listening(arguments), environ=environ)
        listener.says("register queue=")
        return listener

    def run_to_end(
        self, *arguments: str, environ: Mapping[str, str] | None = None
    ) -> tuple[int, str]:
        """Run a blueque-listener that ends by itself; return its exit code and what it said."""
        listener = self.start(self._listening(arguments), environ=environ)
        return listener.wait(), listener.log

    def _listening(self, arguments: tuple[str, ...]) -> list[str]:
        place = ("--redis-url", self.url, "--spool", str(self.directory / "spool"))
        return [*LISTENER, *place, "--on-term", "drain", *arguments]

    def scheduler(
        self, url: str | None = None, before: tuple[str, ...] = (), **options: Any
    ) -> Program:
        """Start a blueque-scheduler. before: a command that becomes it by exec."""
        command = [
            *before,
            sys.executable,
            "-m",
            "blueque.cli.scheduler",
            "--redis-url",
            url or self.url,
        ]
        return self.start(command, **options)

    def script(self, text: str, **options: Any) -> Program:
        """Start a Python program."""
        return self.start([sys.executable, str(self.write(text, "script.py"))], **options)

    def start(self, command: list[str], **options: Any) -> Program:
        """Start any program. environ: variables of its own; the other options are those of Popen."""
        if command[: len(LISTENER)] == LISTENER and self._may_fork(**options):
            return Program(*self._fork_listener(command[len(LISTENER) :], **options))
        return Program(*self._start(command, **options))

    def _may_fork(self, environ: Mapping[str, str] | None = None, **options: Any) -> bool:
        """Tell whether a fork can read the arguments of a listener: it may inherit what another
        thread has locked, and has our modules, whatever a path in its environment says.
        """
        own = {**self._environ, **(environ or {})}
        is_ours = "PYTHONPATH" not in own or (PATCHED in own and "blueque.cli" not in own[PATCHED])
        return is_ours and not options and threading.active_count() == 1

    def _fork_listener(
        self, arguments: list[str], environ: Mapping[str, str] | None = None
    ) -> tuple[Started, Path, Path]:
        """Have a fork of ours read the arguments. It becomes the listener by exec, as any
        blueque-listener does, or a fork of what is prepared does.

        An interpreter for the arguments alone takes as long as all the rest.
        """
        import forked  # here: both import all of a program of ours
        import prepared

        environment = self._environment(environ)
        process = prepared.prepared_for(environment)
        printed, log = self._files()
        with (
            open(os.devnull, "rb") as stdin,
            printed.open("ab") as stdout,
            log.open("ab") as stderr,
        ):
            files = (stdin.fileno(), stdout.fileno(), stderr.fileno())
            pid = forked.start(
                arguments,
                environment,
                *files,
                "listener",
                self.directory,
                is_apart=True,
                prepared=process,
            )
        listener = process and process.listener_of(pid, PATIENCE)
        self._started.append(listener or forked.Forked(pid))
        return self._started[-1], printed, log

    def _environment(self, environ: Mapping[str, str] | None = None) -> dict[str, str]:
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        return clean_environment() | {
            "PYTHONPATH": path,
            MARK: self._mark,
            **self._environ,
            **(environ or {}),
        }

    def _files(self) -> tuple[Path, Path]:
        """Return where the outputs of the next program go."""
        name = str(self.directory / f"program{len(self._started)}")
        return Path(f"{name}.out"), Path(f"{name}.log")

    def _start(
        self, command: list[str], environ: Mapping[str, str] | None = None, **options: Any
    ) -> tuple[subprocess.Popen[bytes], Path, Path]:
        printed, log = self._files()
        with printed.open("ab") as stdout, log.open("ab") as stderr:
            popen = subprocess.Popen(
                command,
                cwd=self.directory,
                env=self._environment(environ),
                **{
                    "stdin": subprocess.DEVNULL,
                    "stdout": stdout,
                    "stderr": stderr,
                    # a Ctrl-C is for the tests, which then end what they have started
                    "process_group": 0,
                    **options,
                },
            )
        self._started.append(popen)
        return popen, printed, log


class Terminal:
    """A terminal of one's own; a program started with `options` has it as its controlling terminal."""

    def __init__(self) -> None:
        self._ours, self._theirs = os.openpty()

    @property
    def options(self) -> dict[str, Any]:
        def take() -> None:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        return {
            "stdin": self._theirs,
            "process_group": None,
            "start_new_session": True,
            "preexec_fn": take,
        }

    def press_ctrl_c(self) -> None:
        os.write(self._ours, b"\x03")

    def close(self) -> None:
        os.close(self._ours)
        os.close(self._theirs)


@contextlib.contextmanager
def terminal() -> Iterator[Terminal]:
    opened = Terminal()
    try:
        yield opened
    finally:
        opened.close()


def patched(constants: Mapping[str, Any], ahead: float = 0.0) -> dict[str, str]:
    """Return the environment of a program of ours in which constants have other values.

    constants: by their places in the package: `{"node.reporter.PACE": 0.05}`.
    ahead: by how many seconds its wall clock is ahead.
    """
    path = os.pathsep.join(
        filter(None, [str(ROOT / "tests" / "patched"), str(ROOT), os.environ.get("PYTHONPATH")])
    )
    values: dict[str, dict[str, Any]] = {}
    for place, value in constants.items():
        module, _, constant = f"blueque.{place}".rpartition(".")
        assert importlib.util.find_spec(module), f"there is no module {module}"
        values.setdefault(module, {})[constant] = value
    clock = {AHEAD: str(ahead)} if ahead else {}
    return {"PYTHONPATH": path, PATCHED: json.dumps(values), **clock}


def clean_environment() -> dict[str, str]:
    """Return our environment without what a user may have set for Python, for Blueque or for a
    virtual environment.

    This machine has the name that 1.0.0 has for it; see `conftest.legacy_name`.
    """
    users = ("PYTHON", "BLUEQUE_", "REDIS_", "VIRTUAL_ENV")
    own = {name: value for name, value in os.environ.items() if not name.startswith(users)}
    return own | {hosts.VARIABLE: socket.getfqdn()}


def write_hint(client: Client, queue: str, task_id: str, **fields: str) -> None:
    """Put a task in line as another program might: with an id of its own choice."""
    redis = client.connections
    now = str(time.time())
    known = {
        "status": "pending",
        "queue": queue,
        "parameters": "",
        "created": now,
        "updated": now,
        **fields,
    }
    redis.read(
        ("HSET", keys.task(task_id), *[item for field in known.items() for item in field]),
        ("LPUSH", keys.pending(queue), task_id),
        ("ZADD", keys.wake(queue), 0, 0),
    )


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]


def _stat(pid: int) -> list[str]:
    """Return the state and what follows it, see proc(5)."""
    try:
        # of every process, again and again: so it is quick
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            data = file.read()
    except OSError:
        return [""] * 40
    return data.rpartition(b") ")[2].decode().split()
