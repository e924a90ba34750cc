"""The checkpoint of an attempt: a value in `checkpoint.json`, and files in the directory
`checkpoint`.

The value goes to Redis, and from there to any host. The directory stays on its host. The file
`checkpoint.known` lists the parts that Redis may have: those that the attempt was given or has sent.
"""

from __future__ import annotations

import _thread  # not `threading`, which does work at each fork
import errno
import json
import os
import stat
from collections.abc import Iterable

from blueque.system import plain_files
from blueque.system.plain_files import write_all, write_whole

VALUE, DIRECTORY, KNOWN = "checkpoint.json", "checkpoint", "checkpoint.known"

# What shows that the value has changed: inode, size, and time of the last write in nanoseconds.
Mark = tuple[int, int, int]


def write(directory: str, text: str) -> None:
    """Write the value completely or not at all, without a sync to the disk. Raises OSError."""
    content = text.encode()
    new = f"{directory}/{VALUE}.{os.getpid()}-{_thread.get_native_id()}"
    try:
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            write_all(descriptor, content)
        finally:
            os.close(descriptor)
        os.rename(new, f"{directory}/{VALUE}")
    except OSError:
        try:
            os.unlink(new)
        except OSError:
            pass
        raise


def mark(directory: str) -> Mark | None:
    """Return a mark that changes with the value; None: there is no value."""
    try:
        status = os.stat(f"{directory}/{VALUE}")
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def exists(directory: str) -> bool:
    """Return whether the attempt has left a checkpoint, or Redis may have one."""
    return mark(directory) is not None or bool(known(directory)) or has_files(directory)


def read(directory: str, limit: int = plain_files.MOST) -> str | None:
    """Return the value as JSON; None: missing, not JSON, or larger than `limit` bytes."""
    try:
        text = plain_files.read(f"{directory}/{VALUE}", limit, may_be_link=True).decode()
    except (OSError, ValueError):
        return None
    return text if is_json(text) else None


def is_json(text: str) -> bool:
    """Return whether it is JSON that can be written again."""
    try:
        json.loads(text)
        text.encode()
    except (ValueError, RecursionError):
        return False
    return True


def known(directory: str) -> frozenset[str]:
    """Return the parts that Redis may have: value, directory."""
    try:
        words = plain_files.head(f"{directory}/{KNOWN}", 100).decode("ascii", "replace").split()
    except OSError:
        return frozenset()
    return frozenset(words) & {"value", "directory"}


def note_known(directory: str, parts: Iterable[str]) -> None:
    """Record the parts that Redis may have. Raises OSError."""
    write_whole(f"{directory}/{KNOWN}", " ".join(sorted(parts)).encode(), is_synced=False)


def has_files(directory: str) -> bool:
    """Return whether there is anything in the checkpoint directory of the attempt."""
    try:
        with os.scandir(f"{directory}/{DIRECTORY}") as found:
            return next(found, None) is not None
    except OSError:
        return False


def carry(old: str, new: str, is_in_use: bool) -> None:
    """Give the directory of the old attempt to the new one. is_in_use: the old one still writes.

    Raises OSError.
    """
    source, target = f"{old}/{DIRECTORY}", f"{new}/{DIRECTORY}"
    if not is_in_use:
        os.rename(source, target)
        return
    import shutil

    shutil.rmtree(f"{target}.new", ignore_errors=True)  # of an earlier try
    try:
        _copy(source, f"{target}.new")
    except RecursionError:
        raise OSError(errno.ENAMETOOLONG, "its directories are nested too deeply", source) from None
    os.rename(f"{target}.new", target)


def _open_file(path: str) -> int | None:
    """Open a file to read; None: it is gone or is no longer a regular file."""
    try:
        return plain_files.open_plain(path)
    except (FileNotFoundError, NotADirectoryError, plain_files.NotPlain):
        return None


def _copy(source: str, target: str) -> None:
    """Copy directories, files and links; what changes meanwhile may be missing."""
    os.mkdir(target, 0o700)
    try:
        found = list(os.scandir(source))
    except FileNotFoundError:
        return
    for entry in found:
        new = f"{target}/{entry.name}"
        if entry.is_symlink():
            try:
                aim = os.readlink(entry.path)
            except OSError:  # gone, or no longer a link
                continue
            os.symlink(aim, new)
        elif entry.is_dir(follow_symlinks=False):
            _copy(entry.path, new)
        elif entry.is_file(follow_symlinks=False):
            _copy_file(entry.path, new)


def _copy_file(source: str, target: str) -> None:
    import shutil

    descriptor = _open_file(source)
    if descriptor is None:
        return
    with open(descriptor, "rb") as old:
        its = os.fstat(descriptor)
        with open(
            os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, stat.S_IMODE(its.st_mode)), "wb"
        ) as new:
            shutil.copyfileobj(old, new)
    os.utime(target, ns=(its.st_atime_ns, its.st_mtime_ns))
