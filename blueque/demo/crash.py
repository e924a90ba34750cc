"""The middle of the demo: a listener is killed with -9, and its task goes on and is finished once."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from blueque.client import Client
from blueque.demo.programs import WentWrong
from blueque.model.task import Task
from blueque.queries.history import History
from blueque.system import process

UNDER_WAY = 1.0  # seconds that a task has run when its listener is killed
LATE = 3.0  # seconds after which any running task will do


class Killed(NamedTuple):
    """A task whose listener was killed. pid: of the process of the task."""

    task: str
    listener: int
    pid: int | None


class Crash:
    """Kills a listener while its task runs, once, and follows that task.

    master: the pid of the program whose listeners may be killed. names: of the tasks, by id.
    """

    def __init__(self, client: Client, master: int, names: Mapping[str, str]) -> None:
        self._client = client
        self._master = master
        self._names = names
        self._began = time.monotonic()
        self._killed: Killed | None = None
        self._is_adopted = False

    def step(self, running: Sequence[Task], ended: Mapping[str, Task]) -> Iterator[str]:
        """Kill the listener of one of these running tasks; later, see who has adopted the task. Yield
        what there is to say.
        """
        if self._is_adopted:
            return
        if self._killed is None:
            self._killed = self._kill(running)
            if self._killed is not None:
                name, listener, pid = self._names[self._killed.task], *self._killed[1:]
                yield f"kill -9 {listener}, the listener of {name}: process {pid} runs on"
            return
        task = self._killed.task
        adopter = _by(self._client.get_history(task), "adopted")
        if adopter:
            self._is_adopted = True
            yield f"listener {_pid(adopter)} has adopted {self._names[task]}: still process {self._killed.pid}"
        elif task in ended:  # its end was reported before the kill
            self._killed = None

    def print_proof(self, page: str | None) -> None:
        """Print what became of the task. page: the address of the page. Raises WentWrong."""
        history = None if self._killed is None else self._client.get_history(self._killed.task)
        if self._killed is None or _by(history, "adopted") is None:
            print("\nNo task ran long enough for its listener to be killed.")
            return
        task = self._client.get_task(self._killed.task)
        counts = Counter(event.event for event in history.events) if history else Counter()
        wanted = {"started": 1, "adopted": 1, "complete": 1}
        found = {name: counts[name] for name in wanted}
        if (found, task.attempt, task.pid) != (wanted, 1, self._killed.pid):
            raise WentWrong(f"{self._names[task.id]} went on otherwise than it should: {found}")
        print(
            f"\n{self._names[task.id]} has lost its listener {self._killed.listener} to kill -9 in mid-task:"
        )
        print(f"  1 start, 1 adoption, 1 end, all in process {task.pid};")
        print(f"  listener {_pid(task.node)} has reported it")
        if page is not None:
            print(f"  {page}/tasks/{task.id}")

    def _kill(self, running: Sequence[Task]) -> Killed | None:
        """Kill the listener of the task that has run longest, once that is under way."""
        now = self._client.get_inspector().now()
        task = min(running, key=lambda task: task.started or now, default=None)
        if task is None:
            return None
        is_late = time.monotonic() - self._began > LATE
        listener = _pid(task.node)
        if not is_late and now - (task.started or now) < UNDER_WAY:
            return None
        if listener not in process.children(self._master):  # it ends already
            return None
        with contextlib.suppress(ProcessLookupError):
            os.kill(listener, signal.SIGKILL)
        return Killed(task.id, listener, task.pid)


def _by(history: History | None, event: str) -> str | None:
    """Return who caused the last event of this name."""
    events = history.events if history is not None else []
    return next((one.by for one in reversed(events) if one.event == event), None)


def _pid(node: str | None) -> int:
    return int((node or "").rpartition("_")[2] or 0)
