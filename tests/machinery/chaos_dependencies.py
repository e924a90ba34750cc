"""A chain of tasks, and a crowd that one task lets go and another waits for, while listeners and
schedulers are killed again and again.

`PYTHONPATH=tests:tests/machinery python tests/machinery/chaos_dependencies.py [--chain 10000]
[--crowd 100000] [--seed N] [--directory DIR]` prints what happened, and exits 1 when a task began
twice, or before one for which it waits, or never.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from running import Listener, Program, Programs, is_there
from transactions import protocol

import blueque
from blueque import Client
from blueque.model.conditions import OK
from blueque.model.group import Group
from blueque.model.ids import random_id
from blueque.model.new_task import NewTask
from blueque.system.embedded_redis import running_server

CHAIN, CROWD = "chain", "crowd"  # queues
BETWEEN_KILLS = (0.3, 1.2)  # seconds
STANDSTILL = 60.0  # seconds in which some task must begin

# A line when it begins and when it ends. Lines of one file in the order in which they were written.
WORK = """
    import os

    ledger = os.open("ledger", os.O_WRONLY | os.O_CREAT | os.O_APPEND)


    def run(task):
        os.write(ledger, f"begins {task.id}\\n".encode())
        os.write(ledger, f"ends {task.id}\\n".encode())
"""


class Killer:
    """Keeps two listeners for each queue and two schedulers, and kills some process now and then."""

    def __init__(self, programs: Programs, seed: int) -> None:
        self._programs, self._random = programs, random.Random(seed)
        self._queues = [CHAIN, CROWD, CHAIN, CROWD]
        self._listeners: list[Listener] = [self._listener(queue) for queue in self._queues]
        self._schedulers: list[Program] = [programs.scheduler() for _ in range(2)]
        self._next = time.monotonic() + 1.0
        self.kills: dict[str, int] = {"a listener": 0, "a master": 0, "a scheduler": 0}

    def _listener(self, queue: str) -> Listener:
        reuse = ("--reuse", "50") if queue == CROWD else ()
        return self._programs.listener(
            "work:run", "--beat", "0.5s", *reuse, queue=queue, slots=2, is_awaited=False
        )

    def step(self) -> None:
        """Kill a process if it is time, and start what was killed before."""
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + self._random.uniform(*BETWEEN_KILLS)
        for place, listener in enumerate(self._listeners):
            if not listener.is_running:
                self._listeners[place] = self._listener(self._queues[place])
        for place, scheduler in enumerate(self._schedulers):
            if not scheduler.is_running:
                self._schedulers[place] = self._programs.scheduler()
        kind = self._random.choice(sorted(self.kills))
        if kind == "a scheduler":
            self._kill(kind, self._random.choice(self._schedulers).pid)
        elif kind == "a master":
            self._kill(kind, self._random.choice(self._listeners).pid)
        elif slots := self._random.choice(self._listeners).slots():
            self._kill(kind, self._random.choice(slots))

    def _kill(self, kind: str, pid: int) -> None:
        if is_there(pid):
            os.kill(pid, signal.SIGKILL)
            self.kills[kind] += 1


class Flow:
    """The tasks: a chain, and first, crowd and last."""

    def __init__(self, client: Client, chain: int, crowd: int) -> None:
        self._client = client
        self.chain = list(self._make_chain(chain))
        queue = client.get_queue(CROWD)
        self.first = queue.schedule("first", time.time() + 5)
        redis, group = client.connections, Group("crowd")
        protocol.open_group(redis, group.name, 3600, time.time())
        self.crowd = [random_id() for _ in range(crowd)]
        for begin in range(0, crowd, 100):
            some = self.crowd[begin : begin + 100]
            new = [
                NewTask(task, CROWD, "", {"group": group.name}, {self.first: OK}) for task in some
            ]
            protocol.enqueue_after(redis, new, time.time())
        protocol.close_group(redis, group.name, time.time())
        self.last = queue.enqueue("last", after=blueque.after(ok=group))

    def _make_chain(self, length: int) -> Iterator[str]:
        queue = self._client.get_queue(CHAIN)
        task = queue.schedule("0", time.time() + 5)
        yield task
        for number in range(1, length):
            task = queue.enqueue(str(number), after=[task])
            yield task

    @property
    def size(self) -> int:
        return len(self.chain) + len(self.crowd) + 2

    def wrongs(self, lines: Sequence[str]) -> list[str]:
        """Return what is wrong with the order of the lines of the ledger."""
        begun: dict[str, int] = {}
        ended: dict[str, int] = {}
        found: list[str] = []
        for place, line in enumerate(lines):
            what, task = line.split()
            if what == "begins" and task in begun:
                found.append(f"{task} has begun twice")
            (begun if what == "begins" else ended).setdefault(task, place)
        pairs = [*pairwise(self.chain)]
        pairs += [pair for task in self.crowd for pair in ((self.first, task), (task, self.last))]
        for parent, child in pairs:
            if child not in begun:
                found.append(f"{child} has never begun")
            elif ended.get(parent, len(lines)) > begun[child]:
                found.append(f"{child} has begun before {parent} had ended")
        return found


def chaos(chain: int, crowd: int, seed: int, directory: Path) -> tuple[list[str], str]:
    """Have it all happen. Return what is wrong, and a report."""
    with running_server() as server, Programs(server.url, directory) as programs:
        programs.write(WORK)
        began = time.monotonic()
        flow = Flow(programs.client, chain, crowd)
        made = time.monotonic() - began
        killer, ledger = Killer(programs, seed), directory / "ledger"
        size, changed = 0, time.monotonic()
        while (status := programs.client.get_task(flow.last).status) != "complete" or (
            programs.client.get_task(flow.chain[-1]).status != "complete"
        ):
            killer.step()
            grown = ledger.stat().st_size if ledger.exists() else 0
            if grown != size:
                size, changed = grown, time.monotonic()
            if time.monotonic() - changed > STANDSTILL:
                return [f"nothing has begun for {STANDSTILL:g} s; the last task is {status}"], ""
            time.sleep(0.01)
        took = time.monotonic() - began
        wrong = flow.wrongs(ledger.read_text().splitlines())
        kills = ", ".join(f"{count} x {kind}" for kind, count in killer.kills.items())
        return wrong, (
            f"seed {seed}: {flow.size:,} tasks, made in {made:.1f} s, done in {took:.1f} s; "
            f"killed: {kills}"
        )


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--chain", type=int, default=10_000)
    parser.add_argument("--crowd", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(2), "big"))
    parser.add_argument("--directory", type=Path)
    options = parser.parse_args()
    directory = options.directory or Path(tempfile.mkdtemp(prefix="blueque-dependencies."))
    directory.mkdir(exist_ok=True)
    wrong, report = chaos(options.chain, options.crowd, options.seed, directory)
    print(report, *wrong[:20], sep="\n")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
