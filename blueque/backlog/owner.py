"""The owner of a feed: of all feeders of one name only one feeds at a time."""

from __future__ import annotations

import os
import time

from blueque.connection.redis import Redis
from blueque.model.units import Timing
from blueque.protocol import feeding
from blueque.protocol.feeding import FeedRef
from blueque.queries import feeds
from blueque.system import process
from blueque.system.lease import Lease


class FeedOwner:
    """The claim of one feeder on one feed.

    timing: how often it beats, and after how long others may take it for dead.
    """

    def __init__(self, redis: Redis, queue: str, feed: str, source: str, timing: Timing) -> None:
        self.token = os.urandom(16).hex()
        self._redis = redis
        self.ref = FeedRef(queue, feed, self.token)
        self._source = source
        self._timing = timing
        self._beats = 0
        self._beat_due = 0.0
        self._lease = Lease()

    def claim(self) -> dict[str, str]:
        """Become the feeder if there is none, or a dead one. Return the record; it has our token
        if it is ours.
        """
        record = self._open(None)
        if record.get("token") != self.token and self._lease.has_ended(record, _lease(record)):
            record = self._open(record.get("token"))
        self.note_fed()
        return record

    def restart_lease(self) -> None:
        """Wait for a whole lease of the other feeder anew, after a failed look."""
        self._lease.restart()

    def note_fed(self) -> None:
        """Put off the next beat: a record that moves shows that its feeder is alive."""
        self._beat_due = time.monotonic() + self._timing.beat

    def beat(self) -> None:
        """Show that we are alive, when it is time. Raises FeedTaken."""
        if time.monotonic() >= self._beat_due:
            self._beats += 1
            feeding.beat_feed(self._redis, self.ref, self._beats, time.time())
            self.note_fed()

    def leave(self) -> None:
        """Let the next feeder begin at once."""
        feeding.leave_feed(self._redis, self.ref)

    def _open(self, dead: str | None) -> dict[str, str]:
        facts = {
            "node": process.node_id(),
            "pid": os.getpid(),
            **process.identity(os.getpid()),
            "beat_every": self._timing.beat,
            "lease": self._timing.lease,
        }
        instance = os.urandom(16).hex()
        return feeding.open_feed(
            self._redis, self.ref, instance, self._source, facts, dead, time.time()
        )


def _lease(record: feeds.Record) -> float:
    values = feeds.numbers(record)
    default = Timing().lease
    return float(max(values.get("lease", default), 3 * values.get("beat_every", default)))
