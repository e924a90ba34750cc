"""MemoryKills: whether the kernel has killed processes of tasks for want of memory."""

from __future__ import annotations

from collections.abc import Iterable

from blueque.node.options import InEffect
from blueque.system import cgroup, process


class MemoryKills:
    """Compares what the kernel counts with what it counted one or two beats ago.

    It counts for a cgroup: that of the tasks of a queue, or else ours. Only if neither can be read,
    all kills of this machine count, also those of other containers.
    """

    def __init__(self, defaults: InEffect, queues: Iterable[str]) -> None:
        self._defaults, self._queues = defaults, queues
        self._before: dict[str, int] = {}
        self._last: dict[str, int] = {}

    def note(self) -> None:
        """Take notice of what is counted now. Call it at each beat."""
        # The end of a task comes a moment after the kill, and a beat may come in between.
        now = {queue: self._count(queue) for queue in self._queues}
        self._before, self._last = self._last or now, now

    def are_new(self, queue: str) -> bool:
        """Tell whether there was a kill among the tasks of a queue since the last beat but one."""
        return queue in self._before and self._count(queue) > self._before[queue]

    def _count(self, queue: str) -> int:
        for place in (self._defaults.of(queue).surroundings.cgroup, cgroup.own_memory()):
            if place is not None and (kills := cgroup.out_of_memory_kills(place)) is not None:
                return kills
        return process.out_of_memory_kills()
