"""The core beside Blueque 1.0.0, on one Redis in one run: enqueue, drain, pick-up, and what idling costs.

    .venv/bin/python bench/core.py [enqueue] [drain] [pickup] [idle]

Each case runs 1.0.0 and this version in turn, five rounds, and prints the median and range of each and of their ratio. The
ratio is what counts: absolute numbers are this machine's, and of this hour. It starts a Redis of its own; 1.0.0 comes
from the package index into an environment of its own.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

import legacy  # noqa: E402

from blueque import Client  # noqa: E402
from blueque.connection import Redis  # noqa: E402
from blueque.embedded import Server, running_server  # noqa: E402

ROUNDS = 5
WARM_UP = 20                                           # tasks of a drain that are not counted: the programs start meanwhile

HANDLER = """\
import time

def noop(task):
    return ""

def now(task):
    return repr(time.time())
"""

ENQUEUE = """\
import sys, time, blueque
queue = blueque.{client}(sys.argv[1]).get_queue("bench")
for _ in range(200):
    queue.enqueue("x" * 100)
began = time.perf_counter()
for _ in range({count}):
    queue.enqueue("x" * 100)
print({count} / (time.perf_counter() - began))
"""

RUNNER_1_0_0 = """\
import os, sys, blueque
sys.path.insert(0, os.getcwd())
import bench_handler
from blueque.forking_runner import ForkingRunner
ForkingRunner(blueque.Client(sys.argv[1]), "bench", bench_handler.{handler}).run()
"""

FORKS = """\
import os, time
began = time.perf_counter()
for _ in range(1000):
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
print(1000 / (time.perf_counter() - began))
"""


class Bench:
    """One Redis, a directory to work in, and the two versions."""

    def __init__(self, server: Server, directory: Path) -> None:
        self.server, self.directory = server, directory
        (directory / "bench_handler.py").write_text(HANDLER)
        # Compiled once, as an installed module is; else each task process of ours compiles it again.
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        self.client = Client(server.url)
        self.redis: Redis = self.client._redis
        subprocess.run([sys.executable, "-c", "import bench_handler"], cwd=directory, env=self.environment, check=True)

    def start(self, python: str, *arguments: str) -> subprocess.Popen[bytes]:
        environment = self.environment if python != sys.executable else {**self.environment, "PYTHONPATH": str(ROOT)}
        return subprocess.Popen([python, *arguments], cwd=self.directory, env=environment,
                                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def start_legacy(self, handler: str, count: int) -> list[subprocess.Popen[bytes]]:
        code = RUNNER_1_0_0.format(handler=handler)
        return [self.start(str(legacy.PYTHON), "-c", code, self.server.url) for _ in range(count)]

    def start_ours(self, handler: str, slots: int) -> list[subprocess.Popen[bytes]]:
        return [self.start(
            sys.executable, "-m", "blueque.cli.listener", "bench", "--run", f"bench_handler:{handler}",
            "--slots", str(slots), "--redis-url", self.server.url, "--spool", str(self.directory / "spool"),
            "--on-term", "drain",
        )]

    def output(self, python: str, code: str) -> float:
        environment = self.environment if python != sys.executable else {**self.environment, "PYTHONPATH": str(ROOT)}
        done = subprocess.run([python, "-c", code, self.server.url], cwd=self.directory, env=environment,
                              capture_output=True, text=True, check=True)
        return float(done.stdout)

    def empty(self) -> None:
        self.redis.read(("FLUSHALL",))

    def completed(self) -> int:
        return int(self.redis.read(("LLEN", "blueque_complete_tasks_bench"))[0])


def stop(programs: list[subprocess.Popen[bytes]]) -> None:
    for program in programs:
        program.terminate()
    for program in programs:
        try:
            program.wait(10)
        except subprocess.TimeoutExpired:
            program.kill()
            program.wait()


def enqueue(bench: Bench) -> None:
    """Tasks per second, one `queue.enqueue` after the other, 100 bytes each."""

    def run(python: str, client: str) -> float:
        bench.empty()
        return bench.output(python, ENQUEUE.format(client=client, count=3000))

    compare("enqueue one by one, tasks/s", lambda: run(str(legacy.PYTHON), "Client"), lambda: run(sys.executable, "Client"))


def drain(bench: Bench, count: int = 2000) -> None:
    """Tasks per second that do nothing, a process each, two at a time; ours with an exit record synced to the disk."""

    def run(start: Callable[[], list[subprocess.Popen[bytes]]]) -> float:
        bench.empty()
        queue = bench.client.get_queue("bench")
        for _ in range(count):
            queue.enqueue("x" * 100)
        programs = start()
        try:
            while bench.completed() < WARM_UP:
                time.sleep(0.001)
            first, began = bench.completed(), time.perf_counter()
            while bench.completed() < count:
                time.sleep(0.01)
            return (count - first) / (time.perf_counter() - began)
        finally:
            stop(programs)

    ours = compare("drain, 2 slots, a process per task, tasks/s",
                   lambda: run(lambda: bench.start_legacy("noop", 2)), lambda: run(lambda: bench.start_ours("noop", 2)))
    limits = []
    for _ in range(ROUNDS):
        forkers = [subprocess.Popen([sys.executable, "-c", FORKS], stdout=subprocess.PIPE) for _ in range(2)]
        limits.append(sum(float(forker.communicate()[0]) for forker in forkers))
    limit = statistics.median(limits)
    print(f"    fork limit, two bare parents: {limit:.0f} forks/s; our drain is {ours / limit:.0%} of it")


def pickup(bench: Bench, count: int = 30) -> None:
    """Milliseconds from the call of enqueue to the first line of the handler, with an idle listener."""

    def run(start: Callable[[], list[subprocess.Popen[bytes]]], samples: int) -> float:
        bench.empty()
        programs = start()
        queue = bench.client.get_queue("bench")
        delays = []
        try:
            while not bench.redis.read(("SCARD", "blueque_listeners_bench"))[0]:
                time.sleep(0.01)
            for _ in range(samples):
                time.sleep(0.1)                        # let it become idle again
                called = time.time()
                task_id = queue.enqueue("x" * 100)
                while bench.client.get_task(task_id).status != "complete":
                    time.sleep(0.002)
                delays.append(1000 * (float(bench.client.get_task(task_id).result) - called))
        finally:
            stop(programs)
        return statistics.median(delays)

    compare("pick-up, idle listener, p50 ms (lower is better)",
            lambda: run(lambda: bench.start_legacy("now", 1), 8), lambda: run(lambda: bench.start_ours("now", 1), count))


def idle(bench: Bench, seconds: float = 20.0) -> None:
    """What an idle listener with a scheduler beside it costs."""
    bench.empty()
    programs = bench.start_ours("noop", 1)
    programs.append(bench.start(sys.executable, "-m", "blueque.cli.scheduler", "--redis-url", bench.server.url))
    try:
        while not bench.redis.read(("SCARD", "blueque_listeners_bench"))[0]:
            time.sleep(0.01)
        time.sleep(3)                                  # past everything that happens once
        pids = [pid for program in programs for pid in (program.pid, *children(program.pid))]
        before, ticks = commands(bench.redis), [cpu_ticks(pid) for pid in pids]
        time.sleep(seconds)
        seen = commands(bench.redis) - before - 1      # the look before is counted by the look after
        used = sum(cpu_ticks(pid) for pid in pids) - sum(ticks)
    finally:
        stop(programs)
    print(f"idle listener and scheduler, {seconds:.0f} s")
    print(f"    {seen / seconds:.2f} Redis commands/s; {used / os.sysconf('SC_CLK_TCK') / seconds:.2%} of one core")


def commands(redis: Redis) -> int:
    for line in redis.read(("INFO", "stats"))[0].splitlines():
        name, _, value = line.partition(":")
        if name == "total_commands_processed":
            return int(value)
    raise LookupError("total_commands_processed")


def children(pid: int) -> list[int]:
    found = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return found + [grandchild for child in found for grandchild in children(child)]


def cpu_ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def compare(name: str, theirs: Callable[[], float], ours: Callable[[], float]) -> float:
    """Run both in turn, print, and return our median."""
    pairs = []
    for _ in range(ROUNDS):
        pairs.append((theirs(), ours()))
    print(name)
    for label, values in (("1.0.0", [pair[0] for pair in pairs]), ("ours", [pair[1] for pair in pairs])):
        print(f"    {label:6} {statistics.median(values):9.1f}   ({min(values):.1f} - {max(values):.1f})")
    ratios = [pair[1] / pair[0] for pair in pairs]
    print(f"    ratio  {statistics.median(ratios):9.2f}   ({min(ratios):.2f} - {max(ratios):.2f})", flush=True)
    return statistics.median([pair[1] for pair in pairs])


CASES = {"enqueue": enqueue, "drain": drain, "pickup": pickup, "idle": idle}


def main() -> None:
    chosen = sys.argv[1:] or list(CASES)
    unknown = set(chosen) - set(CASES)
    if unknown:
        sys.exit(f"no such case: {', '.join(sorted(unknown))}; there are {', '.join(CASES)}")
    legacy.install()
    with running_server() as server, tempfile.TemporaryDirectory(prefix="blueque-bench-") as directory:
        bench = Bench(server, Path(directory))
        for name in chosen:
            CASES[name](bench)


if __name__ == "__main__":
    main()
