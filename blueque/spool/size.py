"""How much room a spool takes on the disk, and which attempts go first when that is too much."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from typing import NamedTuple

from blueque.spool.attempt import is_wanted


class Shrunk(NamedTuple):
    """What has come of it: how many attempts were removed, and how many bytes are still there."""

    removed: int
    size: int


def shrink(attempts: Iterator[str], most: int, remove: Callable[[str], None]) -> Shrunk:
    """Remove attempts whose end Redis knows, the longest known first, until all take no more than
    so many bytes.

    attempts: their directories. What runs, and what Redis does not know yet, stays, whatever it
    takes; what the next attempt may go on from goes last. remove: removes one.
    """
    size = 0
    reported: list[tuple[bool, float, int, str]] = []
    for path in attempts:
        its = size_of(path)
        size += its
        try:
            reported.append((is_wanted(path), os.lstat(f"{path}/reported").st_mtime, its, path))
        except OSError:  # it runs, or nobody has told Redis yet
            continue
    removed = 0
    for _, _, its, path in sorted(reported):
        if size <= most:
            break
        remove(path)
        try:
            os.rmdir(os.path.dirname(path))  # only succeeds when it is empty
        except OSError:
            pass
        removed, size = removed + 1, size - its
    return Shrunk(removed, size)


def size_of(path: str) -> int:
    """Return how many bytes of the disk a directory takes with all in it. What is gone meanwhile
    takes none.
    """
    total = 0
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                status = entry.stat(follow_symlinks=False)
                if stat.S_ISDIR(status.st_mode):
                    total += size_of(entry.path)
                total += (
                    status.st_blocks
                    * 512
                    // max(status.st_nlink if stat.S_ISREG(status.st_mode) else 1, 1)
                )
    except (OSError, RecursionError):  # the second: a task may nest a thousand directories
        pass
    return total


def allowed(root: str, limit: float) -> int:
    """Return a limit in bytes. limit: bytes, or below 1 a share of the disk that the directory is
    on.
    """
    if limit >= 1:
        return int(limit)
    disk = os.statvfs(root)
    return int(disk.f_blocks * disk.f_frsize * limit)
