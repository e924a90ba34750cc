"""What a blueque.toml says."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from blueque.model.retry import Retry
from blueque.model.units import RETENTION, HandlerName, Keep

_EMPTY: Mapping[str, Any] = MappingProxyType({})


class QueueConfig(NamedTuple):
    """What is said of one queue.

    weight: in a lottery. retry: its tasks' policy; False: they have none; None: nothing is said.
    limits: fields of a task, see `limits.fields`; None: without this limit, whatever the listener
        says.
    retention: how long a finished task stays, by its status.
    resources: what a task of it needs that says nothing itself.
    handler: what runs its tasks.
    reused: `reuse` and `reuse_for`, those that are said: how many tasks a process takes.
    start_within: seconds in which a new task has to start.
    pythonpath: directories in which a task finds Python modules first.
    cwd: `cwd` and `keep_cwd`, those that are said: where its tasks work.
    """

    weight: float | None = None
    retry: Retry | Literal[False] | None = None
    limits: Mapping[str, int | float | None] = _EMPTY
    retention: Mapping[str, Keep] = _EMPTY
    resources: Mapping[str, int] | None = None
    handler: HandlerName | None = None
    reused: Mapping[str, int | float] = _EMPTY
    start_within: float | None = None
    pythonpath: Sequence[str] = ()
    cwd: Mapping[str, str] = _EMPTY


class ScheduleConfig(NamedTuple):
    """A recurring task.

    queue, parameters: of the task that comes each time. options: what else
    `blueque.producer.schedules.define` takes, durations in seconds and sizes in bytes.
    """

    queue: str
    parameters: Any
    options: Mapping[str, Any]


class Config(NamedTuple):
    """A whole file; without one, nothing is said of anything.

    listener: what `[listener]` says, by key, durations in seconds and sizes in bytes; `limits` in
        one dict.
    retention: of queues whose own table says nothing of the status.
    statistics_keep: for how many days the numbers of a day are kept.
    redact: patterns of names whose values are not shown in parameters.
    scheduler: what `[scheduler]` says, by key.
    schedules: the recurring tasks, by name; `blueque schedule apply` brings them to Redis.
    aliases: the names of queues, by their second names, which are not in Redis.
    fanouts: the queues that each get a task, by the name of the fan-out.
    web: what `[web]` says, by key.
    """

    path: str | None = None
    redis_url: str | None = None
    max_bytes: int | None = None
    listener: Mapping[str, Any] = _EMPTY
    queues: Mapping[str, QueueConfig] = _EMPTY
    retention: Mapping[str, Keep] = _EMPTY
    statistics_keep: int | None = None
    redact: tuple[str, ...] = ()
    scheduler: Mapping[str, Any] = _EMPTY
    schedules: Mapping[str, ScheduleConfig] = _EMPTY
    aliases: Mapping[str, str] = _EMPTY
    fanouts: Mapping[str, tuple[str, ...]] = _EMPTY
    web: Mapping[str, Any] = _EMPTY

    def queue(self, name: str) -> QueueConfig:
        return self.queues.get(name, QueueConfig())

    def has_handler(self, queue: str, environ: Mapping[str, str] = os.environ) -> bool:
        """Tell whether the file or a variable names what runs the tasks of a queue."""
        return bool(
            any(environ.get(f"BLUEQUE_{name}") for name in ("HANDLER", "EXEC", "MODULES"))
            or self.queue(queue).handler
            or self.listener.keys() & {"handler", "exec", "modules"}
        )

    def retention_of(self, queue: str, settings: Mapping[str, Keep] = _EMPTY) -> dict[str, Keep]:
        """Return how long the finished tasks of a queue stay, by every status in which one may end.

        settings: what those of the queue in Redis say.
        """
        return {**RETENTION, **self.retention, **settings, **self.queue(queue).retention}
