"""What an archive is, wherever its files are: published files by queue and day, and perhaps by run.

queue=video.encode/day=2026-11-21/[name].parquet
queue=video.encode/day=2026-11-21/run=nightly/[name].parquet    if the archive is by run
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote

from blueque.archives.claims import Claim
from blueque.archives.picking import FILE_FIELDS
from blueque.errors import InvalidInput

if TYPE_CHECKING:
    import pyarrow as pa

NO_VALUE = "__HIVE_DEFAULT_PARTITION__"  # as Hive and Spark write it
SUFFIX = ".parquet"
MARK = "_archive.json"  # what the archive is

# The characters that Hive, and so Spark, escapes in the name of a partition.
_ESCAPED = {chr(code) for code in range(1, 32)} | {*"\"#%'*/:=?\\{[]^\x7f"}
_MAX_NAME = 255  # bytes, on every common file system


class File(NamedTuple):
    """A published file. day: as 2026-11-21; None: its tasks have no time.

    run: of its tasks, if the archive is by run; None: they have none.
    """

    path: str
    queue: str
    day: str | None
    run: str | None = None


class Output(NamedTuple):
    """Where a writer puts files: a path for each day and run, in a folder. Spark copies it to its
    workers.
    """

    directory: Directory
    folder: str
    prefix: str = ""

    @property
    def fields(self) -> tuple[str, ...]:
        return self.directory.fields

    def path(self, day: str | None, run: str | None, number: int) -> str:
        folders = self.directory.folders(day, run)
        return "/".join([self.folder, *folders, f"{self.prefix}{number:05}{SUFFIX}"])

    def create(self, path: str) -> pa.NativeFile:
        return self.directory.create(path)


class Directory(ABC):
    """One archive.

    root: its absolute path, or its URL. identity: tells it from an archive of the same path, as on
        another machine. is_by_run: its files are by run, too.
    """

    at_once = 1  # files to read at a time

    def __init__(self, root: str, identity: str, is_by_run: bool = False) -> None:
        self.root, self.identity, self.is_by_run = root, identity, is_by_run

    @property
    def fields(self) -> tuple[str, ...]:
        """The columns of a file."""
        return tuple(name for name in FILE_FIELDS if not (self.is_by_run and name == "run"))

    def folders(self, day: str | None, run: str | None) -> list[str]:
        """Return the names of the folders of a file below that of its queue."""
        return [partition("day", day), *([partition("run", run)] if self.is_by_run else [])]

    @abstractmethod
    def files(self, queue: str | None = None) -> Iterable[File]:
        """Return the published files, sorted, of one queue or of all."""

    @abstractmethod
    def published(self, queue: str, batch: str) -> Sequence[File]:
        """Return the files of a batch."""

    @abstractmethod
    def prepare(self, claim: Claim) -> Output:
        """Remove what others have begun, and return where to write the files of a new batch."""

    @abstractmethod
    def part(self, output: Output) -> Output:
        """Return where one of several writers of a batch writes: a place of its own."""

    @abstractmethod
    def gather(self, output: Output, parts: Sequence[Sequence[str]]) -> list[str]:
        """Return the files of the batch, given those of the writers that count."""

    @abstractmethod
    def keep(self, claim: Claim, paths: Sequence[str], rows: int) -> None:
        """Make the files of our batch last, which have so many rows."""

    @abstractmethod
    def publish(self, claim: Claim) -> None:
        """Have readers see the files of a batch that is written. It may be done in part already."""

    @abstractmethod
    def tidy(self, claim: Claim) -> None:
        """Remove what only the writers of a batch have needed."""

    @abstractmethod
    def open(self, path: str) -> Any:
        """Return what Parquet is read from. Raises FileNotFoundError."""

    @abstractmethod
    def create(self, path: str) -> pa.NativeFile:
        """Return a new file to write to, for readers when it is closed."""


def partition(name: str, value: str | None) -> str:
    """Return the name of the folder of a partition."""
    text = (
        NO_VALUE
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
    return (None if text == NO_VALUE else unquote(text, errors="surrogateescape"),)
