"""MemoryKills: whether the kernel has killed processes for want of memory."""

from __future__ import annotations

from blueque.system import cgroup, process


class MemoryKills:
    """Compares what the kernel counts with what it counted one or two beats ago.

    It counts for the cgroup of this process. Only if that cannot be read, all kills of this machine
    count, also those of other containers.
    """

    def __init__(self) -> None:
        self._before: int | None = None
        self._last = 0

    def note(self) -> None:
        """Take notice of what is counted now. Call it at each beat."""
        # The end of a task comes a moment after the kill, and a beat may come in between.
        now = _count()
        self._before = now if self._before is None else self._last
        self._last = now

    def are_new(self) -> bool:
        """Return whether there was a kill since the last beat but one."""
        return self._before is not None and _count() > self._before


def _count() -> int:
    place = cgroup.own_memory()
    kills = None if place is None else cgroup.out_of_memory_kills(place)
    return process.out_of_memory_kills() if kills is None else kills
