"""/proc: what the kernel tells of processes in one read each."""

from __future__ import annotations

import os
from collections.abc import Iterator


def read_stat(pid: int) -> list[bytes]:
    """Return the fields of /proc/[pid]/stat from the third on, the state; nothing when there is no such process."""
    try:
        descriptor = os.open(f"/proc/{pid}/stat", os.O_RDONLY)     # open() takes twice as long, and a tree reads hundreds
        try:
            stat = os.read(descriptor, 4096)
        finally:
            os.close(descriptor)
    except OSError:
        return []
    # The second field is the program's name in parentheses and may hold anything; count from its end.
    return stat.rpartition(b") ")[2].split(None, 22)


def read_all_stats() -> Iterator[tuple[int, list[bytes]]]:
    """Yield the pid and the fields (see `read_stat`) of every process of this host."""
    for name in os.listdir("/proc"):
        if name.isdecimal() and (fields := read_stat(int(name))):
            yield int(name), fields


def has_ended(fields: list[bytes]) -> bool:
    """Tell whether the process with these fields (see `read_stat`) waits to be reaped and does nothing else."""
    return fields[0] in (b"Z", b"X") and int(fields[17]) < 2       # its first thread may have ended before the others
