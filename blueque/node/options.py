"""Defaults: the limits of tasks that set none themselves, and the timing of the listener."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from blueque.model import limits
from blueque.model.limits import Limits
from blueque.model.queue_settings import NAMES, QueueSettings, read_settings
from blueque.model.retry import Retry
from blueque.model.units import LOG_LIMIT, RETENTION, Keep, Timing
from blueque.model.working_directory import WorkingDirectory


class Defaults(NamedTuple):
    """How the listener was configured.

    retention: how long a finished task stays, by its status.
    log_limit: bytes of each file that a task prints to.
    queues: those whose tasks have other settings.
    weight: of a queue in a lottery.
    fixed: the settings of a queue that go before those in Redis: an option, its table in
        blueque.toml or its handler says them.
    """

    timing: Timing = Timing()
    limits: Limits = Limits()
    retry: Retry | None = None
    retention: Mapping[str, Keep] = RETENTION
    log_limit: int = LOG_LIMIT
    cwd: WorkingDirectory = WorkingDirectory()
    queues: Mapping[str, Defaults] = MappingProxyType({})
    weight: float = 1.0
    fixed: Collection[str] = ()

    def of(self, queue: str | None) -> Defaults:
        """Return the settings for the tasks of one queue."""
        return self.queues.get(queue or "", self)

    def under(self, settings: QueueSettings) -> Defaults:
        """Return the settings of a queue with those in Redis."""
        given: dict[str, Any] = {
            f"retention.{status}": keep for status, keep in settings.retention.items()
        }
        given |= {"weight": settings.weight, "retry": settings.retry, **settings.limits}
        free = {name: value for name, value in given.items() if name not in self.fixed}
        bounds = zip(limits.NAMES, self.limits, strict=True)
        retry = free.get("retry")
        return self._replace(
            limits=Limits(*[free.get(name, bound) for name, bound in bounds]),  # type: ignore[arg-type]
            retry=self.retry if retry is None else retry or None,
            retention={
                status: free.get(f"retention.{status}", keep)
                for status, keep in self.retention.items()
            },
            weight=free.get("weight") or self.weight,
        )


class InEffect:
    """The defaults with the settings of the queues in Redis, as they were last read.

    said: as the listener was configured.
    """

    def __init__(self, said: Defaults) -> None:
        self._said = said
        self._fields: dict[str, Mapping[str, str]] = {}
        self._queues: dict[str, Defaults] = {}
        self.timing, self.log_limit = said.timing, said.log_limit

    def of(self, queue: str | None) -> Defaults:
        """Return what holds for the tasks of one queue."""
        return self._queues.get(queue or "") or self._said.of(queue)

    def shown(self, queue: str) -> str:
        """Return the settings of a queue in Redis as text."""
        fields = self._fields.get(queue, {})
        return " ".join(f"{name}={fields[name]}" for name in NAMES if name in fields) or "none"

    def retention(self, queues: Iterable[str]) -> dict[str, Mapping[str, Keep]]:
        """Return how long finished tasks stay, by queue and by status."""
        return {queue: self.of(queue).retention for queue in queues}

    def take(self, settings: Mapping[str, Mapping[str, str]]) -> list[str]:
        """Take the settings of some queues in Redis; return the queues for which something else
        holds now.
        """
        changed = []
        for queue, fields in settings.items():
            if fields != self._fields.get(queue, {}):
                self._fields[queue] = fields
                before = self.of(queue)
                self._queues[queue] = self._said.of(queue).under(read_settings(fields))
                if self._queues[queue] != before:
                    changed.append(queue)
        return changed
