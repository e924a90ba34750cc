"""Who feeds: of all feeders of one name only one does, and another takes its place when it is dead.

It is dead for certain when its process is gone, which can be seen on its own host only. From
elsewhere it is taken for dead when its record stood still for a whole lease, by the clock of
whoever waits, who looked often and got every answer. A feeder that was taken for dead and is not,
writes nothing more: each of its changes watches the record and its token.
"""

from __future__ import annotations

import os
import time

from blueque import protocol
from blueque.connection.redis import Redis
from blueque.model.units import Timing
from blueque.queries.feeds import Record
from blueque.system import process


class FeedOwner:
    """One feeder's claim on one feed. timing: how often it beats, and when others may take it for
    dead.
    """

    def __init__(self, redis: Redis, queue: str, feed: str, source: str, timing: Timing) -> None:
        self.token = os.urandom(16).hex()
        self._redis = redis
        self._queue = queue
        self._feed = feed
        self._source = source
        self._timing = timing
        self._beats = 0
        self._beat_due = 0.0
        self._seen: tuple[str | None, ...] = ()
        self._since = self._looked = 0.0

    def claim(self) -> dict[str, str]:
        """Become the feeder, if the one there is, if any, is dead; return the record, whose token
        tells.
        """
        record = self._open(None)
        if record.get("token") != self.token and self._is_dead(record):
            record = self._open(record.get("token"))
        self.note_fed()
        return record

    def forget_looks(self) -> None:
        """Begin to observe anew, for a look has failed: Redis may stand still, and the other for
        its sake.
        """
        self._seen = ()

    def note_fed(self) -> None:
        """Put off the next beat: a record that moves shows that its feeder lives."""
        self._beat_due = time.monotonic() + self._timing.beat

    def beat(self) -> None:
        """Show that we live, when it is time. Raises FeedTaken."""
        if time.monotonic() >= self._beat_due:
            self._beats += 1
            protocol.beat_feed(
                self._redis, self._queue, self._feed, self.token, self._beats, time.time()
            )
            self.note_fed()

    def leave(self) -> None:
        """Let the next one begin at once."""
        protocol.leave_feed(self._redis, self._queue, self._feed, self.token)

    def _open(self, dead: str | None) -> dict[str, str]:
        facts = {
            "node": process.node_id(),
            "pid": os.getpid(),
            **process.identity(os.getpid()),
            "beat_every": self._timing.beat,
            "lease": self._timing.lease,
        }
        instance = os.urandom(16).hex()
        return protocol.open_feed(
            self._redis,
            self._queue,
            self._feed,
            self.token,
            instance,
            self._source,
            facts,
            dead,
            time.time(),
        )

    def _is_dead(self, record: Record) -> bool:
        pid = record.get("pid", "")
        if (
            pid.isdecimal()
            and process.shares_pids(record)
            and not process.is_alive(int(pid), record)
        ):
            return True
        now = time.monotonic()
        seen = tuple(record.get(name) for name in ("token", "beat", "rows"))
        lease = max(_seconds(record, "lease"), 3 * _seconds(record, "beat_every"))
        if seen != self._seen or now - self._looked > lease / 4:
            self._seen, self._since = seen, now
        self._looked = now
        return now - self._since >= lease


def _seconds(record: Record, name: str) -> float:
    try:
        return float(record.get(name, ""))
    except ValueError:
        return Timing().lease
