"""When the owner of a record in Redis counts as dead.

On its own host: when its process has ended. Elsewhere: when its record has not changed for a whole
lease, by the clock of the waiting program, which has looked often and got every answer. An owner
that is wrongly taken for dead writes nothing more: each of its changes watches the record and the
owner named there.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from blueque.system import process


class Lease:
    """Watches one record that belongs to another process, until that process counts as dead."""

    def __init__(self) -> None:
        self._record: Mapping[str, str] | None = None
        self._since = self._looked = 0.0

    def has_ended(self, record: Mapping[str, str], seconds: float) -> bool:
        """Return whether the owner of the record counts as dead. seconds: how long its lease is."""
        if process.is_gone(process.pid_of(record.get("pid", "")), record):
            return True
        now = time.monotonic()
        if record != self._record or now - self._looked > seconds / 4:
            self._record, self._since = record, now
        self._looked = now
        return now - self._since >= seconds

    def restart(self) -> None:
        """Start waiting for a whole lease again, after a failed look: Redis may be the cause."""
        self._record = None
