"""TimeLimits: apply its time limits to a handler in this process, by an alarm of the kernel."""

from __future__ import annotations

import signal
import threading
import time
from types import FrameType, TracebackType
from typing import Any

from blueque.model.limits import Limits

NEVER = float("inf")


class Exceeded(BaseException):
    """The task exceeded a limit. A listener would kill its process."""


class TimeLimits:
    """In a `with` block of the main thread, raises Exceeded when the block exceeds a limit.

    In another thread it only records that.
    exceeded: the name of the limit, and a sentence, once it is exceeded.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.exceeded: tuple[str, str] | None = None
        self._began = self._told = time.monotonic()
        self._is_over = False
        self._has_alarm = threading.current_thread() is threading.main_thread() and not (
            limits.time is limits.stall is None
        )
        self._before: tuple[Any, tuple[float, float]] | None = None

    def __enter__(self) -> TimeLimits:
        if self._has_alarm:
            handler = signal.signal(signal.SIGALRM, self._ring)
            left = signal.setitimer(signal.ITIMER_REAL, self._due() - time.monotonic())
            self._before = handler, left
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._is_over = True
        if self._before is not None:
            (handler, (left, every)), self._before = self._before, None
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, handler)
            if left:  # that of a test runner
                ran = time.monotonic() - self._began
                signal.setitimer(signal.ITIMER_REAL, max(left - ran, 1e-6), every)
        self.look()

    @property
    def is_near(self) -> bool:
        """Whether the time limit is so near that the task is asked to stop."""
        limit = self._limits.time
        return limit is not None and (
            self._limits.lead > 0
            and time.monotonic() >= self._began + max(limit - self._limits.lead, 0.0)
        )

    def note_progress(self) -> None:
        """Record that the task has reported progress."""
        self.look()
        self._told = time.monotonic()

    def look(self) -> None:
        """Record which limit is exceeded."""
        now, limits = time.monotonic(), self._limits
        if self.exceeded is not None or now < self._due():
            return
        if limits.time is not None and now >= self._began + limits.time:
            ran = now - self._began
            text = f"time_limit of {limits.time:g} s exceeded after {ran:.1f} s"
            self.exceeded = "time_limit", text
        else:
            silent = now - self._told
            text = f"stall_limit of {limits.stall:g} s exceeded, no progress for {silent:.1f} s"
            self.exceeded = "stall_limit", text

    def _due(self) -> float:
        """Return when the next limit is exceeded, on the monotonic clock."""
        limits = self._limits
        return min(
            NEVER if limits.time is None else self._began + limits.time,
            NEVER if limits.stall is None else self._told + limits.stall,
        )

    def _ring(self, number: int, frame: FrameType | None) -> None:
        if self._is_over or self.exceeded is not None:
            return
        self.look()
        if self.exceeded is not None:
            raise Exceeded(self.exceeded[1])
        signal.setitimer(signal.ITIMER_REAL, max(self._due() - time.monotonic(), 1e-6))
