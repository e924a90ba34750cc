"""Merges many small files of a day into few large ones. Killed at any point, it neither loses nor
doubles rows.

A compaction is decided by the rename of its record, `_compact/[id].json`: `add`, the new file, and
`remove`, the files that it replaces. The next compaction applies it to the end. Readers that know
the record, as `reading` does, see each row once at every moment; others may see rows twice until
the old files are removed.
"""

from __future__ import annotations

import fcntl
import os
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from blueque.archives import durable, layout, parquet
from blueque.archives.disk import Disk, names
from blueque.archives.partitions import SUFFIX, Directory, File
from blueque.errors import ArchiveRefused
from blueque.model.encoding import require_whole
from blueque.tables import arrow

if TYPE_CHECKING:
    import pyarrow as pa

MIN_FILES = 8  # files of a day, from which on they are merged
TARGET = 128 * 2**20  # bytes of a merged file

_RECORD, _LOCK = ".json", "lock"


Merge = Callable[[Disk, Sequence[Sequence[File]]], Iterable[str]]


class Compacted(NamedTuple):
    """The result of a compaction: numbers of files, and of rows in them."""

    before: int
    after: int
    rows: int


class Pending(NamedTuple):
    """A compaction that is decided. made: where its file was written. add: where it belongs.
    remove: the files that it replaces.
    """

    record: str
    made: str
    add: File
    remove: tuple[str, ...]


def compact(
    directory: str | os.PathLike[str],
    *,
    min_files: int = MIN_FILES,
    target: int = TARGET,
    engine: Merge | None = None,
    tell: Callable[[int, int], object] = lambda done, total: None,
) -> Compacted:
    """Merge the small files of each queue and day, where there are `min_files` or more, into files
    of about `target` bytes.

    Only one process at a time compacts an archive; a second one waits. Files of a batch that is not
    finished are left alone.
    engine: merges groups of files, as `merge` does for each, in their order; else this process
        does.
    tell: is called with the number of files that are merged, and of all files to merge.
    Raises ArchiveRefused, NotInstalled.
    """
    place = open_(directory)
    require_whole(min_files, "min_files", 2, 2**31)
    require_whole(target, "target", 1, 2**50)
    durable.make_folder(place.compactions)
    with _alone(place):
        for one in pending(place):
            _apply(place, one)
        _clear(place)
        groups = plan(place, min_files, target)
        done = rows = 0
        total = sum(map(len, groups))
        for group, made in zip(groups, (engine or _merge_all)(place, groups), strict=True):
            one = commit(place, group, made)
            rows += parquet.count_rows(place, [one.made])
            _apply(place, one)
            done += len(group)
            tell(done, total)
    return Compacted(total, len(groups), rows)


def open_(directory: str | os.PathLike[str]) -> Disk:
    """Return the archive in this directory, if it can be compacted. Raises ArchiveRefused."""
    place = layout.open_(directory)
    if not isinstance(place, Disk):
        raise ArchiveRefused(
            place.root,
            "cannot be compacted: it is in a store without rename; archive larger batches, less often",
        )
    return place


def pending(directory: Disk) -> list[Pending]:
    """Return the compactions that are decided and may not be applied to the end."""
    found = []
    for name in names(directory.compactions):
        path = os.path.join(directory.compactions, name)
        record = durable.read_json(path) if name.endswith(_RECORD) else None
        if record is not None:
            root = directory.root
            add = File(
                os.path.join(root, record["add"]), record["queue"], record["day"], record.get("run")
            )
            remove = tuple(os.path.join(root, old) for old in record["remove"])
            found.append(Pending(path, os.path.join(root, record["made"]), add, remove))
    return found


def plan(directory: Disk, min_files: int, target: int) -> list[list[File]]:
    """Return the groups of files to merge."""
    folders: dict[tuple[str | None, ...], list[File]] = {}
    for file in directory.files():
        folders.setdefault(file[1:], []).append(file)
    # After the files: a batch that begins only now has no files among them, and those of a finished
    # batch may be merged.
    groups = []
    for files in folders.values():
        open_batches = tuple(directory.open_batches(files[0].queue))
        free = [file for file in files if not os.path.basename(file.path).startswith(open_batches)]
        small = [(file, size) for file in free if (size := os.path.getsize(file.path)) < target / 2]
        groups += [
            group for group in _bins(small, target) if len(small) >= min_files and len(group) > 1
        ]
    return groups


def merge(directory: Disk, group: Sequence[File]) -> str:
    """Write the rows of these files into one file that readers do not see, and return its path."""
    from pyarrow import parquet as pq  # here: pyarrow is imported only when needed, see arrow.py

    path = os.path.join(directory.compactions, f"{uuid.uuid4().hex}{SUFFIX}")
    schema = arrow.schema(directory.fields)
    with pq.ParquetWriter(path, schema, compression=parquet.CODEC) as writer:
        for file in group:
            with pq.ParquetFile(file.path) as source:
                for number in range(source.num_row_groups):
                    writer.write_table(as_written(source.read_row_group(number), schema, file))
    durable.sync(path)
    durable.sync(directory.compactions)
    return path


def _merge_all(directory: Disk, groups: Sequence[Sequence[File]]) -> Iterator[str]:
    return (merge(directory, group) for group in groups)


def as_written(table: pa.Table, schema: pa.Schema, file: File) -> pa.Table:
    """Return a table in the schema of our files. Another engine may have written it a little
    differently.
    """
    pa = arrow.pyarrow()
    unknown = set(table.column_names) - set(schema.names)
    if unknown:
        raise ArchiveRefused(
            file.path, f"has a column {min(unknown)!r}, which no file of an archive has"
        )
    columns = [
        table[field.name].cast(field.type)
        if field.name in table.column_names
        else pa.nulls(table.num_rows, field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def commit(directory: Disk, group: Sequence[File], made: str) -> Pending:
    """Decide that a file replaces those of a group from now on."""
    name = os.path.splitext(os.path.basename(made))[0]
    first = group[0]
    add = first._replace(
        path=os.path.join(os.path.dirname(first.path), f"compacted-{name}{SUFFIX}")
    )
    rows = parquet.count_rows(directory, [file.path for file in group])
    if parquet.count_rows(directory, [made]) != rows:
        raise ArchiveRefused(
            directory.root,
            f"the files of {first.queue!r}, {first.day}, changed while they were compacted",
        )
    record = os.path.join(directory.compactions, name + _RECORD)
    said = {
        "queue": first.queue,
        "day": first.day,
        "run": first.run,
        "made": os.path.relpath(made, directory.root),
        "add": os.path.relpath(add.path, directory.root),
        "remove": [os.path.relpath(file.path, directory.root) for file in group],
    }
    durable.write_json(record, said, record + "~")
    return Pending(record, made, add, tuple(file.path for file in group))


def _apply(directory: Disk, one: Pending) -> None:
    """Move the new file in, then remove the old files. Some of it may have been done before."""
    _count(directory)
    if not os.path.exists(one.add.path):
        durable.move(one.made, one.add.path)
        durable.sync(os.path.dirname(one.add.path))
    if not os.path.exists(one.add.path):
        raise ArchiveRefused(one.record, "names a file that is gone: was it removed by hand?")
    durable.remove(one.remove)
    durable.remove([one.record])


def generation(directory: Directory) -> int:
    """Return what is a larger number once old files may have been removed since."""
    if not isinstance(directory, Disk):
        return 0
    try:
        return os.path.getsize(os.path.join(directory.compactions, _LOCK))
    except FileNotFoundError:
        return 0


def _count(directory: Disk) -> None:
    with open(os.path.join(directory.compactions, _LOCK), "a", encoding="ascii") as file:
        file.write(".")


def _clear(directory: Disk) -> None:
    """Remove the files of compactions that were never decided."""
    durable.remove(
        os.path.join(directory.compactions, name)
        for name in names(directory.compactions)
        if name != _LOCK
    )


def _bins(files: Sequence[tuple[File, int]], target: int) -> Iterator[list[File]]:
    group: list[File] = []
    total = 0
    for file, size in files:
        if group and total + size > target:
            yield group
            group, total = [], 0
        group.append(file)
        total += size
    if group:
        yield group


@contextmanager
def _alone(directory: Disk) -> Iterator[Any]:
    """Hold a lock of the kernel, which ends with the process."""
    with open(os.path.join(directory.compactions, _LOCK), "a", encoding="ascii") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file
