"""An archive where there is no rename: objects in S3, and whatever else pyarrow can write to.

    queue=video.encode/day=2026-11-21/[batch]-[writer]-[name].parquet     written by that writer
    _written/queue=video.encode/[batch]-[writer].json   the files of the batch, once they are whole
    _published/queue=video.encode/[batch]-[writer]      once this exists, these files count
    _archive.json                                       the identity of the archive

A batch is published by one object, whose existence alone counts: to write it twice, or half, does
no harm. All names but this one are written once, by one writer. What no published list has is left
by a dead archiver, and the next one removes it. Other readers of Parquet do not know of the lists.
"""

from __future__ import annotations

import hashlib
import json
import os
import posixpath
import re
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from blueque.archives.claims import Claim
from blueque.archives.partitions import MARK, Directory, File, Output, parse_partition, partition
from blueque.archives.stores import AT_ONCE, Store
from blueque.errors import ArchiveRefused

if TYPE_CHECKING:
    import pyarrow as pa

_WRITTEN, _PUBLISHED, _LIST = "_written", "_published", ".json"
_OURS = re.compile(r"\d{8}T\d{6}-[0-9a-f]{8}-[0-9a-f]{16}[-.]")


class Objects(Directory):
    """One archive in a store."""

    at_once = AT_ONCE  # each takes several requests

    def __init__(self, root: str, identity: str, is_by_run: bool = False) -> None:
        super().__init__(root, identity, is_by_run)
        self._store = Store(root)
        self._lists: dict[str, list[str]] = {}  # they never change

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.root, self.identity, self.is_by_run)

    def files(self, queue: str | None = None) -> list[File]:
        if queue is not None:
            return self._files(queue, "")
        names = self._store.names(self._store.path(_PUBLISHED))
        found = [parse_partition(name, "queue") for name in names]
        queues = [value[0] for value in found if value is not None and value[0] is not None]
        return [file for name in queues for file in self._files(name, "")]

    def published(self, queue: str, batch: str) -> list[File]:
        return self._files(queue, f"{batch}-")

    def prepare(self, claim: Claim) -> Output:
        folder, written = self._folder(claim.queue), self._hidden(_WRITTEN, claim.queue)
        ours = f"{claim.batch}-{claim.writer}"
        seen = [*self._store.below(folder), *self._store.below(written)]
        # All that was seen is of earlier writers: nobody but us can publish in this queue now.
        claim.make_sure()
        names = self._published(claim.queue, "")
        counts = {f"{written}/{name}{_LIST}" for name in names}
        for files in self._listed(claim.queue, names):
            counts.update(f"{folder}/{file}" for file in files)
        self._store.remove(
            path
            for path in seen
            if path not in counts
            and _OURS.match(name := posixpath.basename(path))
            and not name.startswith(ours)
        )
        return Output(self, folder, f"{ours}-")

    def part(self, output: Output) -> Output:
        return output._replace(prefix=f"{output.prefix}{os.urandom(8).hex()}-")

    def gather(self, output: Output, parts: Sequence[Sequence[str]]) -> list[str]:
        return [path for paths in parts for path in paths]

    def keep(self, claim: Claim, paths: Sequence[str], rows: int) -> None:
        folder = self._folder(claim.queue)
        content = {"files": [posixpath.relpath(path, folder) for path in paths], "rows": rows}
        name = f"{claim.batch}-{claim.writer}{_LIST}"
        path = f"{self._hidden(_WRITTEN, claim.queue)}/{name}"
        self._store.put(path, json.dumps(content).encode())

    def publish(self, claim: Claim) -> None:
        """Make the object that says so."""
        name = f"{claim.batch}-{claim.staging}"
        self._store.put(f"{self._hidden(_PUBLISHED, claim.queue)}/{name}", b"published\n")

    def tidy(self, claim: Claim) -> None:
        pass

    def open(self, path: str) -> Any:
        return self._store.open(path)

    def create(self, path: str) -> pa.NativeFile:
        return self._store.create(path)

    def _files(self, queue: str, beginning: str) -> list[File]:
        """Return the published files of a queue whose batch begins so, and which still are there."""
        names = self._published(queue, beginning)
        folder, found = self._folder(queue), []
        # After the names: the files of what was published by then are all there.
        there = set(self._store.below(folder)) if names else set()
        for name in (name for files in self._listed(queue, names) for name in files):
            day, *rest, _ = name.split("/")
            values = [parse_partition(day, "day"), *(parse_partition(run, "run") for run in rest)]
            path = f"{folder}/{name}"
            if path in there:
                found.append(File(path, queue, *[value[0] for value in values if value]))
        return sorted(found, key=lambda file: file.path)

    def _published(self, queue: str, beginning: str) -> list[str]:
        names = self._store.names(self._hidden(_PUBLISHED, queue))
        return [name for name in names if name.startswith(beginning)]

    def _listed(self, queue: str, names: Iterable[str]) -> list[list[str]]:
        """Return the names of the files of each of these batches, below the folder of the queue."""
        folder = self._hidden(_WRITTEN, queue)

        def read(name: str) -> list[str]:
            if name not in self._lists:
                content = self._store.get(f"{folder}/{name}{_LIST}")
                self._lists[name] = [] if content is None else json.loads(content)["files"]
            return self._lists[name]

        with ThreadPoolExecutor(AT_ONCE) as threads:
            return [*threads.map(read, names)]

    def _folder(self, queue: str) -> str:
        return self._store.path(partition("queue", queue))

    def _hidden(self, kind: str, queue: str) -> str:
        return self._store.path(kind, partition("queue", queue))


def create(root: str, is_by_run: bool) -> None:
    """Make the archive at this URL if there is none. Raises ArchiveRefused."""
    store = Store(root)
    try:
        if _mark(store) is None:
            # All would write the same: two at once do no harm, nor does one that has died over it.
            identity = hashlib.sha256(root.encode()).hexdigest()[:32]
            by = ["queue", "day", *(["run"] if is_by_run else [])]
            content = json.dumps({"archive": identity, "version": 2, "by": by})
            store.put(store.path(MARK), content.encode())
    except OSError as error:
        raise ArchiveRefused(root, f"cannot be written to: {error}") from error


def read_mark(root: str) -> Any:
    """Return what the archive at this URL is; None: there is none. Raises ArchiveRefused."""
    try:
        return _mark(Store(root))
    except OSError as error:
        raise ArchiveRefused(root, f"cannot be read: {error}") from error


def _mark(store: Store) -> Any:
    content = store.get(store.path(MARK))
    try:
        return None if content is None else json.loads(content)
    except ValueError:
        return None  # half of it: it is being made, or its maker has died
