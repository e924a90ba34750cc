"""The scan of every key of Redis: one at a time, with its findings for all viewers."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from blueque.audit.audit import Report
from blueque.errors import BluequeError

log = logging.getLogger("blueque")

KEPT = 600.0  # seconds for which its result is shown


@dataclass(frozen=True)
class Seen:
    """A scan. began, ended: Unix seconds; ended is None while it runs. trouble: why it failed."""

    began: float
    ended: float | None = None
    report: Report | None = None
    trouble: str = ""


class Scan:
    """Scans every key in a thread of its own. is_idle: set while no scan runs."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._guard = threading.Lock()
        self._seen: Seen | None = None
        self.is_idle = threading.Event()
        self.is_idle.set()

    def start(self, look: Callable[[], Report]) -> bool:
        """Begin a scan. False: one is running."""
        with self._guard:
            if not self.is_idle.is_set():
                return False
            self.is_idle.clear()
            self._seen = seen = Seen(self._clock())
        threading.Thread(target=self._look, args=(look, seen), daemon=True).start()
        return True

    def seen(self) -> Seen | None:
        """Return the running scan, or the last one; None: there is none, or it is too old."""
        seen = self._seen
        is_old = seen and seen.ended is not None and self._clock() - seen.ended > KEPT
        return None if is_old else seen

    def _look(self, look: Callable[[], Report], seen: Seen) -> None:
        report, trouble = None, "This is a bug in Blueque. See the log of the server."
        try:
            report, trouble = look(), ""
        except BluequeError as error:
            trouble = str(error)
        except Exception:
            log.exception("web scan")
        self._seen = Seen(seen.began, self._clock(), report, trouble)
        self.is_idle.set()
