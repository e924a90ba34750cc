"""The size of a spool on the disk, and which attempts are removed when it is too large."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from typing import NamedTuple

from blueque.spool.attempt import is_wanted


class Shrunk(NamedTuple):
    """The result: how many attempts were removed, and how many bytes are left."""

    removed: int
    size: int


def shrink(attempts: Iterator[str], most: int, remove: Callable[[str], None]) -> Shrunk:
    """Remove attempts whose end Redis knows, longest known first, until the spool takes at most
    `most` bytes.

    attempts: their directories. Running attempts, and those whose end Redis does not know, are
        never removed. Attempts whose files the next attempt may need are removed last.
    remove: removes the directory of an attempt.
    """
    size = 0
    reported: list[tuple[bool, float, int, str]] = []
    for path in attempts:
        its = size_of(path)
        size += its
        try:
            reported.append((is_wanted(path), os.lstat(f"{path}/reported").st_mtime, its, path))
        except OSError:  # it runs, or its end is not reported to Redis yet
            continue
    removed = 0
    for _, _, its, path in sorted(reported):
        if size <= most:
            break
        remove(path)
        removed, size = removed + 1, size - its
    return Shrunk(removed, size)


def size_of(path: str) -> int:
    """Return the disk usage of a directory in bytes. A file that vanishes meanwhile counts as 0."""
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
    """Return a limit in bytes. limit: bytes, or below 1 a share of the disk of the directory."""
    if limit >= 1:
        return int(limit)
    disk = os.statvfs(root)
    return int(disk.f_blocks * disk.f_frsize * limit)
