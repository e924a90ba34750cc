"""What chaos happens to: a Redis, the network in front of it, two nodes, a scheduler and a
producer, all of our own.
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
import time
from collections.abc import Iterator
from pathlib import Path

from chaos_producer import SAFE
from chaos_services import SERVICES, Network, Service
from chaos_steady import Steady
from running import Listener, Program, Programs, children_of, until

from blueque import Client
from blueque.model import keys
from blueque.model.recurrence import Rule

QUEUE = "chaos"
BEAT, LEASE, LOST_AFTER = 0.2, 0.8, 3.0
SLOTS = 3
# Schedules that have planned times to catch up, by name: overlap, catch_up, and how many have passed.
TIMES = 90  # planned times: a list keeps them all
EVERY = 10  # seconds between two of them, at least
PASSED = 60  # those that have passed at the beginning, at most
POLICIES = {
    "nightly": ("allow", "all", 40),
    "hourly": ("skip", "last", PASSED),
    "weekly": ("queue", "last", 20),
    "monthly": ("skip", "none", PASSED),
}

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


def now() -> float:
    """Return the time by the clock of the ledger."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Node:
    """A blueque-listener with a spool of its own. It is a machine of its own, as far as pids go,
    where that can be had.

    reuse: how many tasks a process of it takes.
    """

    def __init__(
        self, name: str, network: Network, directory: Path, ledger: Path, is_apart: bool, reuse: int
    ) -> None:
        self.name, self.wires, self._is_apart, self._reuse = name, network.wires, is_apart, reuse
        directory.mkdir()
        self.programs = Programs(network.url, directory)
        self.programs.write(WORK)
        self._environ = {"CHAOS_NODE": name, "CHAOS_LEDGER": str(ledger)}
        self._init: Program | None = None
        self._namespace = ""
        self._names: dict[int, int] = {}  # pid here -> pid there, 0 for those of others
        self.listener: Listener | None = None
        self.is_busy = False  # something is being done to all of it

    def start(self) -> None:
        """Start its blueque-listener, and the machine if it is down."""
        before: tuple[str, ...] = ()
        if self._is_apart:
            before = (
                "nsenter",
                "--target",
                str(self._first_process()),
                "--pid",
                "--mount",
                f"--wd={self.programs.directory}",
            )
        self.listener = self.programs.listener(
            "work:run",
            "--reuse",
            str(self._reuse),
            "--beat",
            f"{BEAT}s",
            "--lease",
            f"{LEASE}s",
            "--lost-after",
            f"{LOST_AFTER}s",
            queue=QUEUE,
            slots=SLOTS,
            grace="2s",
            on_term="leave",
            is_awaited=False,
            before=before,
            environ=self._environ,
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


class Stage:
    """Everything that takes part. The control connection has no wire in between.

    seconds: for how long there shall be planned times.
    """

    def __init__(self, service: Service, directory: Path, seed: int, seconds: float = 0.0) -> None:
        self.service, self.directory, self._seed = service, directory, seed
        self.ledger, self.accepted = directory / "ledger", directory / "accepted"
        self.control = Client(service.url, patience=5.0)
        one, two, rest = networks = [service.network() for _ in range(3)]
        self.wires = [wire for network in networks for wire in network.wires]
        self.nodes = [
            Node("one", one, directory / "one", self.ledger, False, 1),
            Node("two", two, directory / "two", self.ledger, can_be_apart(), 5),
        ]
        (directory / "rest").mkdir()
        self.rest = Programs(rest.url, directory / "rest")
        steady = Client(_beside(service.url), patience=5.0)
        self.steady = Steady(steady, _beside(rest.url), directory / "steady")
        self._every = max(EVERY, round(seconds / (TIMES - PASSED)))
        self.is_redis_well = True
        self.scheduler: Program | None = None
        self.producer: Program | None = None
        self.rules: dict[str, tuple[Rule, int]] = {}  # of the schedules, and their first times

    def open(self) -> None:
        for name in POLICIES:
            self._plan(name)
        for node in self.nodes:
            node.start()
        self.start_scheduler()
        self.steady.open()
        producer = str(Path(__file__).parent / "chaos_producer.py")
        self.producer = self.rest.start(
            [sys.executable, producer, self.rest.url, QUEUE, str(self.accepted), str(self._seed)]
        )

    def _plan(self, name: str) -> None:
        """Make a schedule of which some planned times have passed, and nothing has come."""
        overlap, catch_up, missed = POLICIES[name]
        redis = self.control.connections
        clock, _ = redis.read(("TIME",), ("PING",))
        every = self._every
        begin = (int(clock[0]) // every - missed) * every
        rule = Rule(every=every, until=begin + (TIMES - 1) * every)
        schedule = self.control.set_schedule(
            name,
            queue=QUEUE,
            every=every,
            start=time.time() + 3600,  # nothing comes before it is paused
            until=time.time() + 7200,
            overlap=overlap,
            catch_up=catch_up,
            window="30d",
            parameters="nap 0.1",
            retry=SAFE,
        )
        schedule.pause("chaos")
        record = {"last": begin - 1, "planned": begin, "at": begin, "until": rule.until}
        redis.read(
            ("HDEL", keys.schedule(name), "start"),
            ("HSET", keys.schedule(name), *[word for pair in record.items() for word in pair]),
        )
        schedule.resume(catch_up=True)
        self.rules[name] = rule, begin

    def start_scheduler(self) -> None:
        self.scheduler = self.rest.scheduler()

    def node(self, name: str) -> Node:
        return next(node for node in self.nodes if node.name == name)

    def programs(self) -> list[Programs]:
        return [self.rest, self.steady.programs, *[node.programs for node in self.nodes]]

    def left(self) -> list[int]:
        return [pid for programs in self.programs() for pid in programs.left()]


@contextlib.contextmanager
def open_stage(
    directory: Path, seed: int, service: str = "plain", seconds: float = 0.0
) -> Iterator[Stage]:
    """Have a stage, and leave no process of it behind.

    service: one of SERVICES. seconds: see Stage.
    """
    with SERVICES[service](directory) as redis, contextlib.ExitStack() as stack:
        stage = Stage(redis, directory, seed, seconds)
        for wire in stage.wires:
            stack.callback(wire.close)
        for programs in stage.programs():
            stack.enter_context(programs)
        stack.callback(stage.control.close)
        stack.callback(stage.steady.control.close)
        yield stage


def _beside(url: str) -> str:
    """Return the address of another database of the same Redis."""
    return f"{url}{'&' if '?' in url else '?'}db=1"


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
