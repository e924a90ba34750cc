"""Doctor: what `blueque doctor` asks: is the server in order, is everything in it as it must be, and can it be mended?"""

from __future__ import annotations

import logging
import time

from blueque import audit, checkup
from blueque.audit import Finding, Report
from blueque.checkup import Check
from blueque.connection import Redis

log = logging.getLogger("blueque")


class Doctor:
    """Looks at a whole Redis, and repairs what is asked for."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis

    def check(self) -> list[Check]:
        """Look at the server itself."""
        return checkup.check(self._redis)

    def audit(self, settle: float) -> Report:
        """Look at every key, and after `settle` seconds again at what is not as it must be; report what has stayed so.

        Source: docs/protocol.md, "Invariants".
        """
        return audit.report(self._redis, settle)

    def repair(self, finding: Finding) -> bool:
        """Repair one finding. False: there is no repair, or it is not as it was found any more."""
        is_repaired = audit.repair(self._redis, finding, time.time())
        if is_repaired:
            log.info("%s code=%s key=%s task=%s", finding.fix, finding.code, finding.key, finding.task)
        return is_repaired
