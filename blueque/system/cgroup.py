"""Control groups of Linux: read the kernel's counters for that of this process."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Iterator

from blueque.system.procfs import read_plainly

_ROOTS = ("/sys/fs/cgroup", "/sys/fs/cgroup/unified")  # of version 2; the second beside version 1
_MEMORY = "/sys/fs/cgroup/memory"  # of version 1
_KILLS = ("memory.events", "memory.oom_control")  # files that count kills, of version 2 and 1


@functools.cache
def own_memory() -> str | None:
    """Return the directory of the cgroup that counts the memory of this process; None: unknown."""
    counting = (place for place in _own() if out_of_memory_kills(place) is not None)
    return next(counting, None)


def out_of_memory_kills(directory: str) -> int | None:
    """Return how many processes of a cgroup the kernel has killed because memory ran out; None: unknown."""
    for name in _KILLS:
        with contextlib.suppress(OSError):
            for line in read_plainly(f"{directory}/{name}").splitlines():
                if line.startswith(b"oom_kill "):
                    return int(line.split()[1])
    return None


def _own() -> Iterator[str]:
    """Yield where the cgroup of this process may be. A container may see its own one as the root."""
    with contextlib.suppress(OSError):
        for line in read_plainly("/proc/self/cgroup").decode("utf-8", "replace").splitlines():
            _, controllers, path = line.split(":", 2)
            roots = _ROOTS if not controllers else (_MEMORY,) * ("memory" in controllers.split(","))
            for root in roots:
                yield from (os.path.normpath(f"{root}{path}"), root)
