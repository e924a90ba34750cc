"""A steady part beside chaos: a listener, a scheduler and a page that nobody ends, with tasks of
their own.

They have a database of their own in the same Redis, and reach it by the same network, so they live
through each outage. What they use must not grow with the number of tasks that they have had.
"""

from __future__ import annotations

import os
import re
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from chaos_ledger import Lines
from chaos_samples import Usage
from running import Program, Programs, is_keeper, patched, until

from blueque import Client
from blueque.system import process

QUEUE, SLOTS = "steady", 2
KEPT = 5  # seconds for which finished tasks stay, and the files of their attempts
DRAIN = 30.0  # seconds
TOKEN = "of the steady part"
CONFIG = f"""
    [listener]
    keep = "{KEPT}s"

    [retention]
    complete = "{KEPT}s"
"""
WORK = """
    import os, time

    def run(task):
        note("start", task)
        time.sleep(0.01)
        note("end", task)

    def note(what, task):
        ledger = os.open("ledger", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(ledger, f"{what} {task.id}\\n".encode())
        os.close(ledger)
"""
# Else what is to be deleted would leave in heaps, and hide what grows.
OFTEN = patched({"node.master._PRUNE_EVERY": KEPT / 2, "scheduler.scheduler.PRUNE_EVERY": KEPT / 2})


class Steady:
    """control: has no wire in between; url: has one. Both name the database."""

    def __init__(self, control: Client, url: str, directory: Path) -> None:
        directory.mkdir()
        self.control, self._directory = control, directory
        self.programs = Programs(url, directory, OFTEN | {"BLUEQUE_WEB_TOKEN": TOKEN})
        self._of: dict[str, Program] = {}
        self._lines = {name: Lines(directory / name) for name in ("ledger", "told")}
        self.seen: dict[str, Counter[str]] = {
            what: Counter() for what in ("start", "end", "accepted", "unknown")
        }
        self.usage = Usage()

    def open(self) -> None:
        programs = self.programs
        programs.write(WORK)
        file = str(programs.write(CONFIG, "blueque.toml"))
        work = ("work:run", "--reuse", "20", "--config", file)
        self._of["master"] = programs.listener(*work, queue=QUEUE, slots=SLOTS, is_awaited=False)
        self._of["scheduler"] = programs.start(
            [sys.executable, "-m", "blueque.cli.scheduler", "--redis-url", programs.url]
            + ["--config", file]
        )
        page = self._of["page"] = programs.start(
            [sys.executable, "-m", "blueque.cli.main", "web", "--listen", "127.0.0.1:0"]
            + ["--redis-url", programs.url, "--config", file]
        )
        address = until(lambda: re.search(r"http://[^/\s]+", page.log), 60.0, "the page")
        user = str(Path(__file__).parent / "chaos_user.py")
        told = str(self._directory / "told")
        self._of["user"] = programs.start(
            [sys.executable, user, programs.url, QUEUE, told, address[0], TOKEN]
        )

    def sample(self, is_redis_well: bool) -> None:
        """Note what all of it uses, until it is to end."""
        self._read()
        if "user" not in self._of:
            return
        usage, tasks = self.usage, self.tasks
        usage.processes("master", [self._of["master"].pid], tasks)
        slots = process.children(self._of["master"].pid)
        usage.processes("slots", slots, tasks)
        keepers = {pid for slot in slots for pid in process.children(slot) if is_keeper(pid)}
        usage.processes("keepers", keepers, tasks)
        for name in ("scheduler", "page"):
            usage.processes(name, [self._of[name].pid], tasks)
        sizes = list(_sizes(self._directory / "spool"))
        usage.take("spool", "files", tasks, len(sizes))
        usage.take("spool", "bytes", tasks, sum(sizes))
        if is_redis_well:
            usage.take("Redis", "keys", tasks, self.control.connections.read(("DBSIZE",))[0])

    def ended(self) -> list[str]:
        """Return in sentences which programs have ended by themselves, each of them once."""
        gone = [name for name, program in self._of.items() if not program.is_running]
        return [
            f"the {name} of the steady part has ended by itself: {self._of.pop(name).log[-2000:]}"
            for name in gone
        ]

    def finish(self, wait: Callable[[Callable[[], bool], float, str], object]) -> list[str]:
        """Have it all end, and return in sentences what is wrong.

        wait: waits until something is so, for so many seconds, and takes what it waits for in words.
        """
        wrong = self.ended()
        user = self._of.pop("user", None)
        if user is not None:
            user.send(signal.SIGTERM)
            wait(lambda: not user.is_running, DRAIN, "the end of the user")
        wait(lambda: not self._unended(), DRAIN, "the end of each task of the steady part")
        for name, program in self._of.items():
            program.send(signal.SIGTERM)
            wait(lambda program=program: not program.is_running, DRAIN, f"the end of the {name}")  # type: ignore[misc]
        self._of.clear()
        self._read()
        return wrong + self._wrong() + self.usage.wrong()

    def _unended(self) -> list[str]:
        self._read()
        ended = self.seen["end"]
        return [task for task in self.seen["accepted"] if task not in ended]

    def _wrong(self) -> list[str]:
        """Return in sentences which tasks have not run exactly once."""
        seen = self.seen
        wrong = [
            f"steady task {task} was started {seen['start'][task]} times, and came {seen['end'][task]} times to its end"
            for task in seen["accepted"]
            if (seen["start"][task], seen["end"][task]) != (1, 1)
        ]
        wrong += [
            f"steady task {task}, whose answer was lost, was started {count} times"
            for task, count in seen["start"].items()
            if count > 1 and task not in seen["accepted"]
        ]
        return wrong

    @property
    def tasks(self) -> int:
        """How many have ended."""
        return self.seen["end"].total()

    @property
    def lost(self) -> int:
        return len(self._unended())

    @property
    def doubled(self) -> int:
        return sum(count > 1 for count in self.seen["start"].values())

    def _read(self) -> None:
        for lines in self._lines.values():
            for line in lines:
                what, _, task = line.partition(" ")
                self.seen[what][task] += 1


def _sizes(directory: Path) -> Iterator[int]:
    """Yield the size of each file; those that go meanwhile are left out."""
    for parent, _, names in os.walk(directory):
        for name in names:
            try:
                yield os.stat(os.path.join(parent, name)).st_size
            except OSError:
                continue
