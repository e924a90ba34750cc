"""Locks on ranges of bytes of a file that belong to an open file, not to a process: F_OFD_SETLK of
fcntl(2).
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
from collections.abc import Iterator

# struct flock of 64-bit Linux: type, whence, start, length, pid.
_FLOCK = struct.Struct("@hhqqi4x")
_TAKEN = (errno.EAGAIN, errno.EACCES)

Range = tuple[int, int]  # first byte, and the first one after it


def lock(descriptor: int, start: int, end: int, kind: int = fcntl.F_WRLCK) -> bool:
    """Lock a range without waiting. False: another open file has locked some of it."""
    try:
        fcntl.fcntl(
            descriptor, fcntl.F_OFD_SETLK, _FLOCK.pack(kind, os.SEEK_SET, start, end - start, 0)
        )
    except OSError as error:
        if error.errno in _TAKEN:
            return False
        raise
    return True


def unlock(descriptor: int) -> None:
    """Release all locks of this open file."""
    fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _FLOCK.pack(fcntl.F_UNLCK, os.SEEK_SET, 0, 0, 0))


def free(descriptor: int, start: int, end: int) -> Iterator[Range]:
    """Yield the ranges from start to end that no other open file has locked."""
    left = [(start, end)]
    while left:
        start, end = left.pop()
        if start >= end:
            continue
        taken = conflict(descriptor, start, end)  # any of those there are, not the first
        if taken is None:
            yield start, end
        else:
            left += [(start, taken[0]), (taken[1], end)]


def conflict(descriptor: int, start: int, end: int) -> Range | None:
    """Return a range between the two that another open file has locked. None: there is none."""
    answer = fcntl.fcntl(
        descriptor,
        fcntl.F_OFD_GETLK,
        _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, start, end - start, 0),
    )
    kind, _, first, length, _ = _FLOCK.unpack(answer)
    if kind == fcntl.F_UNLCK:
        return None
    return first, first + length if length else end  # length 0: to the end of all files


def take(descriptor: int, total: int, amount: int) -> list[Range] | None:
    """Lock so many bytes below `total`. None: not so many are free."""
    while True:
        wanted = _choose(sorted(free(descriptor, 0, total)), amount)
        if wanted is None:
            return None
        if all(lock(descriptor, start, end) for start, end in wanted):
            return wanted
        unlock(descriptor)  # another process was faster: look again


def units(ranges: list[Range]) -> Iterator[int]:
    """Yield the number of each byte in these ranges."""
    for start, end in ranges:
        yield from range(start, end)


def _choose(ranges: list[Range], amount: int) -> list[Range] | None:
    """Return the first range that is large enough; if none is, as many as needed, from the first."""
    for start, end in ranges:
        if end - start >= amount:
            return [(start, start + amount)]
    chosen = []
    for start, end in ranges:
        end = min(end, start + amount)
        chosen.append((start, end))
        amount -= end - start
        if not amount:
            return chosen
    return None
