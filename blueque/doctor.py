"""Doctor: what `blueque doctor` asks: is the server in order, is everything in it as it must be, and can it be mended?"""

from __future__ import annotations

import logging
import time

from blueque import audit, checkup, survey
from blueque.audit import Finding, Report
from blueque.checkup import Check
from blueque.connection import Redis
from blueque.errors import RedisRefused

log = logging.getLogger("blueque")


class Doctor:
    """Looks at a whole Redis, and repairs what is asked for."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis

    def check(self) -> list[Check]:
        """Look at the server itself, and at whether somebody puts in line what is due."""
        checks = checkup.check(self._redis)
        try:
            lines = survey.overview(self._redis).lines
        except RedisRefused:                           # a key is of a wrong type: the audit says so
            return checks
        return [*checks, *checkup.judge_due(lines)]

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
