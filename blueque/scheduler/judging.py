"""Finds out which listeners have died, and does what their tasks need."""

from __future__ import annotations

import time
from collections.abc import Iterable

from blueque.client import Client
from blueque.producer.queue import Queue
from blueque.queries.beats import Beats
from blueque.queries.queue_changes import Lookout
from blueque.recovery.judge import Recovery
from blueque.recovery.observed import LOOK_AT_STARTED
from blueque.scheduler.refused import RefusedQueues

AFTER_FAILURE = 1.0  # seconds before a queue is looked at again whose look has failed


class Judging:
    """Checks the listeners of each queue in turn, and at once when their number changes.

    observed: the queues that have listeners, as far as we know.
    """

    def __init__(self, client: Client, lookout: Lookout, refused: RefusedQueues) -> None:
        self.observed: set[str] = set()
        self._lookout, self._refused = lookout, refused
        self._beats = Beats(client.connections.connect)
        self._recovery = Recovery(client.connections, self._beats.observe)
        self._look_at: dict[str, float] = {}  # queue -> when to look again, on the monotonic clock
        self._numbers: dict[str, float] = {}  # queue -> how many listeners it had at the last look

    def step(self) -> None:
        """Check the listeners of the queues that are due."""
        self._forget_gone()
        due = [name for name in self._lookout.views if self._is_due(name)]
        new = [name for name in due if name not in self.observed]
        empty = set(new).difference(self._beats.with_listeners(new))
        for name in due:
            if name in empty:
                self._note_look(name, LOOK_AT_STARTED)
            else:
                self._refused.attempt(name, "judge", self._judge)

    def times(self) -> Iterable[float]:
        """Return when to look at each queue again, on the monotonic clock."""
        return self._look_at.values()

    def close(self) -> None:
        self._beats.close()

    def _forget_gone(self) -> None:
        for gone in self._look_at.keys() - self._lookout.views.keys():
            self._recovery.forget(gone)
            self._beats.forget(gone)
            self.observed.discard(gone)
            del self._look_at[gone], self._numbers[gone]

    def _is_due(self, name: str) -> bool:
        is_due = time.monotonic() >= self._look_at.get(name, 0.0)
        has_changed = self._numbers.get(name) != self._lookout.listeners.get(name)
        return (is_due or has_changed) and name not in self._refused

    def _judge(self, queue: Queue) -> None:
        self.observed.add(queue.name)
        self._note_look(queue.name, AFTER_FAILURE)
        self._recovery.step([queue.name])
        self._look_at[queue.name] = time.monotonic() + self._recovery.rest([queue.name])

    def _note_look(self, name: str, rest: float) -> None:
        """Record that a queue is checked now, and for how many seconds it needs no other check."""
        self._numbers[name] = self._lookout.listeners.get(name, 0.0)
        self._look_at[name] = time.monotonic() + rest
