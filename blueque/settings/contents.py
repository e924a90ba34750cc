"""Config: the contents of a blueque.toml."""

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
    """A recurring task in blueque.toml.

    queue, parameters: of each task that it makes.
    options: other arguments of `blueque.producer.schedules.define`, in seconds and bytes.
    """

    queue: str
    parameters: Any
    options: Mapping[str, Any]


class Config(NamedTuple):
    """The contents of a blueque.toml; without a file, all of it is empty.

    Settings are mappings by the keys in table.py, durations in seconds and sizes in bytes.
    listener, redis, scheduler, web: the tables of these names.
    queues: the table of each queue. Its `retention` has a key for each status, such as
        "retention.failed".
    retention: for queues that do not set it.
    statistics_keep: how many days the daily numbers are kept.
    redact: patterns of names whose values are hidden in shown parameters.
    payloads: how parameters, results and the like are stored.
    schedules: the recurring tasks, by name. `blueque schedule apply` writes them to Redis.
    aliases: the names of queues, by their aliases, which are not in Redis.
    fanouts: the queues of each fan-out, by its name.
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
        """Return the table of a queue; empty if it has none."""
        return self.queues.get(name, _EMPTY)

    def of_clients(self) -> ClientSettings:
        """Return the settings of clients for all queues: from the environment, else the file.

        Raises InvalidInput.
        """
        return ClientSettings.of(self.statistics_keep, self.aliases, self.redis, self.payloads)

    def has_handler(self, queue: str, environ: Mapping[str, str] = os.environ) -> bool:
        """Return whether the file or an environment variable names what runs the tasks of a queue."""
        return any(
            environ.get(f"BLUEQUE_{key.upper()}")
            or key in self.queue(queue)
            or key in self.listener
            for key in RUNS
        )

    def retention_of(self, queue: str, settings: Mapping[str, Keep] = _EMPTY) -> dict[str, Keep]:
        """Return how long the finished tasks of a queue are kept, by status.

        settings: the settings of the queue in Redis.
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
