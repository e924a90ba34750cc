"""Trouble: something that may be wrong for long, and is said once."""

from __future__ import annotations

import logging
import time

from blueque.pauses import pause

log = logging.getLogger("blueque")


class Trouble:
    """Says when something goes wrong and when it is well again, not each time it is looked at.

    over: what to say when it is well again.
    """

    def __init__(self, over: str) -> None:
        self._over = over
        self._since: float | None = None
        self._failures = 0

    @property
    def is_on(self) -> bool:
        """Whether it was wrong when it was last looked at."""
        return self._since is not None

    def tell(self, reason: str | None, consequence: str = "") -> bool:
        """Take notice of the reason, or of there being none; return whether there is one."""
        if reason is None:
            if self._since is not None:
                log.warning("%s after %.1f s", self._over, time.monotonic() - self._since)
            self._since, self._failures = None, 0
            return False
        if self._since is None:
            self._since = time.monotonic()
            log.warning("%s; %s", reason, consequence)
        self._failures += 1
        return True

    def pause(self) -> float:
        """Return how long to wait before the next try, in seconds: longer each time, and never quite the same."""
        return pause(self._failures)
