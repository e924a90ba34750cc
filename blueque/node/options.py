"""What a listener holds its tasks to, where they say nothing themselves, and how it is judged."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from blueque.model.limits import Limits
from blueque.model.retry import Retry
from blueque.model.units import LOG_LIMIT, RETENTION, Keep, Timing


class Defaults(NamedTuple):
    """The choices of whoever started the listener."""

    timing: Timing = Timing()
    limits: Limits = Limits()
    retry: Retry | None = None
    retention: Mapping[str, Keep] = RETENTION  # how long a finished task stays, by its status
    log_limit: int = LOG_LIMIT  # bytes of each file that a task prints to
    # those for whose tasks something else was chosen
    queues: Mapping[str, Defaults] = MappingProxyType({})

    def of(self, queue: str | None) -> Defaults:
        """Return the choices for the tasks of one queue."""
        return self.queues.get(queue or "", self)
