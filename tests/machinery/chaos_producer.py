"""Enqueues, schedules, cancels and requeues until told to stop, and writes down what came of each
call, one line for each.

`PYTHONPATH=tests:tests/legacy python tests/machinery/chaos_producer.py URL QUEUE FILE SEED [LOW HIGH
REPLICAS]`: with these it only has a few tasks of LOW to HIGH seconds in line.
"""

from __future__ import annotations

import functools
import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from blueque import Client, Retry, after
from blueque.errors import Contended, InvalidInput, OutcomeUnknown, RedisAway

BACKLOG = 30  # tasks in line that are enough
LAST = 40  # of our tasks that are still interesting
FEW, PACE = 8, 0.15  # tasks in line of a Napper, and seconds between two of its looks
LOCKS = {"one": 1, "two": 2}  # by name: how many may hold it
SAFE = Retry(max=1000, backoff=0.2, factor=1.0, interruptions=1000)


class Producer:
    """One program that uses Blueque."""

    def __init__(self, url: str, queue: str, path: Path, seed: int, replicas: int = 0) -> None:
        self._client = Client(url, patience=1.0, replicas=replicas)
        self._queue, self._inspector = self._client.get_queue(queue), self._client.get_inspector()
        self._path, self._random = path, random.Random(seed)
        self._last: list[str] = []
        self._requeued: set[str] = set()  # once each, or few would end otherwise
        self._is_told_to_stop = False

    def run(self) -> None:
        signal.signal(signal.SIGTERM, self._stop)
        while not self._is_told_to_stop:
            try:
                self._step()
            except (RedisAway, Contended):
                time.sleep(0.05)

    def _stop(self, *_: object) -> None:
        self._is_told_to_stop = True

    def _step(self) -> None:
        die = self._random.random()
        if die < 0.03 and self._last:
            self._cancel(self._random.choice(self._last))
        elif die < 0.12 and self._last:
            self._requeue(self._random.choice(self._last))
        elif self._inspector.pending(self._queue.name) < BACKLOG:
            self._enqueue()
        else:
            time.sleep(0.05)

    def _enqueue(self) -> None:
        die = self._random
        seconds = die.uniform(2, 4) if die.random() < 0.04 else die.uniform(0.005, 0.3)
        how = "fail" if die.random() < 0.03 else "nap"
        is_safe = die.random() < 0.5
        lock = die.choice([*LOCKS]) if die.random() < 0.1 else None
        options: dict[str, Any] = {
            "retry": SAFE if is_safe else None,
            "lock": (lock, LOCKS[lock]) if lock is not None else None,
            "priority": die.choice([-5, 5]) if die.random() < 0.2 else 0,
        }
        parents = die.sample(self._last, min(2, len(self._last))) if die.random() < 0.1 else []
        words = f"{how} {seconds:.3f}"
        call = self._queue.enqueue
        if parents:
            call = functools.partial(call, after=after(any=parents))
        elif die.random() < 0.15:
            call = functools.partial(self._queue.schedule, eta=time.time() + die.uniform(0.1, 3))
        task = self._make(
            lambda: call(words, **options), is_safe=is_safe, how=how, lock=lock, parents=parents
        )
        self._last = [*self._last, task][-LAST:]

    def _make(self, call: Callable[[], str], **facts: Any) -> str:
        """Make a task, and note what came of that."""
        try:
            task = call()
        except OutcomeUnknown as error:
            self._note("unknown", error.task_id, **facts)
            raise
        self._note("accepted", task, **facts)
        return task

    def _cancel(self, task: str) -> None:
        try:
            answer = self._queue.cancel(task, by="chaos")
        except InvalidInput:  # it has ended
            return
        except OutcomeUnknown:
            self._note("cancel", task, answer="unknown")
            raise
        self._note("cancel", task, answer=answer)

    def _requeue(self, task: str) -> None:
        if task in self._requeued or self._client.get_task(task).status not in (
            "failed",
            "cancelled",
        ):
            return
        self._requeued.add(task)
        self._note("consent", task)  # before: what is not answered may have been done
        try:
            self._queue.requeue(task)
        except InvalidInput:
            return

    def _note(self, what: str, task: str | None, **facts: Any) -> None:
        line = json.dumps({"what": what, "task": task, **facts}) + "\n"
        file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.write(file, line.encode())
        os.close(file)


class Napper(Producer):
    """One that has a few tasks of so many seconds in line, and nothing else."""

    def __init__(self, *own: Any, low: float, high: float, replicas: int) -> None:
        super().__init__(*own, replicas=replicas)
        self._seconds = low, high

    def _step(self) -> None:
        time.sleep(PACE)
        if self._inspector.pending(self._queue.name) < FEW:
            words = f"nap {self._random.uniform(*self._seconds):.3f}"
            self._make(lambda: self._queue.enqueue(words))


def main(url: str, queue: str, path: str, seed: str, *naps: str) -> None:
    own = (url, queue, Path(path), int(seed))
    if not naps:
        Producer(*own).run()
        return
    low, high, replicas = map(float, naps)
    Napper(*own, low=low, high=high, replicas=int(replicas)).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
