"""What happens to a long task when a process is killed, compared with RQ with Retry and Celery with
acks_late, in one run.

    .venv/bin/python bench/crash.py [process] [worker] [node] [cycle] [sweep]

process   the task's own process is killed: how long until the queue knows?
worker    the process that watches over it is killed, the node lives: what becomes of the task?
node      everything on one node is killed, another node idles: how long until the task runs there?
cycle     round trips and time of reserve, start and complete, beside 1.0.0
sweep     one look of a judge at 10,000 listeners with a started task each

Each task writes a tick into a ledger ten times a second: two runs of one task whose ticks overlap
were two copies at the same time. Nothing is waited for longer than 30 s. Needs root, for our second
node is in a pid namespace of its own. It starts a Redis of its own; the peers come from the package
index into environments of their own.
"""

from __future__ import annotations

import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tests" / "machinery")]

import legacy  # noqa: E402

from blueque import Client, Retry  # noqa: E402
from blueque.model.attempt_ref import AttemptRef  # noqa: E402
from blueque.protocol import attempts, membership, reserving, submit  # noqa: E402
from blueque.recovery.judge import Recovery  # noqa: E402
from blueque.system.embedded_redis import running_server  # noqa: E402

ROUNDS = 3
LONGEST = 30.0  # seconds after which we wait no longer
TASK = 12.0  # seconds that a task takes
PEERS = {"rq": ["rq"], "celery": ["celery[redis]"]}

WORK = """\
import os, time, uuid
def work(key, seconds):
    run = uuid.uuid4().hex
    ledger = os.open(os.environ["LEDGER"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    end = time.time() + seconds
    while time.time() < end:
        os.write(ledger, f"{key} {run} {os.getpid()} {time.time()}\\n".encode())
        time.sleep(0.1)
    return "done"
def handler(task):
    return work(task.parameters["key"], task.parameters["seconds"])
"""
CELERY = """\
import os, celery
from crash_work import work
app = celery.Celery("crash", broker=os.environ["URL"], backend=os.environ["URL"])
app.conf.update(task_acks_late=True, worker_prefetch_multiplier=1, worker_concurrency=1)
task = app.task(name="work")(work)
"""

CYCLE_1_0_0 = """\
import sys, time, blueque
client = blueque.Client(sys.argv[1])
listener = client.get_listener("cycle")
began = time.perf_counter()
for _ in range(int(sys.argv[2])):
    processor = client.get_processor(listener.listen())
    processor.start(1)
    processor.complete("")
print(time.perf_counter() - began)
"""


class Run:
    """One run of a task, as its ticks tell."""

    def __init__(self, pid: int, at: float) -> None:
        self.pid, self.first, self.last = pid, at, at


class Peer:
    """One queue system on one Redis: its workers are started and killed, its task watched."""

    name = ""

    def __init__(self, url: str, directory: Path) -> None:
        self.url, self.directory = url, directory
        self.ledger = directory / "ledger"
        (directory / "crash_work.py").write_text(WORK)
        self.environment = {
            name: value for name, value in os.environ.items() if not name.startswith("PYTHON")
        }
        self.environment |= {"LEDGER": str(self.ledger), "URL": url, "PYTHONPATH": str(directory)}
        self.started: list[subprocess.Popen[bytes]] = []
        self.key = os.urandom(4).hex()

    def start(self, command: list[str]) -> subprocess.Popen[bytes]:
        program = subprocess.Popen(
            command,
            cwd=self.directory,
            env=self.environment,
            start_new_session=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self.started.append(program)
        return program

    def runs(self) -> list[Run]:
        """Return the runs of the task, in the order of their first ticks."""
        found: dict[str, Run] = {}
        text = self.ledger.read_text() if self.ledger.exists() else ""
        for line in text.splitlines():
            key, run, pid, at = line.split()
            if key == self.key:
                found.setdefault(run, Run(int(pid), float(at))).last = float(at)
        return sorted(found.values(), key=lambda run: run.first)

    def copies(self) -> int:
        """Return how many runs went on at the same time, at most."""
        runs = self.runs()
        return max(
            (sum(one.first <= run.last and run.first <= one.last for one in runs) for run in runs),
            default=0,
        )

    def wait(self, is_true: Callable[[], object]) -> float | None:
        """Return how long it took until it was true; None when it took too long."""
        began = time.monotonic()
        while not is_true():
            if time.monotonic() - began > LONGEST:
                return None
            time.sleep(0.01)
        return time.monotonic() - began

    def close(self) -> None:
        for program in self.started:
            kill_tree(program.pid)
            program.wait()

    def worker(self, node: int) -> subprocess.Popen[bytes]:
        raise NotImplementedError(self.name)

    def enqueue(self) -> None:
        raise NotImplementedError(self.name)

    def is_running(self) -> bool:
        """Tell whether the queue believes that the task runs."""
        raise NotImplementedError(self.name)

    def is_complete(self) -> bool:
        raise NotImplementedError(self.name)

    def watcher(self, program: subprocess.Popen[bytes]) -> int:
        """Return the pid of the process that watches over the task."""
        return program.pid


class Blueque(Peer):
    name = "Blueque"

    def worker(self, node: int) -> subprocess.Popen[bytes]:
        self.environment["PYTHONPATH"] = f"{self.directory}:{ROOT}"
        own_pids = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"] if node else []
        program = self.start(
            [
                *own_pids,
                sys.executable,
                "-m",
                "blueque.cli.listener",
                "crash",
                "--handler",
                "crash_work:handler",
                "--redis-url",
                self.url,
                "--spool",
                str(self.directory / f"spool{node}"),
                "--beat",
                "1s",
                "--lost-after",
                "5s",
            ]
        )
        self.client = Client(self.url)
        before = len(self.client.get_inspector().listeners("crash"))
        self.wait(lambda: len(self.client.get_inspector().listeners("crash")) > before)
        return program

    def enqueue(self) -> None:
        self.id = self.client.get_queue("crash").enqueue(
            {"key": self.key, "seconds": TASK}, retry=Retry(max=3, backoff=0.1)
        )

    def is_running(self) -> bool:
        return self.client.get_task(self.id).status == "started"

    def is_complete(self) -> bool:
        return self.client.get_task(self.id).status == "complete"

    def watcher(self, program: subprocess.Popen[bytes]) -> int:
        return int(self.client.get_task(self.id).node.rpartition("_")[2])


class Rq(Peer):
    name = "RQ, Retry"

    def python(self, code: str) -> str:
        program = f"import os, redis, rq\nq = rq.Queue('crash', connection=redis.Redis.from_url(os.environ['URL']))\n{code}"
        return subprocess.run(
            [str(python_of("rq")), "-c", program],
            env=self.environment,
            cwd=self.directory,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()

    def worker(self, node: int) -> subprocess.Popen[bytes]:
        return self.start(
            [str(python_of("rq").parent / "rq"), "worker", "crash", "--url", self.url]
        )

    def enqueue(self) -> None:
        self.id = self.python(
            f"import crash_work\nprint(q.enqueue(crash_work.work, '{self.key}', {TASK}, retry=rq.Retry(max=3)).id)"
        )

    def status(self) -> str:
        return self.python(f"print(q.fetch_job('{self.id}').get_status().value)")

    def is_running(self) -> bool:
        return self.status() == "started"

    def is_complete(self) -> bool:
        return self.status() == "finished"


class Celery(Peer):
    name = "Celery, acks_late"

    def python(self, code: str) -> str:
        return subprocess.run(
            [str(python_of("celery")), "-c", f"import crash_app\n{code}"],
            env=self.environment,
            cwd=self.directory,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()

    def worker(self, node: int) -> subprocess.Popen[bytes]:
        (self.directory / "crash_app.py").write_text(CELERY)
        return self.start(
            [
                str(python_of("celery").parent / "celery"),
                "-A",
                "crash_app",
                "worker",
                "-n",
                f"node{node}",
                "-c",
                "1",
            ]
        )

    def enqueue(self) -> None:
        self.id = self.python(f"print(crash_app.task.delay('{self.key}', {TASK}).id)")

    def is_running(self) -> bool:
        """It has no status for it: it is taken to run until its outcome is known, or it has run
        anew.
        """
        return self.status() == "PENDING" and len(self.runs()) < 2

    def status(self) -> str:
        return self.python(f"print(crash_app.app.AsyncResult('{self.id}').state)")

    def is_complete(self) -> bool:
        return self.status() == "SUCCESS"


def python_of(peer: str) -> Path:
    return ROOT / f".venv-{peer}" / "bin" / "python"


def install(peer: str) -> None:
    if not python_of(peer).exists():
        venv.create(python_of(peer).parent.parent, with_pip=True)
    pip = [str(python_of(peer)), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    subprocess.run([*pip, *PEERS[peer]], check=True)


@contextmanager
def peer(kind: type[Peer], nodes: int) -> Iterator[tuple[Peer, list[subprocess.Popen[bytes]]]]:
    """Start so many workers, and a task on the first; yield when it runs."""
    directory = Path(tempfile.mkdtemp(prefix="blueque-crash-"))
    with running_server() as server:
        one = kind(server.url, directory)
        try:
            workers = [one.worker(0)]
            if kind is not Blueque:
                time.sleep(3)  # they tell nobody when they are ready
            one.enqueue()
            if one.wait(one.runs) is None:
                raise SystemExit(f"{one.name}: its task did not start")
            workers += [one.worker(number) for number in range(1, nodes)]
            if kind is not Blueque and nodes > 1:
                time.sleep(3)
            yield one, workers
        finally:
            one.close()
            shutil.rmtree(directory, ignore_errors=True)


def process_killed(one: Peer, workers: list[subprocess.Popen[bytes]]) -> float | None:
    os.kill(one.runs()[0].pid, signal.SIGKILL)
    return one.wait(lambda: not one.is_running())


def worker_killed(one: Peer, workers: list[subprocess.Popen[bytes]]) -> float | None:
    watcher = one.watcher(workers[0])
    os.kill(watcher, signal.SIGKILL)
    if isinstance(one, Blueque):
        return one.wait(lambda: one.client.get_task(one.id).node.rpartition("_")[2] != str(watcher))
    time.sleep(1.0)
    one.worker(1)  # as an init system would
    return one.wait(one.is_complete)


def node_killed(one: Peer, workers: list[subprocess.Popen[bytes]]) -> float | None:
    kill_tree(workers[0].pid)
    return one.wait(lambda: len(one.runs()) > 1)


def compare(
    title: str, strike: Callable[[Peer, list[subprocess.Popen[bytes]]], float | None], nodes: int
) -> None:
    seconds: dict[str, list[float | None]] = defaultdict(list)
    copies: dict[str, list[int]] = defaultdict(list)
    for _ in range(ROUNDS):
        for kind in (Blueque, Rq, Celery):
            if len(seconds[kind.name]) and seconds[kind.name][-1] is None:
                continue  # it has not done so within 30 s before; once is enough
            with peer(kind, nodes) as (one, workers):
                seconds[kind.name].append(strike(one, workers))
                if kind is Blueque:
                    one.wait(one.is_complete)
                copies[kind.name].append(one.copies())
    print(title)
    for name, values in seconds.items():
        known = [value for value in values if value is not None]
        said = f"not within {LONGEST:.0f} s"
        if known:
            said = f"{statistics.median(known):6.2f} s ({min(known):.2f} - {max(known):.2f})"
        print(f"    {name:18} {said:28} copies at the same time: {max(copies[name])}", flush=True)


def cycle(count: int = 2000) -> None:
    """One task after the other through reserve, start and complete, by the library of each version."""
    with running_server() as server:
        client = Client(server.url)
        redis = client._redis
        queue = client.get_queue("cycle")

        def ours() -> float:
            redis.read(("FLUSHALL",))
            for _ in range(count):
                queue.enqueue("x")
            listener = client.get_listener("cycle")
            listener.register(None)
            began = time.perf_counter()
            for _ in range(count):
                task = listener.take()
                processor = client.get_processor(task)
                processor.start(1)
                processor.complete("")
            return (time.perf_counter() - began) / count

        def theirs() -> float:
            redis.read(("FLUSHALL",))
            for _ in range(count):
                queue.enqueue("x")
            command = [str(legacy.PYTHON), "-I", "-c", CYCLE_1_0_0, server.url, str(count)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            return float(done.stdout) / count

        pairs = [(theirs(), ours()) for _ in range(5)]
        trips = count_round_trips(client)
    ratio = statistics.median(mine / theirs for theirs, mine in pairs)
    print("cycle of reserve, start, complete on loopback")
    print(
        f"    {trips} round trips; {ratio:.2f} times the time of 1.0.0 ({min(b / a for a, b in pairs):.2f} - "
        f"{max(b / a for a, b in pairs):.2f})",
        flush=True,
    )


def count_round_trips(client: Client) -> float:
    listener = client.get_listener("trips")
    queue = client.get_queue("trips")
    for _ in range(11):
        queue.enqueue("x")
    listener.register(None)

    def one() -> None:
        processor = client.get_processor(listener.take())
        processor.start(1)
        processor.complete("")

    one()  # what happens once on a connection
    connection = client._redis.connection()
    send, sent = connection.send, []
    connection.send = lambda commands: sent.append(1) or send(commands)
    for _ in range(10):
        one()
    return len(sent) / 10


def sweep(count: int = 10_000) -> None:
    """The time of one look at so many living listeners, each with a started task."""
    with running_server() as server:
        client = Client(server.url, patience=0)
        redis = client._redis
        facts = {
            "beat_every": 10,
            "lease": 60,
            "lost_after": 600,
            "boot": "elsewhere",
            "ns": "1",
            "pid": 1,
            "pid_start": 1,
        }
        for number in range(count):
            node, task = f"far_{number}", f"task-{number}"
            membership.register(redis, "sweep", node, "i", facts, time.time())
            submit.enqueue(redis, "sweep", task, "x", time.time())
            reserving.pop(redis, "sweep", node, "i")
            reserving.reserve(redis, AttemptRef("sweep", task, "t", node), "i", time.time())
            attempts.start(redis, AttemptRef("sweep", task, "t", node), 1, time.time())
        judge = Recovery(client.connections)
        times = []
        for _ in range(6):
            began = time.perf_counter()
            judge.step(["sweep"])
            times.append(time.perf_counter() - began)
    print(f"one look of a judge at {count:,} listeners with a started task each")
    print(
        f"    the first {times[0]:.2f} s, the next {statistics.median(times[1:]):.3f} s", flush=True
    )


def kill_tree(pid: int) -> None:
    """Kill a process we started and all that came of it, one pid after the other."""
    found = [pid]
    for parent in found:
        try:
            for thread in os.listdir(f"/proc/{parent}/task"):
                found += map(
                    int, Path(f"/proc/{parent}/task/{thread}/children").read_text().split()
                )
        except OSError:
            continue
    sessions = [
        int(name)
        for name in os.listdir("/proc")
        if name.isdecimal() and session_of(int(name)) in found
    ]
    for one in dict.fromkeys([*found, *sessions]):
        try:
            os.kill(one, signal.SIGKILL)
        except ProcessLookupError:
            pass


def session_of(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[3])
    except OSError:
        return 0


CASES: dict[str, Callable[[], None]] = {
    "process": lambda: compare("the task's process is killed: known after", process_killed, 1),
    "worker": lambda: compare(
        "the watching process is killed: adopted, or complete by a new one, after", worker_killed, 1
    ),
    "node": lambda: compare("the whole node is killed: running on another after", node_killed, 2),
    "cycle": cycle,
    "sweep": sweep,
}


def main() -> None:
    chosen = sys.argv[1:] or list(CASES)
    unknown = set(chosen) - set(CASES)
    if unknown:
        sys.exit(f"no such case: {', '.join(sorted(unknown))}; there are {', '.join(CASES)}")
    legacy.install()
    if set(chosen) - {"cycle", "sweep"}:
        for name in PEERS:
            install(name)
    for name in chosen:
        CASES[name]()


if __name__ == "__main__":
    main()
