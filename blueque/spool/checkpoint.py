"""The checkpoint of an attempt: a value in `checkpoint.json`, and files in the directory
`checkpoint`.

The directory is sent as a compressed tar of sorted files: the same files make the same bytes. The
file `checkpoint.known` says which parts Redis may have: those the attempt was given or has sent.
"""

from __future__ import annotations

import _thread  # not `threading`, which does work at each fork
import errno
import json
import os
import stat
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from blueque.system import plain_files
from blueque.system.plain_files import write_all, write_whole

if TYPE_CHECKING:
    import tarfile

VALUE, DIRECTORY, KNOWN = "checkpoint.json", "checkpoint", "checkpoint.known"
MOST_ENTRIES = 1000  # of a directory that is sent
UNPACKED = 16  # the unpacked size may be so many times the packed limit
HEADERS = 1536  # bytes of a file's headers in a tar, rarely more

# What shows that a file has changed: inode, size, and time of the last write in nanoseconds.
Mark = tuple[int, int, int]


class TooMuch(Exception):
    """The directory is too large to be sent."""


class Entry(NamedTuple):
    """A file, symbolic link or directory, by its path in the directory."""

    name: str
    status: os.stat_result


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
    """Tell whether the attempt has left a checkpoint, or Redis may have one."""
    return mark(directory) is not None or bool(known(directory)) or bool(entries(directory))


def read(directory: str, limit: int = plain_files.MOST) -> str | None:
    """Return the value as JSON; None: missing, not JSON, or larger than `limit` bytes."""
    try:
        text = plain_files.read(f"{directory}/{VALUE}", limit, may_be_link=True).decode()
    except (OSError, ValueError):
        return None
    return text if is_json(text) else None


def is_json(text: str) -> bool:
    """Tell whether it is JSON that can be written again."""
    try:
        json.loads(text)
        text.encode()
    except (ValueError, RecursionError):
        return False
    return True


def known(directory: str) -> frozenset[str]:
    """Return the parts that Redis may have: value, files."""
    try:
        words = plain_files.head(f"{directory}/{KNOWN}", 100).decode("ascii", "replace").split()
    except OSError:
        return frozenset()
    return frozenset(words) & {"value", "files"}


def note_known(directory: str, parts: Iterable[str]) -> None:
    """Record the parts that Redis may have. Raises OSError."""
    write_whole(f"{directory}/{KNOWN}", " ".join(sorted(parts)).encode(), is_synced=False)


def entries(directory: str) -> list[Entry] | None:
    """Return the sorted entries of the directory; None: unreadable. It stops when there are too many."""
    found: list[Entry] = []
    try:
        for entry in _walk(f"{directory}/{DIRECTORY}"):
            found.append(entry)
            if len(found) > MOST_ENTRIES:
                break
    except OSError:
        return None
    return sorted(found)


def marks(found: list[Entry]) -> list[Any]:
    """Return marks that change with the content of the directory."""
    return [(name, its.st_ino, its.st_size, its.st_mtime_ns, its.st_mode) for name, its in found]


def pack(directory: str, found: list[Entry], limit: int) -> bytes:
    """Return the directory as bytes; files that change meanwhile may be missing. Raises TooMuch,
    OSError.
    """
    import tarfile  # here: what a listener imports, each of its forks copies

    size = sum(HEADERS + (its.st_size if stat.S_ISREG(its.st_mode) else 0) for _, its in found)
    if len(found) > MOST_ENTRIES or size > UNPACKED * limit:
        raise TooMuch
    packed = _Packed(limit)
    with tarfile.open(fileobj=packed, mode="w|", format=tarfile.PAX_FORMAT) as tar:  # type: ignore[call-overload]
        for name, its in found:
            _add(
                tar, f"{directory}/{DIRECTORY}/{name}", tarfile.TarInfo(name), its, UNPACKED * limit
            )
    return packed.finish()


def unpack(content: bytes, directory: str, limit: int) -> list[str]:
    """Create the directory from the bytes of `pack`; return the entries that would reach outside
    and were left out.

    Raises OSError, ValueError if the bytes are something else.
    """
    import io
    import shutil
    import tarfile
    import zlib

    plain = zlib.decompressobj()
    try:
        data = plain.decompress(content, 2 * UNPACKED * limit)
        if not plain.eof:
            raise ValueError("it is incomplete or too large")
        new = f"{directory}/{DIRECTORY}.new"
        shutil.rmtree(new, ignore_errors=True)
        os.mkdir(new, 0o700)
        with tarfile.open(fileobj=io.BytesIO(data)) as tar:
            left_out = [member.name for member in tar if not _extract(tar, member, new)]
    except (zlib.error, tarfile.TarError, KeyError, EOFError) as error:
        raise ValueError(str(error)) from error
    os.rename(new, f"{directory}/{DIRECTORY}")
    return left_out


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


class _Packed:
    """Compresses what is written, up to a limit of the result."""

    def __init__(self, limit: int) -> None:
        import zlib

        self._squeeze = zlib.compressobj(1)
        self._left = limit
        self._parts: list[bytes] = []

    def write(self, data: bytes) -> int:
        self._take(self._squeeze.compress(data))
        return len(data)

    def finish(self) -> bytes:
        self._take(self._squeeze.flush())
        return b"".join(self._parts)

    def _take(self, part: bytes) -> None:
        self._left -= len(part)
        if self._left < 0:
            raise TooMuch
        self._parts.append(part)


def _walk(path: str) -> Iterator[Entry]:
    """Yield the entries of the directory; not by recursion, for it may be a thousand levels deep."""
    prefixes = [""]
    while prefixes:
        prefix = prefixes.pop()
        try:
            with os.scandir(f"{path}/{prefix}") as found:
                for entry in found:
                    status = _status(entry)
                    if status is not None:
                        yield Entry(prefix + entry.name, status)
                        if stat.S_ISDIR(status.st_mode):
                            prefixes.append(f"{prefix}{entry.name}/")
        except OSError:  # gone meanwhile, or not readable
            if not prefix:
                raise


def _status(entry: os.DirEntry[str]) -> os.stat_result | None:
    try:
        return entry.stat(follow_symlinks=False)
    except OSError:  # gone meanwhile
        return None


def _open_file(path: str) -> int | None:
    """Open a file to read; None: it is gone or is no longer a regular file."""
    try:
        return plain_files.open_plain(path)
    except (FileNotFoundError, NotADirectoryError, plain_files.NotPlain):
        return None


def _add(
    tar: tarfile.TarFile, path: str, member: tarfile.TarInfo, its: os.stat_result, most: int
) -> None:
    import io
    import tarfile

    member.mtime, member.mode = int(its.st_mtime), stat.S_IMODE(its.st_mode)
    if stat.S_ISDIR(its.st_mode):
        member.type = tarfile.DIRTYPE
        tar.addfile(member)
    elif stat.S_ISLNK(its.st_mode):
        try:
            member.type, member.linkname = tarfile.SYMTYPE, os.readlink(path)
        except OSError:  # gone, or no longer a link
            return
        tar.addfile(member)
    elif stat.S_ISREG(its.st_mode) and (descriptor := _open_file(path)) is not None:
        with open(descriptor, "rb") as file:
            its = os.fstat(descriptor)  # another one may have taken its place
            if its.st_size > most:
                raise TooMuch
            content = file.read(its.st_size)  # later writes are for the next time
        member.mtime = int(its.st_mtime)
        member.mode = stat.S_IMODE(its.st_mode)
        member.size = len(content)
        tar.addfile(member, io.BytesIO(content))


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


def _extract(tar: tarfile.TarFile, member: tarfile.TarInfo, path: str) -> bool:
    """Extract a member, unless it would reach outside of the directory; return whether it did."""
    import tarfile

    if hasattr(tarfile, "data_filter"):
        try:
            tar.extract(member, path, filter="data")
        except tarfile.FilterError:
            return False
        return True
    is_safe = (member.isfile() or member.isdir()) and not {"", "..", "."} & set(
        member.name.split("/")
    )
    if is_safe:
        tar.extract(member, path)  # Python before 3.11.4 has no filters
    return is_safe
