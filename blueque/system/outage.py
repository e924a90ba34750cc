"""Outage: log the start and the end of an outage once each."""

from __future__ import annotations

import logging
import time
from collections import Counter

from blueque.errors import OURS, NotReplicated, RedisAway, RedisRefused
from blueque.system.backoff import pause

log = logging.getLogger("blueque")


class _Cause:
    """An outage: its start, in monotonic seconds, the stopped duties, and the logged codes."""

    def __init__(self) -> None:
        self.since = time.monotonic()
        self.duties: set[str] = set()
        self.codes: set[str] = set()


class Outage:
    """Logs the start and the end of an outage once, however many duties it concerns.

    If Redis is away, the outage is over when any duty succeeds. If Redis refuses a command, it is
    over when each refused duty has succeeded.
    over: the message at the end. level: of the message at the start.
    """

    def __init__(self, over: str, level: int = logging.WARNING) -> None:
        self._over, self._level = over, level
        # by what is said at the end; "": `over`, it is not a refusal
        self._causes: dict[str, _Cause] = {}
        self._failures: Counter[str] = Counter()  # of each duty since its last success

    @property
    def is_on(self) -> bool:
        """Whether there is an outage."""
        return bool(self._causes)

    def note(self, reason: Exception | str | None, consequence: str = "", duty: str = "") -> bool:
        """Record why a duty failed, or with None its success; return whether it failed."""
        refused = _refused(reason)
        for what, cause in list(self._causes.items()):
            if what == refused or refused == "":
                continue
            cause.duties.discard(duty)
            if not what or not cause.duties:
                self._end(what)
        if refused is None:
            del self._failures[duty]
            return False
        cause = self._causes.setdefault(refused, _Cause())
        code = reason.code if isinstance(reason, RedisRefused) else ""
        if not cause.codes or (not refused and code not in cause.codes):
            log.log(self._level, "%s; %s", reason, consequence)
        cause.codes.add(code)
        cause.duties.add(duty)
        self._failures[duty] += 1
        return True

    def pause(self, duty: str = "") -> float:
        """Return the seconds to wait before the next try, longer each time."""
        return pause(self._failures[duty])

    def _end(self, what: str) -> None:
        seconds = time.monotonic() - self._causes.pop(what).since
        log.warning("%s after %.1f s", what or self._over, seconds)


def _refused(reason: Exception | str | None) -> str | None:
    """Return the message for when Redis does it again; "" for any other reason; None without a reason.

    Permissions and types concern one command; other refusals, such as OOM, concern many. Where
    Redis cannot be reached, as with an expired certificate, it has not answered.
    """
    if isinstance(reason, NotReplicated):  # what waits for no replica succeeds
        return "nothing waits for replicas any more"
    if isinstance(reason, RedisAway) and isinstance(reason.__cause__, RedisRefused):
        reason = reason.__cause__  # after the patience of a call; what only reads may succeed
    if isinstance(reason, RedisRefused) and reason.code not in OURS:
        command = reason.command.partition(" ")[0]
        concerned = command and reason.concerns_keys
        return f"Redis no longer {f'refuses {command}' if concerned else f'answers {reason.code}'}"
    return None if reason is None else ""
