"""Config: what a blueque.toml says."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from blueque.model.client_settings import ClientSettings
from blueque.model.units import RETENTION, Keep

_EMPTY: Mapping[str, Any] = MappingProxyType({})
# What runs tasks; the last one is only for all queues of a listener.
RUNS = ("handler", "exec", "modules")


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

    Settings are mappings by their keys in table.py, with durations in seconds and sizes in bytes.
    listener, redis, scheduler, web: what their tables say. queues: what the table of each queue says;
        `retention` of a queue has a key for each status, as "retention.failed".
    retention: of queues whose own table says nothing of the status.
    statistics_keep: for how many days the numbers of a day are kept.
    redact: patterns of names whose values are not shown in parameters.
    payloads: how parameters, results and the like are stored.
    schedules: the recurring tasks, by name; `blueque schedule apply` brings them to Redis.
    aliases: the names of queues, by their second names, which are not in Redis.
    fanouts: the queues that each get a task, by the name of the fan-out.
    document: the file as it was read, before it was checked.
    """

    path: str | None = None
    redis_url: str | None = None
    max_bytes: int | None = None
    listener: Mapping[str, Any] = _EMPTY
    queues: Mapping[str, Mapping[str, Any]] = _EMPTY
    retention: Mapping[str, Keep] = _EMPTY
    statistics_keep: int | None = None
    redact: tuple[str, ...] = ()
    scheduler: Mapping[str, Any] = _EMPTY
    schedules: Mapping[str, ScheduleConfig] = _EMPTY
    aliases: Mapping[str, str] = _EMPTY
    fanouts: Mapping[str, tuple[str, ...]] = _EMPTY
    web: Mapping[str, Any] = _EMPTY
    redis: Mapping[str, Any] = _EMPTY
    payloads: Mapping[str, Any] = _EMPTY
    document: Mapping[str, Any] = _EMPTY

    def queue(self, name: str) -> Mapping[str, Any]:
        """Return what the table of a queue says; empty: it has none."""
        return self.queues.get(name, _EMPTY)

    def of_clients(self) -> ClientSettings:
        """Return what the environment says of all queues of a client, or else the file. Raises
        InvalidInput.
        """
        return ClientSettings.of(self.statistics_keep, self.aliases, self.redis, self.payloads)

    def has_handler(self, queue: str, environ: Mapping[str, str] = os.environ) -> bool:
        """Tell whether the file or a variable names what runs the tasks of a queue."""
        return any(
            environ.get(f"BLUEQUE_{key.upper()}")
            or key in self.queue(queue)
            or key in self.listener
            for key in RUNS
        )

    def retention_of(self, queue: str, settings: Mapping[str, Keep] = _EMPTY) -> dict[str, Keep]:
        """Return how long the finished tasks of a queue stay, by every status in which one may end.

        settings: what those of the queue in Redis say.
        """
        own = self.queue(queue)
        named = {
            status: own[f"retention.{status}"]
            for status in RETENTION
            if f"retention.{status}" in own
        }
        return {**RETENTION, **self.retention, **settings, **named}


def shown_path(path: Sequence[str]) -> str:
    """Return a path as it is written in TOML."""
    return ".".join(part if re.fullmatch(r"[A-Za-z0-9_-]+", part) else f'"{part}"' for part in path)
