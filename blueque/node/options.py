"""Defaults: the limits of tasks that set none themselves, and the timing of the listener."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from blueque.model.limits import Limits
from blueque.model.retry import Retry
from blueque.model.surroundings import Surroundings
from blueque.model.units import LOG_LIMIT, RETENTION, Keep, Timing


class Defaults(NamedTuple):
    """How the listener was configured."""

    timing: Timing = Timing()
    limits: Limits = Limits()
    retry: Retry | None = None
    retention: Mapping[str, Keep] = RETENTION  # how long a finished task stays, by its status
    log_limit: int = LOG_LIMIT  # bytes of each file that a task prints to
    surroundings: Surroundings = Surroundings()
    # queues whose tasks have other settings
    queues: Mapping[str, Defaults] = MappingProxyType({})

    def of(self, queue: str | None) -> Defaults:
        """Return the settings for the tasks of one queue."""
        return self.queues.get(queue or "", self)
