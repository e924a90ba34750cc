"""The steps of a batch: written, published, deleted. Any archiver can repeat a step from its beginning.

Files are on the disk before the record says so. A task is deleted only if a published file still
agrees with it.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import chain, islice

from blueque.archives import parquet_files
from blueque.archives.claims import Claim
from blueque.archives.layout import Archive
from blueque.archives.partitions import File
from blueque.connection.redis import Redis
from blueque.errors import ArchiveRefused
from blueque.model import keys
from blueque.model.states import Place
from blueque.protocol import archiving
from blueque.protocol.archiving import MOST, Written
from blueque.queries import finished
from blueque.text.format import count

IDS = 10_000  # ids of a list in one look: two milliseconds of Redis
PASSED = 100_000  # entries of a list, besides those of the batch, among which tasks are looked for

Tell = Callable[[int], object]  # is called with the number of tasks so far


def write_down(archive: Archive, claim: Claim, paths: Sequence[str]) -> None:
    """Record that these files, which we have written, belong to the batch."""
    claim.rows = parquet_files.count_rows(archive, paths)
    if claim.rows:
        archive.keep(claim, paths, claim.rows)
    claim.mark("written" if claim.rows else "deleted", staging=claim.writer, rows=claim.rows)
    claim.staging = claim.writer


def publish(archive: Archive, claim: Claim) -> None:
    """Show the files to readers."""
    _require_all(archive, claim, archive.written(claim))
    archive.publish(claim)
    claim.mark("published")


def delete(redis: Redis, archive: Archive, claim: Claim, tell: Tell) -> None:
    """Delete from Redis the tasks in the published files that have not changed."""
    files = archive.published(claim)
    _require_all(archive, claim, files)
    rows = iter(_as_listed(redis, archive, claim, files))
    done = 0
    while some := list(islice(rows, MOST)):
        claim.require()
        archiving.erase(redis, claim.ref, some, time.time())
        done += len(some)
        tell(done)
    claim.mark("deleted")


def _as_listed(
    redis: Redis, archive: Archive, claim: Claim, files: Sequence[File]
) -> list[Written]:
    """Return the tasks in these files, status by status, in the order of their lists.

    To remove a task from its list, Redis searches from the tail. The files are by day, and days may
    alternate in the list: deleting by file would make each search pass the tasks of other days.
    """
    found = chain.from_iterable(parquet_files.written(archive, files))
    rows = {row.task: row for row in found}
    statuses = Counter(row.status for row in rows.values())
    listed: list[Written] = []
    for status, rows_of in statuses.items():
        place, passed = Place(status, claim.queue), 0
        most, end = rows_of + PASSED, len(listed) + rows_of
        while len(listed) < end and passed < most:
            ids = finished.from_tail(redis, place, passed, IDS)
            listed += [rows.pop(task) for task in ids if task in rows]
            passed += len(ids) if len(ids) == IDS else most
    return listed + list(rows.values())


def finish(archive: Archive, claim: Claim) -> None:
    """Close the batch."""
    archive.tidy(claim)
    claim.finish()


def _require_all(archive: Archive, claim: Claim, files: Sequence[File]) -> None:
    """Raise ArchiveRefused if files of the batch are missing here, because they were removed."""
    rows = parquet_files.count_rows(archive, [file.path for file in files])
    if rows != claim.rows:
        claim.make_sure()  # another archiver may have gone on, and a person merged them
        raise ArchiveRefused(
            archive.root,
            f"batch {claim.batch} of queue {claim.queue!r} has {count(rows, 'row')} in its files, and {claim.rows} were "
            "written: put back the missing files, or continue where the batch was started; "
            f"if it is lost for good, delete the key {keys.archive(claim.queue)}",
        )
