"""A steady part beside chaos: a listener, a scheduler and a page that nobody ends, with tasks of
their own.

They have a database of their own in the same Redis, and reach it by the same network, so they live
through each outage. What they use must not grow with the number of tasks that they have had.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from chaos_ledger import Ledger, Promises, doubled
from chaos_node import QUEUE, Node, start_producer
from chaos_samples import Usage
from chaos_services import Network
from running import BLUEQUE, Program, is_keeper, patched, until

from blueque import Client
from blueque.system import process

KEPT = 5  # seconds for which finished tasks stay, and the files of their attempts
DRAIN = 30.0  # seconds
LOOK_EVERY, ANSWER = 1.0, 10.0  # seconds between two looks at the page, and that it may take
TOKEN = "of the steady part"
CONFIG = f"""
    [listener]
    keep = "{KEPT}s"

    [retention]
    complete = "{KEPT}s"
"""
# Else what is to be deleted would leave in heaps, and hide what grows.
OFTEN = patched({"node.master._PRUNE_EVERY": KEPT / 2, "scheduler.scheduler.PRUNE_EVERY": KEPT / 2})


class Steady:
    """control: has no wire in between; network: has one. Both name the database."""

    def __init__(self, control: Client, network: Network, directory: Path, seed: int) -> None:
        directory.mkdir()
        self.control, self._directory, self._seed = control, directory, seed
        more = OFTEN | {"BLUEQUE_WEB_TOKEN": TOKEN}
        work = ("--reuse", "20", "--config", "blueque.toml")
        self.node = Node("node", network, directory, *work, slots=2, environ=more)
        self._of: dict[str, Program] = {}
        self.ledger = Ledger(directory / "ledger")
        self.promises = Promises(directory / "accepted")
        self.usage = Usage()
        self._is_over = threading.Event()

    def open(self) -> None:
        programs = self.node.programs
        programs.write(CONFIG, "blueque.toml")
        self.node.start()
        assert self.node.listener is not None
        self._of["master"] = self.node.listener
        own = ("--redis-url", programs.url, "--config", "blueque.toml")
        self._of["scheduler"] = programs.start(
            [sys.executable, "-m", "blueque.cli.scheduler", *own]
        )
        page = programs.start([*BLUEQUE, "web", "--listen", "127.0.0.1:0", *own])
        self._of["page"] = page
        address = until(lambda: re.search(r"http://([^/\s]+)", page.log), 60.0, "the page")
        threading.Thread(target=self._look_on, args=(address[1],), daemon=True).start()
        self._of["producer"] = start_producer(
            programs, self._directory / "accepted", self._seed, 0.01, 0.01, 0
        )

    def _look_on(self, place: str) -> None:
        """Look at two pages now and then, as a browser with a login does."""
        cookie = ""
        while not self._is_over.wait(LOOK_EVERY):
            with contextlib.suppress(OSError, http.client.HTTPException):
                cookie = cookie or _log_in(place)
                for path in ("/", f"/queues/{QUEUE}"):
                    _ask(place, "GET", path, headers={"Cookie": cookie})

    def sample(self, is_redis_well: bool) -> None:
        """Note what all of it uses, until it is to end."""
        self._read()
        if "producer" not in self._of:
            return
        usage, tasks = self.usage, self.tasks
        usage.processes("master", [self._of["master"].pid], tasks)
        slots = process.children(self._of["master"].pid)
        usage.processes("slots", slots, tasks)
        keepers = {pid for slot in slots for pid in process.children(slot) if is_keeper(pid)}
        usage.processes("keepers", keepers, tasks)
        for name in ("scheduler", "page"):
            usage.processes(name, [self._of[name].pid], tasks)
        sizes = list(_sizes(self.node.programs.directory / "spool"))
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
        self._is_over.set()
        for name in ("producer", "master", "scheduler", "page"):
            program = self._of.pop(name, None)
            if program is not None:
                program.send(signal.SIGTERM)
                wait(
                    lambda program=program: not program.is_running, DRAIN, f"the end of the {name}"
                )  # type: ignore[misc]
            if name == "producer":
                wait(lambda: not self.lost, DRAIN, "the end of each task of the steady part")
        wrong += [f"steady task {task} has not come to its end" for task in self.lost]
        return wrong + self.doubled + self.usage.wrong()

    @property
    def tasks(self) -> int:
        """How many have ended."""
        return sum(run.ended for run in self.ledger.runs)

    @property
    def lost(self) -> list[str]:
        self._read()
        ended = {run.task for run in self.ledger.runs if run.ended}
        return [
            task
            for task, promise in self.promises.tasks.items()
            if promise.is_accepted and task not in ended
        ]

    @property
    def doubled(self) -> list[str]:
        return doubled(self.ledger.runs, self.promises.tasks)

    def _read(self) -> None:
        self.ledger.read()
        self.promises.read()


def _sizes(directory: Path) -> Iterator[int]:
    """Yield the size of each file; those that go meanwhile are left out."""
    for parent, _, names in os.walk(directory):
        for name in names:
            try:
                yield os.stat(os.path.join(parent, name)).st_size
            except OSError:
                continue


def _log_in(place: str) -> str:
    headers = {"Sec-Fetch-Site": "same-origin", "Content-Type": "application/x-www-form-urlencoded"}
    answer = _ask(place, "POST", "/login", f"token={TOKEN}", headers)
    return (answer.getheader("set-cookie") or "").partition(";")[0]


def _ask(place: str, *request: Any, **more: Any) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection(place, timeout=ANSWER)
    with contextlib.closing(connection):
        connection.request(*request, **more)
        answer = connection.getresponse()
        answer.read()
    return answer
