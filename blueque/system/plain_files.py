"""Open, read and replace the files of an attempt safely, whatever the task has put there.

A task may leave a pipe, a link, a device, a directory or a sparse file of a terabyte under any name
in its directory. No function here waits for one, and none reads more than its limit.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator

MOST = 2**30  # bytes; a value in Redis takes 512 MiB at most
_NO_FILE = (errno.ELOOP, errno.ENXIO, errno.EISDIR, errno.ENODEV, errno.EOPNOTSUPP)


class NotPlain(OSError):
    """The path is not a regular file, or it is too large."""


def open_plain(path: str, flags: int = os.O_RDONLY, may_be_link: bool = False) -> int:
    """Open a regular file and return its descriptor. Raises NotPlain for anything else, OSError.

    may_be_link: accept a symbolic link to a regular file.
    """
    follow = 0 if may_be_link else os.O_NOFOLLOW
    try:
        descriptor = os.open(path, flags | follow | os.O_NONBLOCK, 0o600)
    except OSError as error:
        if error.errno in _NO_FILE:
            raise NotPlain(error.errno, "not a regular file", path) from error
        raise
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise NotPlain(errno.EINVAL, "not a regular file", path)


def identity(descriptor: int) -> tuple[int, int]:
    """Return device and inode, which identify an open file. Raises OSError."""
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino


def read(path: str, limit: int = MOST, may_be_link: bool = False) -> bytes:
    """Return the content of a regular file. Raises NotPlain, also above `limit` bytes, and OSError."""
    content, size = _read(path, limit, 0, may_be_link)
    if size > limit:
        raise NotPlain(errno.EFBIG, f"it has {size:,} bytes, more than {limit:,}", path)
    return content


def head(path: str, size: int, may_be_link: bool = False) -> bytes:
    """Return the first bytes of a regular file. Raises NotPlain, OSError."""
    return _read(path, size, size, may_be_link)[0]


def tail(path: str, size: int, may_be_link: bool = False) -> bytes:
    """Return the last bytes of a regular file. Raises NotPlain, OSError."""
    return _read(path, size, -size, may_be_link)[0]


def _read(path: str, limit: int, part: int, may_be_link: bool) -> tuple[bytes, int]:
    """Return up to `limit` bytes, and the size of the file.

    part: 0: all or nothing; above 0: the beginning; below 0: the end.
    """
    descriptor = open_plain(path, may_be_link=may_be_link)
    try:
        size = os.fstat(descriptor).st_size
        if part == 0 and size > limit:
            return b"", size
        left = min(size, limit)
        if part < 0:
            os.lseek(descriptor, size - left, os.SEEK_SET)
        parts = []
        while left > 0 and (block := os.read(descriptor, left)):
            parts.append(block)
            left -= len(block)
    finally:
        os.close(descriptor)
    return parts[0] if len(parts) == 1 else b"".join(parts), size


def remove(path: str) -> None:
    """Remove a file; rename a directory in its place. Raises OSError."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
    except IsADirectoryError:
        os.rename(path, f"{path}.{os.urandom(4).hex()}")


def replace(new: str, path: str) -> None:
    """Rename `new` to `path`, also if a task has made a directory there. Raises OSError."""
    try:
        os.rename(new, path)
    except IsADirectoryError:
        remove(path)
        os.rename(new, path)


def write_all(descriptor: int, content: bytes) -> None:
    """Write all of it from the start of the file. If the disk is full, a part may be written."""
    written = 0
    while written < len(content):
        written += os.pwrite(descriptor, content[written:], written)


def write_whole(path: str, content: bytes, is_synced: bool = True) -> None:
    """Overwrite a file; if `is_synced`, wait until it is on the disk. Raises OSError."""
    try:
        descriptor = open_plain(path, os.O_WRONLY | os.O_CREAT)
    except NotPlain:
        remove(path)
        descriptor = open_plain(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        write_all(descriptor, content)
        if os.fstat(descriptor).st_size > len(content):
            os.ftruncate(descriptor, len(content))
        if is_synced:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_by_steps(path: str) -> Iterator[None]:
    """Remove a file or a directory tree, as far as possible; yield after each file."""
    try:
        yield from _remove_by_steps(path)
    except RecursionError:  # directories a thousand levels deep stay
        pass


def _remove_by_steps(name: str, directory: int | None = None) -> Iterator[None]:
    """Do it by name in an open directory.

    By path it could be elsewhere: a process that the task has left may put a link in the place of a
    directory.
    """
    try:
        if not stat.S_ISDIR(os.lstat(name, dir_fd=directory).st_mode):
            os.unlink(name, dir_fd=directory)
            return
        inside = _open_directory(name, directory)
        try:
            if os.fstat(inside).st_mode & stat.S_IRWXU != stat.S_IRWXU:
                os.fchmod(inside, stat.S_IRWXU)
            for each in os.listdir(inside):
                yield from _remove_by_steps(each, inside)
                yield
        finally:
            os.close(inside)
        os.rmdir(name, dir_fd=directory)
    except OSError:
        pass


def _open_directory(name: str, directory: int | None) -> int:
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
    try:
        return os.open(name, flags, dir_fd=directory)
    except PermissionError:  # as some caches protect themselves
        os.chmod(name, stat.S_IRWXU, dir_fd=directory)
        return os.open(name, flags, dir_fd=directory)
