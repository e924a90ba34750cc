"""InEffect: the settings that apply to the tasks of a listener's queues, with those in Redis."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from blueque.model import limits
from blueque.model.limits import Limits
from blueque.model.queue_settings import NAMES, malformed, read_settings
from blueque.model.retry import Retry
from blueque.model.units import LOG_LIMIT, RETENTION, Keep, Timing
from blueque.model.working_directory import WorkingDirectory

_EMPTY: Mapping[str, str] = MappingProxyType({})


class OfQueue(NamedTuple):
    """The settings of a listener for the tasks of one queue.

    nearer, farther: those before and after the settings of the queue in Redis; by name, as text.
    """

    nearer: Mapping[str, str] = _EMPTY
    farther: Mapping[str, str] = _EMPTY
    cwd: WorkingDirectory = WorkingDirectory()


class TaskSettings(NamedTuple):
    """The settings for tasks of a queue that set nothing themselves.

    retention: how long a finished task is kept, by its status. weight: of the queue in a lottery.
    """

    limits: Limits = Limits()
    retry: Retry | None = None
    retention: Mapping[str, Keep] = RETENTION
    weight: float = 1.0
    cwd: WorkingDirectory = WorkingDirectory()

    @classmethod
    def read(cls, asked: OfQueue, in_redis: Mapping[str, str]) -> TaskSettings:
        """Return the settings that apply. in_redis: those of the queue; malformed ones have no effect."""
        wrong = malformed(in_redis)
        right = {name: text for name, text in in_redis.items() if name not in wrong}
        found = read_settings({**asked.farther, **right, **asked.nearer})
        bounds = zip(limits.NAMES, Limits(), strict=True)
        return cls(
            Limits(*[found.limits.get(name, bound) for name, bound in bounds]),  # type: ignore[arg-type]
            found.retry or None,
            {**RETENTION, **found.retention},
            found.weight or 1.0,
            asked.cwd,
        )


class InEffect:
    """The settings that apply to the tasks of each queue, with those in Redis as last read.

    timing, log_limit: of the listener. queues: its own settings, by queue.
    otherwise: those for any other queue.
    """

    def __init__(
        self,
        timing: Timing = Timing(),  # noqa: B008  # a constant
        log_limit: int = LOG_LIMIT,
        queues: Mapping[str, OfQueue] = MappingProxyType({}),
        otherwise: OfQueue = OfQueue(),  # noqa: B008  # a constant
    ) -> None:
        self.timing, self.log_limit = timing, log_limit
        self._asked, self._otherwise = queues, otherwise
        self._in_redis: dict[str, Mapping[str, str]] = {}
        self._held: dict[str, TaskSettings] = {}

    def of(self, queue: str | None) -> TaskSettings:
        """Return the settings that apply to the tasks of one queue."""
        name = queue or ""
        if name not in self._held:
            asked = self._asked.get(name, self._otherwise)
            self._held[name] = TaskSettings.read(asked, self._in_redis.get(name, _EMPTY))
        return self._held[name]

    def shown(self, queue: str) -> str:
        """Return the settings of a queue in Redis as text."""
        fields = self._in_redis.get(queue, _EMPTY)
        return " ".join(f"{name}={fields[name]}" for name in NAMES if name in fields) or "none"

    def retention(self, queues: Iterable[str]) -> dict[str, Mapping[str, Keep]]:
        """Return how long finished tasks are kept, by queue and by status."""
        return {queue: self.of(queue).retention for queue in queues}

    def take(self, settings: Mapping[str, Mapping[str, str]]) -> list[str]:
        """Take the settings of some queues in Redis; return the queues for which the result differs."""
        changed = []
        for queue, fields in settings.items():
            if fields != self._in_redis.get(queue, _EMPTY):
                before = self.of(queue)
                self._in_redis[queue] = fields
                del self._held[queue]
                if self.of(queue) != before:
                    changed.append(queue)
        return changed
