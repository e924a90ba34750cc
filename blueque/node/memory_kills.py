"""MemoryKills: whether the kernel has killed processes because memory ran out."""

from __future__ import annotations

from blueque.system import cgroup, process


class MemoryKills:
    """Compares the kernel's count of kills with that of one or two beats ago.

    The count is that of the cgroup of this process. If it cannot be read, all kills of this machine
    count, also those of other containers.
    """

    def __init__(self) -> None:
        self._before: int | None = None
        self._last = 0

    def note(self) -> None:
        """Read the present count. Call it at each beat."""
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
