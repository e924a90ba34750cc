"""A clock for what only waits for time to pass: whoever sleeps by it is awake at once, and it has
moved on by that.
"""

from __future__ import annotations

import threading
import time
from typing import Any


class Clock:
    """Stands for the module `time`, in a module under test and in its tests. It goes on by itself,
    too.

    Other threads than the first sleep in earnest: there is one clock, and nobody is to wait for
    what another one skips.
    """

    def __init__(self) -> None:
        self._ahead = 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)

    def monotonic(self) -> float:
        return time.monotonic() + self._ahead

    def time(self) -> float:
        return time.time() + self._ahead

    def sleep(self, seconds: float) -> None:
        if threading.current_thread() is threading.main_thread():
            self._ahead += seconds
        else:
            time.sleep(seconds)
