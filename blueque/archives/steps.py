"""The steps of a batch: written, published, deleted. Any archiver can repeat a step from its
beginning.

Files are on the disk before the record says so, and a task is deleted only if it still is what a
published file says.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from itertools import chain, islice

from blueque import protocol
from blueque.archives import durable, layout, parquet
from blueque.archives.claims import Claim
from blueque.archives.layout import Directory
from blueque.connection.redis import Redis
from blueque.errors import ArchiveRefused
from blueque.model import keys
from blueque.protocol.archiving import MOST
from blueque.text.format import count

Tell = Callable[[int], object]  # is called with the number of tasks so far


def prepare(directory: Directory, claim: Claim) -> str:
    """Return the folder for the files of a new batch, and remove what others have begun."""
    folder = directory.stagings(claim.queue)
    ours = directory.staging(claim.queue, claim.batch, claim.writer)
    durable.make_folder(folder)
    for name in os.listdir(folder):
        durable.remove_tree(os.path.join(folder, name))
    durable.make_folder(ours)
    return ours


def write_down(directory: Directory, claim: Claim) -> None:
    """Record that all files of the batch are in our staging folder."""
    claim.rows = parquet.sync_staged(directory.staging(claim.queue, claim.batch, claim.writer))
    durable.sync(directory.stagings(claim.queue))
    claim.mark("written" if claim.rows else "deleted", staging=claim.writer, rows=claim.rows)
    claim.staging = claim.writer


def publish(directory: Directory, claim: Claim) -> None:
    """Move the files to where readers see them."""
    staging = directory.staging(claim.queue, claim.batch, claim.staging)
    folders = set()
    for path, day in layout.staged(staging):
        folder = directory.folder(claim.queue, day)
        durable.make_folder(folder)
        durable.move(path, os.path.join(folder, f"{claim.batch}-{os.path.basename(path)}"))
    for file in directory.published(claim.queue, claim.batch):
        folders.add(os.path.dirname(file.path))
    for folder in sorted(folders):
        durable.sync(folder)
    _require_all(directory, claim)
    claim.mark("published")


def delete(redis: Redis, directory: Directory, claim: Claim, tell: Tell) -> None:
    """Delete from Redis the tasks in the published files that have not changed."""
    _require_all(directory, claim)
    rows = chain.from_iterable(parquet.written(directory.published(claim.queue, claim.batch)))
    done, some = 0, list(islice(rows, MOST))
    while some:
        claim.require()
        following = list(islice(rows, MOST))
        protocol.erase(redis, claim.ref, some, time.time(), following)
        done += len(some)
        tell(done)
        some = following
    claim.mark("deleted")


def finish(directory: Directory, claim: Claim) -> None:
    """Close the batch. Its staging folder goes first: until then no compaction touches the files."""
    durable.remove_tree(directory.staging(claim.queue, claim.batch, claim.staging))
    claim.finish()


def _require_all(directory: Directory, claim: Claim) -> None:
    """Raise ArchiveRefused if files are missing because they were removed."""
    rows = parquet.count_rows(directory.published(claim.queue, claim.batch))
    if rows != claim.rows:
        claim.make_sure()  # another archiver may have gone on, and compacted them
        raise ArchiveRefused(
            directory.root,
            f"batch {claim.batch} of queue {claim.queue!r} has {count(rows, 'row')} in its files, and {claim.rows} were written: put "
            f"back what is missing; if it is lost for good, delete the key {keys.archive(claim.queue)}",
        )
