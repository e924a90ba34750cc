"""The claim on the archive of a queue: one archiver at a time. A dead archiver is replaced, a
living one is waited for.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

from blueque.connection.redis import Redis
from blueque.errors import ArchiveRefused, BluequeError, Taken
from blueque.model import keys
from blueque.protocol import archiving
from blueque.protocol.archiving import BatchRef
from blueque.system import process
from blueque.system.lease import Lease

BEAT = 5.0  # seconds between two signs of life
LEASE = 60.0  # seconds without a sign of life: it is dead
POLL = 0.5  # seconds between two checks of a living archiver

log = logging.getLogger("blueque")

Record = Mapping[str, str]


class Claim:
    """A batch that is ours, until another archiver takes us for dead."""

    def __init__(self, redis: Redis, record: Record, is_old: bool) -> None:
        self._redis = redis
        self.is_old = is_old  # another archiver has begun it
        self.queue, self.batch, self.writer = record["queue"], record["batch"], record["writer"]
        self.ref = BatchRef(self.queue, self.batch, self.writer)
        self.state = record["state"]
        # the writer of the files that count
        self.staging = record.get("staging", self.writer)
        self.rows, self.deleted = int(record.get("rows", 0)), int(record.get("deleted", 0))
        self._is_lost = False

    def require(self) -> None:
        """Raise Taken if a beat has found that the batch is no longer ours."""
        if self._is_lost:
            raise archiving.taken(self.ref)

    def make_sure(self) -> None:
        """Ask Redis whether the batch is ours. Raises Taken."""
        archiving.mark_batch(self._redis, self.ref, None, None, time.time())

    def mark(self, state: str, **facts: str | int) -> None:
        """Record the state of the batch. Raises Taken."""
        self.deleted = archiving.mark_batch(self._redis, self.ref, state, facts, time.time())
        self.state = state
        log.info("archive queue=%s batch=%s: %s", self.queue, self.batch, state)

    def finish(self) -> None:
        """Close the batch. Raises Taken."""
        archiving.mark_batch(self._redis, self.ref, "closed", None, time.time())

    def leave(self) -> None:
        """Let the next archiver continue at once. If Redis is away, it waits for the lease to end."""
        try:
            archiving.leave_batch(self._redis, self.ref)
        except BluequeError as error:
            log.warning("archive queue=%s batch=%s: %s", self.queue, self.batch, error)

    @contextmanager
    def beating(self) -> Iterator[None]:
        """Send heartbeats from another thread while the block runs."""
        is_over = threading.Event()
        thread = threading.Thread(
            target=self._beat, args=(is_over,), name="blueque-archive-beat", daemon=True
        )
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()

    def _beat(self, is_over: threading.Event) -> None:
        try:
            while not is_over.wait(BEAT):
                try:
                    self.make_sure()
                except Taken:
                    self._is_lost = True
                    return
                except BluequeError as error:
                    # if Redis is away, other archivers cannot reach it either
                    log.warning("archive queue=%s batch=%s: %s", self.queue, self.batch, error)
        finally:
            self._redis.close()  # this thread's connection


class Place(Protocol):
    """Where the files are: an archive."""

    root: str
    identity: str


def take(redis: Redis, directory: Place, queue: str, wait: Callable[[Record], object]) -> Claim:
    """Return the open batch of the queue, or a new one. Waits while another archiver works on it.

    wait: called twice a second with the record of the other archiver; it may raise to give up.
    Raises ArchiveRefused when the open batch belongs to another directory.
    """
    writer, over = os.urandom(8).hex(), None
    batch = f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{os.urandom(4).hex()}"
    ref = BatchRef(queue, batch, writer)
    pid = os.getpid()
    facts = {"by": process.user_at_host(), "pid": pid, **process.identity(pid)}
    place = {"directory": directory.root, "archive": directory.identity}
    lease = Lease()
    while True:
        record = archiving.claim_batch(redis, ref, facts, place, time.time(), over)
        if record.get("writer") == writer:
            return Claim(redis, record, record["batch"] != batch)
        _require_place(record, directory, queue)
        dead = record.get("writer", "")
        if not dead or lease.has_ended(record, LEASE):  # it has left, or it is dead
            over = dead
            continue
        wait(record)
        time.sleep(POLL)


def _require_place(record: Record, directory: Place, queue: str) -> None:
    if record.get("archive") != directory.identity:
        there = f"{record.get('directory')} ({record.get('by')})"
        raise ArchiveRefused(
            directory.root,
            f"batch {record.get('batch')} of queue {queue!r} is not finished in another archive, {there}: archive into that "
            f"one first; if it is lost for good, delete the key {keys.archive(queue)}",
        )
