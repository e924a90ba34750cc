"""A node of chaos and of failovers: a blueque-listener that can be ended and frozen with all that is
on it.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from chaos_services import Network
from running import Listener, Program, Programs, children_of, until

QUEUE = "chaos"
# Reaps whatever comes to it, and is nothing else: the first process of a node that is a machine of
# its own.
INIT = "import signal, time; signal.signal(signal.SIGCHLD, signal.SIG_IGN); time.sleep(86400)"

WORK = """
    import os, time

    def run(task):
        note("start", task)
        how, seconds = task.parameters.split()
        time.sleep(float(seconds))
        note("end", task)
        if how == "fail" and task.attempt < 2:
            raise ValueError("as told")
        return f"{task.id} {task.attempt}"

    def note(what, task):
        at = time.clock_gettime(time.CLOCK_BOOTTIME)
        line = f"{what} {task.id} {task.attempt} {os.getpid()} {os.getppid()} {os.environ['CHAOS_NODE']} {at:.3f}\\n"
        ledger = os.open(os.environ["CHAOS_LEDGER"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(ledger, line.encode())
        os.close(ledger)
"""


class Node:
    """A blueque-listener with a spool of its own, and a way to Redis of its own. Its tasks write
    down in the ledger when they begin and end.

    options: of its blueque-listener. environ: variables of it.
    is_apart: it is a machine of its own, as far as pids go.
    """

    def __init__(
        self,
        name: str,
        network: Network,
        directory: Path,
        *options: str,
        slots: int = 3,
        environ: Mapping[str, str] | None = None,
        is_apart: bool = False,
    ) -> None:
        self.name, self.wires, self._is_apart = name, network.wires, is_apart
        self._options, self._slots = options, slots
        own = directory / name
        own.mkdir()
        ledger = {"CHAOS_NODE": name, "CHAOS_LEDGER": str(directory / "ledger")}
        self.programs = Programs(network.url, own, {**ledger, **(environ or {})})
        self.programs.write(WORK)
        self._init: Program | None = None
        self._namespace = ""
        self._names: dict[int, int] = {}  # pid here -> pid there, 0 for those of others
        self.listener: Listener | None = None
        self.is_busy = False  # something is being done to all of it

    def start(self) -> None:
        """Start its blueque-listener, and the machine if it is down."""
        before: tuple[str, ...] = ()
        if self._is_apart:
            target = ("--target", str(self._first_process()))
            before = ("nsenter", *target, "--pid", "--mount", f"--wd={self.programs.directory}")
        self.listener = self.programs.listener(
            *("work:run", *self._options),
            queue=QUEUE,
            slots=self._slots,
            grace="2s",
            on_term="leave",
            is_awaited=False,
            before=before,
        )

    def _first_process(self) -> int:
        if self._init is None or not self._init.is_running:
            self._init = self.programs.start([*APART, sys.executable, "-c", INIT])
        unshare = self._init.pid
        (first,) = until(lambda: children_of(unshare), what="the first process of a node")
        self._namespace = os.readlink(f"/proc/{first}/ns/pid")
        self._names.clear()  # another machine may have had its number
        return first

    @property
    def master(self) -> int | None:
        """The pid of the master here, if there is one."""
        if self.listener is None or not self.listener.is_running:
            return None
        if not self._is_apart:
            return self.listener.pid
        return next(iter(children_of(self.listener.pid)), None)

    def processes(self) -> list[int]:
        """Return all processes of the node, but for those that only make it a machine of its own."""
        own: set[int] = set()
        if self._init is not None:
            own = {self._init.pid, *children_of(self._init.pid)}
        return [pid for pid in self.programs.left() if pid not in own]

    def find(self, own: int) -> int:
        """Return by which pid that process goes here that has the pid `own` on the node; 0 when
        there is none.
        """
        if not self._is_apart:
            return own
        self._learn_names()
        return next((pid for pid, name in self._names.items() if name == own), 0)

    def own_name(self, pid: int) -> int:
        """Return the pid that a process has on the node; 0 when it is not of the node."""
        if not self._is_apart:
            return pid
        self._learn_names()
        return self._names.get(pid, 0)

    def _learn_names(self) -> None:
        """Note who is new and who has gone."""
        pids = {int(name) for name in os.listdir("/proc") if name.isdecimal()}
        for gone in self._names.keys() - pids:
            del self._names[gone]
        for pid in pids - self._names.keys():
            self._names[pid] = 0
            with contextlib.suppress(OSError):
                if os.readlink(f"/proc/{pid}/ns/pid") == self._namespace:
                    text = Path(f"/proc/{pid}/status").read_text()
                    self._names[pid] = int(re.findall(r"^NSpid:.*?(\d+)$", text, re.MULTILINE)[0])

    def signal_all(self, number: int) -> None:
        """Send a signal to every process of the node; twice, for what was being forked."""
        for _ in range(2):
            for pid in self.processes():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)

    def crash(self) -> None:
        """End the whole node at once, with everything on it."""
        self.signal_all(signal.SIGSTOP)  # nobody shall see the others go, and act
        until(lambda: not self.programs.left() or self._kill(), what="the end of a node")
        if self._init is not None:
            self._init.wait()

    def _kill(self) -> None:
        for pid in self.programs.left():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def end(self) -> None:
        """End what makes it a machine of its own, when all else has left."""
        if self._init is not None and self._init.is_running:
            self._init.stop(signal.SIGKILL)


def start_producer(programs: Programs, path: Path, seed: int, *naps: float) -> Program:
    """Start a producer of tasks for the nodes. naps: of a Napper: seconds at least and at most, and
    how many replicas have to confirm.
    """
    producer = Path(__file__).parent / "chaos_producer.py"
    words = (producer, programs.url, QUEUE, path, seed, *naps)
    return programs.start([sys.executable, *map(str, words)])


# A process that sees none of the others here, as on another machine.
APART = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")


@functools.cache
def can_be_apart() -> bool:
    """Tell whether we may make a node a machine of its own; it takes root."""
    if not shutil.which("unshare") or not shutil.which("nsenter"):
        return False
    return subprocess.run([*APART, "true"], capture_output=True).returncode == 0


def node_pid(node: str | None) -> int:
    """Return the pid that is in the id of a listener; 0 when there is none."""
    pid = (node or "").rpartition("_")[2]
    return int(pid) if pid.isdecimal() else 0
