"""Archives a queue: moves its finished tasks to Parquet files by day, in batches."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import NamedTuple

from blueque.archives import batch_steps, claims, opening, parquet_files, picking
from blueque.archives.claims import Claim, Record
from blueque.archives.layout import Archive, Output
from blueque.archives.window import ended_before, window
from blueque.client import Client
from blueque.connection.redis import Redis
from blueque.errors import (
    ArchiveRefused,
    BluequeError,
    InvalidInput,
    RedisAway,
    RedisRefused,
    Taken,
)
from blueque.model.columns import ARCHIVE_FIELDS
from blueque.model.encoding import require_number, require_queue_name, require_whole
from blueque.model.snapshot import Slice, Snapshot, require_statuses
from blueque.model.states import FINISHED
from blueque.model.units import parse_duration
from blueque.tables import hash_reader

BATCH = 250_000  # tasks
KEEP = 3600  # seconds that a snapshot is kept; a new one is taken in time

log = logging.getLogger("blueque")


class ArchiveProgress(NamedTuple):
    """The progress of archiving a queue.

    stage: wait, write, publish or delete.
    done, total: tasks of this batch.
    other: in the stage `wait`, the record of the other archiver.
    """

    stage: str
    batch: str
    done: int = 0
    total: int = 0
    other: Record | None = None


class Work(NamedTuple):
    """What an engine writes: the tasks of these slices that `picking.pick` picks, into files of `output`.

    before: only tasks that ended before this time, in Unix seconds; None: all.
    total: how many ids the slices have.
    tell: takes how many are written so far; raises Taken when another archiver has taken over.
    """

    queue: str
    batch: str
    pieces: list[Slice]
    before: float | None
    output: Output
    total: int
    tell: Callable[[int], None]


class Archived(NamedTuple):
    """The result of an archive run.

    batches: those of this run. resumed: batches that another run had left unfinished.
    written: tasks in the archive.
    deleted: how many of them it has deleted from Redis; the others were changed or deleted meanwhile.
    """

    queue: str
    directory: str
    batches: tuple[str, ...]
    resumed: tuple[str, ...]
    written: int
    deleted: int
    seconds: float

    @property
    def kept(self) -> int:
        """How many tasks it did not delete, because they had changed or were gone."""
        return self.written - self.deleted


Engine = Callable[[Redis, Work], Sequence[str]]  # the paths of the files
Tell = Callable[[ArchiveProgress], object]


def archive(
    queue: str,
    directory: str | os.PathLike[str],
    *,
    older_than: float | str | None = None,
    limit: int | None = None,
    statuses: str | Iterable[str] = FINISHED,
    url: str | None = None,
    client: Client | None = None,
    batch: int = BATCH,
    engine: Engine | None = None,
    tell: Tell = lambda progress: None,
    by_group: bool | None = None,
    unverified: bool = False,
) -> Archived:
    """Move the finished tasks of a queue into Parquet files by queue and day, and delete them from Redis.

    A run that was killed is continued by the next one. If another run is at work, the call waits for it.
    directory: an archive, created if needed, also for several queues. Or its URL, such as
        s3://bucket/archive; stores other than S3 require `unverified`.
    older_than: seconds since their end, or text such as "7d".
    limit: the most tasks to move.
    batch: how many at a time. Default: 250,000.
    engine: what writes the files. Default: pyarrow.
    tell: called often, with an ArchiveProgress.
    by_group: let a new archive have a folder for each group, too.
    Raises ArchiveRefused, InvalidInput, NotInstalled, RedisAway.
    Source: docs/protocol/archive.md, "claim_batch".
    """
    if client is not None and url is not None:
        raise InvalidInput("give an address or a client, not both")
    names = require_statuses(statuses, FINISHED)
    age = parse_duration(older_than) if isinstance(older_than, str) else older_than
    seconds = None if age is None else require_number(age, "older_than")
    most = None if limit is None else require_whole(limit, "limit", 1, 2**62)
    size = require_whole(batch, "batch", 1, 10_000_000)
    hash_reader.schema()  # raises before anything has begun if pyarrow is missing
    own = Client(url) if client is None else client
    name, place = require_queue_name(queue), opening.create(directory, by_group, unverified)
    try:
        # The clock of Redis: a wrong clock here would take tasks that have just finished.
        before = None if seconds is None else own.get_inspector().now() - seconds
        return _Run(own, name, place, names, before, size, engine or write, tell).run(most)
    except OSError as error:
        if isinstance(error, BluequeError):
            raise
        raise ArchiveRefused(
            place.root, f"{error.strerror}: {error.filename or ''}".rstrip(": ")
        ) from error
    finally:
        if client is None:
            own.close()


def write(redis: Redis, work: Work) -> Sequence[str]:
    """Write the files with pyarrow in this process, and return their paths."""
    files, seen = parquet_files.Files(work.output), set[str]()
    for piece in work.pieces:
        for batch in hash_reader.read(redis, piece, ARCHIVE_FIELDS):
            files.write(picking.pick(batch, work.queue, work.before, seen))
            work.tell(files.rows)
    return files.close()


class _Run:
    def __init__(
        self,
        client: Client,
        queue: str,
        archive: Archive,
        statuses: list[str],
        before: float | None,
        size: int,
        engine: Engine,
        tell: Tell,
    ) -> None:
        self._client = client
        self._redis = client._redis
        self._queue = queue
        self._archive = archive
        self._statuses = statuses
        self._before = before
        self._size = size
        self._engine = engine
        self._tell = tell
        self._snapshot: Snapshot | None = None
        self._position = 0  # in the snapshot, behind the last archived entry
        self._batches: list[str] = []
        self._resumed: list[str] = []
        self._written = self._deleted = 0

    def run(self, limit: int | None) -> Archived:
        began, is_first = time.monotonic(), True
        try:
            while limit is None or self._written < limit:
                if not (is_first and self._is_one_open()) and not self._is_more():
                    break
                is_first = False
                size = self._size if limit is None else min(self._size, limit - self._written)
                claim = claims.take(self._redis, self._archive, self._queue, self._wait)
                with claim.beating():
                    self._carry(claim, size)
        finally:
            self._thaw()
        return Archived(
            self._queue,
            self._archive.root,
            tuple(self._batches),
            tuple(self._resumed),
            self._written,
            self._deleted,
            time.monotonic() - began,
        )

    def _carry(self, claim: Claim, size: int) -> None:
        try:
            self._carry_on(claim, size)
        except (
            Taken
        ) as error:  # we were taken for dead; the other archiver goes on, and we wait for it
            log.warning("archive queue=%s: %s", self._queue, error)
        except BaseException:
            claim.leave()
            raise

    def _carry_on(self, claim: Claim, size: int) -> None:
        """Continue a batch from its state to its end."""
        if claim.is_old:
            self._resumed.append(claim.batch)
        if claim.state == "claimed":
            self._write(claim, size)
        if claim.state == "written":
            batch_steps.publish(self._archive, claim)
        if claim.state == "published":
            batch_steps.delete(
                self._redis,
                self._archive,
                claim,
                lambda done: self._say("delete", claim, done, claim.rows),
            )
        batch_steps.finish(self._archive, claim)
        if claim.rows:
            self._batches.append(claim.batch)
            self._written += claim.rows
            self._deleted += claim.deleted

    def _write(self, claim: Claim, size: int) -> None:
        output = self._archive.prepare(claim)
        pieces = window(self._frozen(), self._position, size)
        total = sum(piece.last - piece.first for piece in pieces)

        def tell(done: int) -> None:
            claim.require()
            self._say("write", claim, done, total)

        try:
            paths = self._engine(
                self._redis,
                Work(self._queue, claim.batch, pieces, self._before, output, total, tell),
            )
            batch_steps.write_down(self._archive, claim, paths)
        except Exception:
            with suppress(RedisAway, RedisRefused):  # the first error says more
                claim.make_sure()  # another archiver may have removed what we have written
            raise
        self._position += size

    def _is_one_open(self) -> bool:
        return any(self._client.get_inspector().archiving([self._queue]))

    def _is_more(self) -> bool:
        """Return whether the snapshot has more tasks."""
        return self._position < self._frozen().rows

    def _frozen(self) -> Snapshot:
        """Return a snapshot that is kept for a while."""
        if self._snapshot is not None and time.time() - self._snapshot.taken > KEEP / 2:
            self._thaw()
        if self._snapshot is None:
            snapshot = self._client.freeze(self._queue, self._statuses, KEEP)
            self._snapshot, self._position = snapshot, 0
            if self._before is not None:
                self._snapshot = ended_before(self._redis, snapshot, self._before)
        return self._snapshot

    def _thaw(self) -> None:
        if self._snapshot is not None:
            with suppress(BluequeError):  # it expires by itself
                self._client.thaw(self._snapshot)
            self._snapshot = None

    def _wait(self, other: Record) -> None:
        self._tell(ArchiveProgress("wait", other.get("batch", ""), other=other))

    def _say(self, stage: str, claim: Claim, done: int, total: int) -> None:
        self._tell(ArchiveProgress(stage, claim.batch, done, total))
