"""Deadline: how long a call of `Listener.listen` waits for a task."""

from __future__ import annotations

import math
import time

from blueque.connection.redis import Connection
from blueque.model import units
from blueque.model.encoding import require_timeout


class Deadline:
    """The deadline of a call, and the waits until then, each at most a beat long.

    timeout: of the call, in seconds; None: no limit. Raises InvalidInput.
    """

    def __init__(self, timeout: float | None) -> None:
        timeout = require_timeout(timeout)
        self._at = math.inf if timeout is None else time.monotonic() + timeout

    @property
    def seconds(self) -> float:
        """How long to wait now."""
        return min(max(self._at - time.monotonic(), 0.0), units.BEAT)

    @property
    def is_over(self) -> bool:
        return time.monotonic() >= self._at

    def is_answered(self, connection: Connection) -> bool:
        """Wait for the answer to a command that waits this long. Return whether it came."""
        return connection.wait(self.seconds + 5)
