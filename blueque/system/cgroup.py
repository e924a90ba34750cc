"""Control groups of Linux: put the process of a task into one that is ours to use, and read what the
kernel counts there.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Iterator

from blueque.system.procfs import read_plainly

_PROCESSES = "cgroup.procs"  # the file with the pids of a cgroup
_ROOTS = ("/sys/fs/cgroup", "/sys/fs/cgroup/unified")  # of version 2; the second beside version 1
_MEMORY = "/sys/fs/cgroup/memory"  # of version 1
_KILLS = ("memory.events", "memory.oom_control")  # files that count kills, of version 2 and 1


def locate(name: str) -> str:
    """Return the directory of a cgroup. name: that directory, or a path from our own cgroup.

    Raises OSError: there are no cgroups of version 2, from which a path could lead.
    """
    if name.startswith("/"):
        return os.path.normpath(name)
    root = next((root for root in _ROOTS if os.path.exists(f"{root}/{_PROCESSES}")), None)
    with open("/proc/self/cgroup") as file:
        own = [line.partition("::")[2] for line in file.read().splitlines() if line[:3] == "0::"]
    if root is None or not own:
        raise FileNotFoundError(2, "this host has no cgroups of version 2")
    return os.path.normpath(f"{root}{own[0]}/{name}")


def enter(directory: str, pid: int) -> None:
    """Put a process with its threads into the cgroup; not if the process is gone. Raises OSError.

    The cgroup is made if it is missing in another one.
    """
    path = f"{directory}/{_PROCESSES}"
    if not os.path.exists(path) and os.path.exists(f"{directory}/../{_PROCESSES}"):
        os.mkdir(directory)
    try:
        descriptor = os.open(path, os.O_WRONLY)
        try:
            os.write(descriptor, b"%d" % pid)
        finally:
            os.close(descriptor)
    except ProcessLookupError:
        pass


@functools.cache
def own_memory() -> str | None:
    """Return the directory of the cgroup that counts the memory of this process; None: unknown."""
    counting = (place for place in _own() if out_of_memory_kills(place) is not None)
    return next(counting, None)


def out_of_memory_kills(directory: str) -> int | None:
    """Return how many processes of a cgroup the kernel has killed because memory ran out; None: it
    does not say.
    """
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
