"""One archive, in a directory or in a store of objects: which files it has, and which of them count.

    queue=video.encode/day=2026-11-21/[batch]-[writer]-[name].parquet     written by that writer
    _written/queue=video.encode/[batch]-[writer].json   the files of the batch, once they are whole
    _published/queue=video.encode/[batch]-[writer]      once this exists, these files count
    _archive.json                                       what the archive is

One file publishes a batch, by its existence alone: writing it twice, or half, does no harm. All
other names are written once, by one writer. A file of a batch that no published list has was left
by a dead archiver, and the next one removes it. Files with other names count without a list: a
person may merge small files.
"""

from __future__ import annotations

import json
import os
import posixpath
import re
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

from blueque.archives import stores
from blueque.archives.claims import Claim
from blueque.archives.partitions import SUFFIX, File, parse_partition, partition
from blueque.archives.picking import FILE_FIELDS
from blueque.archives.stores import REQUESTS_AT_ONCE, Store
from blueque.errors import ArchiveRefused

if TYPE_CHECKING:
    import pyarrow as pa

MARK = "_archive.json"
VERSION = 3

_WRITTEN, _PUBLISHED, _LIST = "_written", "_published", ".json"

# the beginning of the name of a file of a batch: the batch and its writer
_OF_BATCH = re.compile(r"\d{8}T\d{6}-[0-9a-f]{8}-[0-9a-f]{16}[-.]")


class Output(NamedTuple):
    """The folder of a writer, with a path for each day and group. Spark copies it to its workers."""

    archive: Archive
    folder: str
    prefix: str = ""

    def path(self, day: str | None, group: str | None, number: int) -> str:
        folders = self.archive.folders(day, group)
        return "/".join([self.folder, *folders, f"{self.prefix}{number:05}{SUFFIX}"])

    def part(self) -> Output:
        """Return where one of several writers of a batch writes, under its own names."""
        return self._replace(prefix=f"{self.prefix}{os.urandom(8).hex()}-")


class Archive:
    """One archive.

    root: its absolute path, or its URL. identity: distinguishes it from archives in other places;
        empty: it has no content yet. is_by_group: whether its files are by group besides queue and day.
    """

    def __init__(self, root: str, identity: str, is_by_group: bool = False) -> None:
        self.root, self.identity, self.is_by_group = root, identity, is_by_group
        self.is_local = stores.scheme_of(root) is None
        self._store = Store(root)
        self._lists: dict[str, list[str]] = {}  # they never change

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.root, self.identity, self.is_by_group)

    @property
    def fields(self) -> tuple[str, ...]:
        """The columns of a file."""
        return tuple(name for name in FILE_FIELDS if name != "group" or not self.is_by_group)

    def folders(self, day: str | None, group: str | None) -> list[str]:
        """Return the names of the folders of a file below that of its queue."""
        return [partition("day", day), *([partition("group", group)] if self.is_by_group else [])]

    def files(self, queue: str | None = None) -> list[File]:
        """Return the files that count, sorted, of one queue or of all."""
        if not self.identity:
            return []
        queues = [queue] if queue is not None else self._queues()
        return [file for name in queues for file in self._files(name, self._published(name))]

    def written(self, claim: Claim) -> list[File]:
        """Return the files of a written batch, whether or not readers see them."""
        return self._files(claim.queue, [_list_of(claim)], f"{claim.batch}-")

    def published(self, claim: Claim) -> list[File]:
        """Return the files of a batch that readers see.

        Without those of another writer: Redis may have lost that their batch was written. They
        count, and their tasks are in the archive twice.
        """
        names = [name for name in self._published(claim.queue) if name == _list_of(claim)]
        return self._files(claim.queue, names, f"{claim.batch}-")

    def prepare(self, claim: Claim) -> Output:
        """Remove what dead writers have left, and return where to write the files of a new batch."""
        ours, seen = f"{claim.batch}-{claim.writer}", self._of_batches(claim.queue, "")
        # All that was seen is of earlier writers: no other writer can publish in this queue now.
        claim.make_sure()
        counts = self._counting(claim.queue, self._published(claim.queue))
        dead = [path for path in seen if not posixpath.basename(path).startswith(ours)]
        self._store.remove({*dead} - counts)
        return Output(self, self._folder(claim.queue), f"{ours}-")

    def keep(self, claim: Claim, paths: Sequence[str], rows: int) -> None:
        """Record that these are the files of our batch, with this many rows."""
        self._store.sync(paths)
        folder = self._folder(claim.queue)
        content = {"files": [posixpath.relpath(path, folder) for path in paths], "rows": rows}
        name = f"{claim.batch}-{claim.writer}{_LIST}"
        path = f"{self._hidden(_WRITTEN, claim.queue)}/{name}"
        self._store.put(path, json.dumps(content).encode())

    def publish(self, claim: Claim) -> None:
        """Show the files of a written batch to readers. It may be done already."""
        path = f"{self._hidden(_PUBLISHED, claim.queue)}/{_list_of(claim)}"
        self._store.put(path, b"published\n")

    def tidy(self, claim: Claim) -> None:
        """Remove files of a batch that do not count, such as those of a replaced worker."""
        names = [_list_of(claim), *self._published(claim.queue)]
        counts = self._counting(
            claim.queue, [name for name in names if name.startswith(f"{claim.batch}-")]
        )
        self._store.remove({*self._of_batches(claim.queue, f"{claim.batch}-")} - counts)

    def require_same(self, host: str) -> None:
        """Raise ArchiveRefused if this process, on that host, does not see the same archive."""
        found = mark_of(self._store)
        if found is None or found.get("archive") != self.identity:
            raise ArchiveRefused(
                self.root,
                f"is not there on {host}: driver and workers of Spark need the archive by the same path",
            )

    def open(self, path: str) -> pa.NativeFile:
        """Return a file to read from. Raises FileNotFoundError."""
        return self._store.open(path)

    def create(self, path: str) -> pa.NativeFile:
        """Return a new file to write to."""
        return self._store.create(path)

    def _queues(self) -> list[str]:
        found = [parse_partition(name, "queue") for name in self._store.names(self._store.path())]
        return [value[0] for value in found if value is not None and value[0] is not None]

    def _files(self, queue: str, names: Sequence[str], beginning: str = "") -> list[File]:
        """Return the files of a queue in these lists or in none, whose name has this beginning."""
        folder, listed = self._folder(queue), self._listed(queue, names)

        def look() -> list[File]:
            found = [self._file(queue, path, folder) for path in self._store.below(folder)]
            return sorted(
                file
                for file in found
                if file is not None
                and (name := posixpath.basename(file.path)).startswith(beginning)
                and (file.path.removeprefix(f"{folder}/") in listed or not _OF_BATCH.match(name))
            )

        # After the names: the files of what was published by then are all there. A look may miss
        # both a file into which a person merges others, and the others. Two that agree do not.
        found = look()
        while self.is_local and found != (again := look()):
            found = again
        return found

    def _file(self, queue: str, path: str, folder: str) -> File | None:
        """Return the file at this path; None: it is not a file of an archive."""
        *folders, name = path.removeprefix(f"{folder}/").split("/")
        kinds = ("day", "group") if self.is_by_group else ("day",)
        if len(folders) != len(kinds) or name[0] in "._" or not name.endswith(SUFFIX):
            return None
        values = list(map(parse_partition, folders, kinds))
        if not all(values):
            return None
        found = [value[0] for value in values if value]
        return File(path, queue, *found)

    def _of_batches(self, queue: str, beginning: str) -> list[str]:
        """Return the paths of files and lists of batches whose name has this beginning, published or not."""
        folders = self._folder(queue), self._hidden(_WRITTEN, queue)
        paths = [path for folder in folders for path in self._store.below(folder)]
        names = map(posixpath.basename, paths)
        return [
            path
            for path, name in zip(paths, names, strict=True)
            if name.startswith(beginning) and _OF_BATCH.match(name)
        ]

    def _counting(self, queue: str, names: Sequence[str]) -> set[str]:
        """Return the paths of these lists, and of the files in them."""
        folder, written = self._folder(queue), self._hidden(_WRITTEN, queue)
        files = {f"{folder}/{file}" for file in self._listed(queue, names)}
        return files | {f"{written}/{name}{_LIST}" for name in names}

    def _published(self, queue: str) -> list[str]:
        return self._store.names(self._hidden(_PUBLISHED, queue))

    def _listed(self, queue: str, names: Iterable[str]) -> set[str]:
        """Return the names of the files of these batches, below the folder of the queue."""
        folder = self._hidden(_WRITTEN, queue)

        def read(name: str) -> list[str]:
            if name not in self._lists:
                content = self._store.get(f"{folder}/{name}{_LIST}")
                self._lists[name] = [] if content is None else json.loads(content)["files"]
            return self._lists[name]

        with ThreadPoolExecutor(REQUESTS_AT_ONCE) as threads:
            return {file for files in threads.map(read, names) for file in files}

    def _folder(self, queue: str) -> str:
        return self._store.path(partition("queue", queue))

    def _hidden(self, kind: str, queue: str) -> str:
        return self._store.path(kind, partition("queue", queue))


def _list_of(claim: Claim) -> str:
    """Return the name of the file list of a written batch."""
    return f"{claim.batch}-{claim.staging}"


def mark_of(store: Store) -> dict[str, Any] | None:
    """Return the description of the archive. None: there is none. Empty: it is damaged or
    incomplete.

    It is incomplete while it is being created, or if its creator has died.
    """
    content = store.get(store.path(MARK))
    try:
        found = None if content is None else json.loads(content)
    except ValueError:
        return {}
    return found if found is None or isinstance(found, dict) else {}
