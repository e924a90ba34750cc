"""An archive on a file system where a rename is atomic: a local disk, NFS.

    queue=video.encode/day=2026-11-21/[batch]-[name].parquet              published
    _staging/queue=video.encode/[batch]-[writer]/day=.../[name].parquet   written by that writer
    _compact/[id].json, [id].parquet       a compaction, decided once the first exists
    _archive.json                          the identity of the archive

A file is published by its rename. Hidden names begin with _, and other readers pass them.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from blueque.archives import durable
from blueque.archives.claims import Claim
from blueque.archives.partitions import (
    MARK,
    SUFFIX,
    Directory,
    File,
    Output,
    parse_partition,
    partition,
)
from blueque.errors import ArchiveRefused
from blueque.tables import arrow

if TYPE_CHECKING:
    import pyarrow as pa

_STAGING, _COMPACT = "_staging", "_compact"


class Disk(Directory):
    """One archive in a directory."""

    def stagings(self, queue: str) -> str:
        return os.path.join(self.root, _STAGING, partition("queue", queue))

    def staging(self, queue: str, batch: str, writer: str) -> str:
        """Return where a writer puts the files of a batch before they are published."""
        return os.path.join(self.stagings(queue), f"{batch}-{writer}")

    def open_batches(self, queue: str) -> list[str]:
        """Return the beginnings of names of files that a writer may still need to find under these
        names.
        """
        return [name.rpartition("-")[0] + "-" for name in names(self.stagings(queue))]

    @property
    def compactions(self) -> str:
        return os.path.join(self.root, _COMPACT)

    def folder(self, queue: str, day: str | None, run: str | None = None) -> str:
        return os.path.join(self.root, partition("queue", queue), *self.folders(day, run))

    def files(self, queue: str | None = None) -> Iterator[File]:
        for folder in [partition("queue", queue)] if queue is not None else names(self.root):
            of = parse_partition(folder, "queue")
            if of is not None and of[0] is not None:
                place = os.path.join(self.root, folder)
                for path, day, run in self._parquet(place):
                    yield File(path, of[0], day, run)

    def published(self, queue: str, batch: str) -> list[File]:
        return [
            file
            for file in self.files(queue)
            if os.path.basename(file.path).startswith(f"{batch}-")
        ]

    def prepare(self, claim: Claim) -> Output:
        folder = self.stagings(claim.queue)
        ours = self.staging(claim.queue, claim.batch, claim.writer)
        durable.make_folder(folder)
        for name in os.listdir(folder):
            durable.remove_tree(os.path.join(folder, name))
        durable.make_folder(ours)
        return Output(self, ours)

    def part(self, output: Output) -> Output:
        # Names that begin with _ are not published: only one of the same parts counts.
        return output._replace(folder=os.path.join(output.folder, f"_part-{os.urandom(8).hex()}"))

    def gather(self, output: Output, parts: Sequence[Sequence[str]]) -> list[str]:
        moved = []
        for number, paths in enumerate(parts):
            for path in paths:
                below = os.path.relpath(path, output.folder).split(os.sep)[1:-1]
                folder = os.path.join(output.folder, *below)
                os.makedirs(folder, exist_ok=True)
                moved.append(os.path.join(folder, f"{number:05}-{os.path.basename(path)}"))
                durable.move(path, moved[-1])
        return moved

    def keep(self, claim: Claim, paths: Sequence[str], rows: int) -> None:
        staging = self.staging(claim.queue, claim.batch, claim.writer)
        folders = {staging}
        for path in paths:
            durable.sync(path)
            while path != staging:
                path = os.path.dirname(path)
                folders.add(path)
        for folder in sorted(folders):
            durable.sync(folder)
        durable.sync(self.stagings(claim.queue))

    def publish(self, claim: Claim) -> None:
        """Move the files to where readers see them."""
        folders = set()
        for path, day, run in self._parquet(self.staging(claim.queue, claim.batch, claim.staging)):
            folder = self.folder(claim.queue, day, run)
            durable.make_folder(folder)
            durable.move(path, os.path.join(folder, f"{claim.batch}-{os.path.basename(path)}"))
        for file in self.published(claim.queue, claim.batch):
            folders.add(os.path.dirname(file.path))
        for folder in sorted(folders):
            durable.sync(folder)

    def tidy(self, claim: Claim) -> None:
        """Remove the staging folder. Until then no compaction touches the files."""
        durable.remove_tree(self.staging(claim.queue, claim.batch, claim.staging))

    def open(self, path: str) -> Any:
        return path

    def create(self, path: str) -> pa.NativeFile:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return arrow.pyarrow().OSFile(path, "wb")

    def _parquet(self, place: str) -> Iterator[tuple[str, str | None, str | None]]:
        """Yield path, day and run of the files below the folder of a queue."""
        for outer in names(place):
            day, path = parse_partition(outer, "day"), os.path.join(place, outer)
            for inner in names(path) if day is not None and self.is_by_run else [""]:
                run = parse_partition(inner, "run") if inner else (None,)
                folder = os.path.join(path, inner) if inner else path
                for name in names(folder) if day is not None and run is not None else ():
                    if name.endswith(SUFFIX) and name[0] not in "._":
                        yield os.path.join(folder, name), day[0], run[0]  # type: ignore[index]


def create(root: str, is_by_run: bool) -> None:
    """Make the archive in this directory if there is none. Raises ArchiveRefused."""
    if os.path.exists(root) and not os.path.isdir(root):
        raise ArchiveRefused(root, "is not a directory")
    content = {"archive": uuid.uuid4().hex, "version": 1}
    if is_by_run:
        content |= {"version": 2, "by": ["queue", "day", "run"]}
    if not os.path.exists(root):
        _make_whole(root, content)
    durable.make_folder(root)
    mark = os.path.join(root, MARK)
    try:
        if durable.read_json(mark) is None:
            temporary = f"{mark}.{uuid.uuid4().hex}"
            durable.write_json(temporary, content, temporary + "~")
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


def _make_whole(root: str, content: Any) -> None:
    """Make the directory with its identity in it, so that readers never see it without."""
    beside = f"{root}.{uuid.uuid4().hex}"
    try:
        durable.make_folder(beside)
        durable.write_json(os.path.join(beside, MARK), content, os.path.join(beside, "~"))
        os.rename(beside, root)
        durable.sync(os.path.dirname(root))
    except (OSError, ArchiveRefused):  # another process was faster, or `create` says what is wrong
        if os.path.isdir(beside):
            durable.remove_tree(beside)


def read_mark(root: str) -> Any:
    """Return what the archive in this directory is; None: there is none. Raises ArchiveRefused."""
    try:
        return durable.read_json(os.path.join(root, MARK))
    except (OSError, ValueError) as error:
        raise ArchiveRefused(root, f"cannot be read: {error}") from error


def names(folder: str) -> list[str]:
    """Return the names in a folder, sorted; nothing if there is no such folder."""
    try:
        return sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []
