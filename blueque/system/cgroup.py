"""Control groups of Linux: put the process of a task into one that is ours to use."""

from __future__ import annotations

import os

_PROCESSES = "cgroup.procs"  # the file with the pids of a cgroup
_ROOTS = ("/sys/fs/cgroup", "/sys/fs/cgroup/unified")  # of version 2; the second beside version 1


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
