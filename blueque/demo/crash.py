"""The middle of the demo: a listener is killed with -9, and its task continues and is finished once."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import psutil

from blueque.client import Client
from blueque.demo.programs import WentWrong
from blueque.model.task import Task
from blueque.queries.history import Event

UNDER_WAY = 1.0  # seconds that a task has run when its listener is killed
LATE = 3.0  # seconds after which any running task will do


class Crash:
    """Kills a listener while its task runs, once, and follows that task. names: of the tasks, by id."""

    def __init__(self, client: Client, names: Mapping[str, str]) -> None:
        self._client, self._names = client, names
        self._began = time.monotonic()
        self._task: Task | None = None  # whose listener was killed
        self._is_adopted = False

    def step(self, running: Sequence[Task], ended: Mapping[str, Task]) -> Iterator[str]:
        """Kill the listener of one of these running tasks; later, find out who has adopted the task.

        Yield what to print.
        """
        if self._is_adopted:
            return
        if self._task is None:
            self._task = task = self._kill(running)
            if task is not None:
                name = self._names[task.id]
                yield f"kill -9 {_pid(task.node)}, the listener of {name}: process {task.pid} runs on"
            return
        task = self._task
        adopter = next((event.by for event in self._events(task) if event.event == "adopted"), None)
        if adopter:
            self._is_adopted = True
            yield f"listener {_pid(adopter)} has adopted {self._names[task.id]}: still process {task.pid}"
        elif task.id in ended:  # its end was reported before the kill
            self._task = None

    def print_proof(self, page: str | None) -> None:
        """Print what became of the task. page: the address of the page. Raises WentWrong."""
        if self._task is None or not self._is_adopted:
            print("\nNo task ran long enough for its listener to be killed.")
            return
        task = self._client.get_task(self._task.id)
        counts = Counter(event.event for event in self._events(task))
        wanted = {"started": 1, "adopted": 1, "complete": 1}
        found = {name: counts[name] for name in wanted}
        if (found, task.attempt, task.pid) != (wanted, 1, self._task.pid):
            raise WentWrong(f"{self._names[task.id]} did not go on as it should: {found}")
        print(
            f"\n{self._names[task.id]} has lost its listener {_pid(self._task.node)} to kill -9 in mid-task:"
        )
        print(f"  1 start, 1 adoption, 1 end, all in process {task.pid};")
        print(f"  listener {_pid(task.node)} has reported it")
        if page is not None:
            print(f"  {page}/tasks/{task.id}")

    def _kill(self, running: Sequence[Task]) -> Task | None:
        """Kill the listener of the task that has run longest, once it is well under way."""
        now = self._client.get_inspector().now()
        task = min(running, key=lambda task: task.started or now, default=None)
        if task is None:
            return None
        is_late = time.monotonic() - self._began > LATE
        if not is_late and now - (task.started or now) < UNDER_WAY:
            return None
        below = psutil.Process().children(recursive=True)
        listener = next((each for each in below if each.pid == _pid(task.node)), None)
        if listener is None:  # it has ended
            return None
        with contextlib.suppress(psutil.NoSuchProcess):
            listener.kill()
        return task

    def _events(self, task: Task) -> Sequence[Event]:
        history = self._client.get_history(task.id)
        return history.events if history is not None else ()


def _pid(node: str | None) -> int:
    return int((node or "").rpartition("_")[2] or 0)
