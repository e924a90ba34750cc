"""The directories of an archive: published files by queue and day, and hidden ones, whose names
begin with _.

    queue=video.encode/day=2026-11-21/[batch]-[name].parquet              published
    _staging/queue=video.encode/[batch]-[writer]/day=.../[name].parquet   written by that writer
    _compact/[id].json, [id].parquet       a compaction, decided once the first exists
    _archive.json                          the identity of the archive
"""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import unquote

from blueque.archives import durable
from blueque.errors import ArchiveRefused, InvalidInput

NO_DAY = "__HIVE_DEFAULT_PARTITION__"  # as Hive and Spark write it
SUFFIX = ".parquet"

_MARK, _STAGING, _COMPACT = "_archive.json", "_staging", "_compact"
# The characters that Hive, and so Spark, escapes in the name of a partition.
_ESCAPED = {chr(code) for code in range(1, 32)} | {*"\"#%'*/:=?\\{[]^\x7f"}
# the scheme of a URL, also without slashes behind it: dbfs:/x
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_MAX_NAME = 255  # bytes, on every common file system


class File(NamedTuple):
    """A published file. day: as 2026-11-21; None: its tasks have no time."""

    path: str
    queue: str
    day: str | None


def partition(name: str, value: str | None) -> str:
    """Return the name of the folder of a partition."""
    text = (
        NO_DAY
        if value is None
        else "".join(f"%{ord(char):02X}" if char in _ESCAPED else char for char in value)
    )
    folder = f"{name}={text}"
    if len(os.fsencode(folder)) > _MAX_NAME:
        raise InvalidInput(f"the {name} {value!r} makes too long a name for a folder")
    return folder


def parse_partition(folder: str, name: str) -> tuple[str | None] | None:
    """Return the value in the name of a folder, in a tuple. None: it is not the folder of such a
    partition.
    """
    label, sign, text = folder.partition("=")
    if label != name or not sign:
        return None
    return (None if text == NO_DAY else unquote(text, errors="surrogateescape"),)


class Directory:
    """One archive, on a file system where a rename is atomic.

    root: its absolute path. identity: tells it from an archive of the same path, as on another
        machine.
    """

    def __init__(self, root: str, identity: str) -> None:
        self.root, self.identity = root, identity

    def staging(self, queue: str, batch: str, writer: str) -> str:
        """Return where a writer puts the files of a batch before they are published."""
        return os.path.join(self.stagings(queue), f"{batch}-{writer}")

    def stagings(self, queue: str) -> str:
        return os.path.join(self.root, _STAGING, partition("queue", queue))

    def open_batches(self, queue: str) -> list[str]:
        """Return the beginnings of names of files that a writer may still need to find under these
        names.
        """
        return [name.rpartition("-")[0] + "-" for name in names(self.stagings(queue))]

    @property
    def compactions(self) -> str:
        return os.path.join(self.root, _COMPACT)

    def folder(self, queue: str, day: str | None) -> str:
        return os.path.join(self.root, partition("queue", queue), partition("day", day))

    def files(self, queue: str | None = None) -> Iterator[File]:
        """Yield the published files, sorted, of one queue or of all."""
        for folder in [partition("queue", queue)] if queue is not None else names(self.root):
            of = parse_partition(folder, "queue")
            for inner in (
                names(os.path.join(self.root, folder))
                if of is not None and of[0] is not None
                else ()
            ):
                day = parse_partition(inner, "day")
                path = os.path.join(self.root, folder, inner)
                for name in names(path) if day is not None else ():
                    if name.endswith(SUFFIX) and name[0] not in "._":
                        yield File(os.path.join(path, name), of[0] or "", day[0])  # type: ignore[index]

    def published(self, queue: str, batch: str) -> list[File]:
        """Return the files of a batch."""
        return [
            file
            for file in self.files(queue)
            if os.path.basename(file.path).startswith(f"{batch}-")
        ]


def staged(staging: str) -> Iterator[tuple[str, str | None]]:
    """Yield path and day of the files that a writer has staged."""
    for folder in names(staging):
        day = parse_partition(folder, "day")
        for name in names(os.path.join(staging, folder)) if day is not None else ():
            if name.endswith(SUFFIX) and name[0] not in "._":
                yield os.path.join(staging, folder, name), day[0]  # type: ignore[index]


def create(path: str | os.PathLike[str]) -> Directory:
    """Return the archive in this directory, and make it if needed. Raises ArchiveRefused."""
    root = _absolute(path)
    if os.path.exists(root) and not os.path.isdir(root):
        raise ArchiveRefused(root, "is not a directory")
    durable.make_folder(root)
    mark = os.path.join(root, _MARK)
    try:
        if durable.read_json(mark) is None:
            temporary = f"{mark}.{uuid.uuid4().hex}"
            durable.write_json(
                temporary, {"archive": uuid.uuid4().hex, "version": 1}, temporary + "~"
            )
            try:
                # unlike a rename, it does not replace a file that another process has made
                os.link(temporary, mark)
                os.unlink(temporary)
            except FileExistsError:
                os.unlink(temporary)
            except OSError:  # a file system without hard links
                os.rename(temporary, mark)
            durable.sync(root)
    except OSError as error:
        raise ArchiveRefused(root, f"cannot be written to: {error.strerror}") from error
    return open_(root)


def open_(path: str | os.PathLike[str]) -> Directory:
    """Return the archive in this directory. Raises ArchiveRefused."""
    root = _absolute(path)
    try:
        found = durable.read_json(os.path.join(root, _MARK))
    except (OSError, ValueError) as error:
        raise ArchiveRefused(root, f"cannot be read: {error}") from error
    if not isinstance(found, dict) or not isinstance(found.get("archive"), str):
        raise ArchiveRefused(root, f"is not an archive: it has no {_MARK}")
    return Directory(root, found["archive"])


def _absolute(path: str | os.PathLike[str]) -> str:
    text = os.fspath(path)
    scheme = _SCHEME.match(text)
    if scheme is not None:
        raise ArchiveRefused(
            text,
            f"{scheme[0]} is not supported: an archive needs a directory on a local or shared file system, where a "
            f"rename is atomic (if it is the name of a directory here: ./{text})",
        )
    return os.path.realpath(text)


def names(folder: str) -> list[str]:
    """Return the names in a folder, sorted; nothing if there is no such folder."""
    try:
        return sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []
