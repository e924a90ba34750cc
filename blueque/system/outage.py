"""Outage: log the start and the end of an outage once each."""

from __future__ import annotations

import logging
import time
from collections import Counter
from dataclasses import dataclass, field

from blueque.errors import RedisRefused
from blueque.system.backoff import pause

log = logging.getLogger("blueque")


@dataclass
class _Cause:
    """What has been wrong since `since`, and which duties it has stopped."""

    since: float = field(default_factory=time.monotonic)
    duties: set[str] = field(default_factory=set)


class Outage:
    """Logs what goes wrong when it begins, and again when it is over, however many duties meet it
    meanwhile.

    That Redis is away is over when any duty succeeds; that it refuses a command, when each duty
    that met it has succeeded.

    over: what to say when Redis, or whatever was away, is back.
    level: at which the beginning is logged.
    """

    def __init__(self, over: str, level: int = logging.WARNING) -> None:
        self._over, self._level = over, level
        # by what Redis says no longer at its end; "": it was no refusal
        self._causes: dict[str, _Cause] = {}
        self._failures: Counter[str] = Counter()  # of each duty, since it last succeeded

    @property
    def is_on(self) -> bool:
        """Whether something was wrong when it was last looked at."""
        return bool(self._causes)

    def note(self, reason: Exception | str | None, consequence: str = "", duty: str = "") -> bool:
        """Take notice of what has stopped a duty, or with None of its success; return whether
        something has.
        """
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
        if refused not in self._causes:
            self._causes[refused] = _Cause()
            log.log(self._level, "%s; %s", reason, consequence)
        self._causes[refused].duties.add(duty)
        self._failures[duty] += 1
        return True

    def pause(self, duty: str = "") -> float:
        """Return how long to wait before the next try, in seconds: longer each time, and never
        quite the same.
        """
        return pause(self._failures[duty])

    def _end(self, what: str) -> None:
        seconds = time.monotonic() - self._causes.pop(what).since
        log.warning("%s after %.1f s", f"Redis no longer {what}" if what else self._over, seconds)


def _refused(reason: Exception | str | None) -> str | None:
    """Return what Redis does that it should not, "" for any other reason, None if there is none.

    Rights and types are a matter of the command; what else Redis refuses with, as OOM, holds for
    many of them.
    """
    if isinstance(reason, RedisRefused):
        command = reason.command.partition(" ")[0]
        return (
            f"refuses {command}"
            if command and reason.code in ("NOPERM", "WRONGTYPE")
            else f"answers {reason.code}"
        )
    return None if reason is None else ""
