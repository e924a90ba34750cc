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
        self._defaults, self._queues = defaults, tuple(queues)
        self._places: dict[str, str | None] = {}  # by queue; None: the machine
        self._before: dict[str | None, int] = {}
        self._last: dict[str | None, int] = {}

    def note(self) -> None:
        """Take notice of what is counted now. Call it at each beat."""
        if not self._places:
            self._find_places()
        # The end of a task comes a moment after the kill, and a beat may come in between.
        now = {place: _count(place) for place in {*self._places.values()}}
        self._before, self._last = self._last or now, now

    def are_new(self, queue: str) -> bool:
        """Tell whether there was a kill among the tasks of a queue since the last beat but one."""
        place = self._places.get(queue)
        return place in self._before and _count(place) > self._before[place]

    def _find_places(self) -> None:
        own = cgroup.own_memory()
        for queue in self._queues:
            named = self._defaults.of(queue).surroundings.cgroup
            is_counted = named is not None and cgroup.out_of_memory_kills(named) is not None
            self._places[queue] = named if is_counted else own


def _count(place: str | None) -> int:
    found = None if place is None else cgroup.out_of_memory_kills(place)
    return process.out_of_memory_kills() if found is None else found
