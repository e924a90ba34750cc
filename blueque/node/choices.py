"""Choices: the arguments and settings of `blueque-listener`, as the master and its slots know them."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from blueque.listener.resources import Pool
from blueque.model.units import HandlerName, Timing
from blueque.model.working_directory import WorkingDirectory
from blueque.settings.in_effect import InEffect, OfQueue
from blueque.settings.values import address_of_tasks
from blueque.task_process.job import Job

CHOICES = "BLUEQUE_LISTENER_CHOICES"  # names the descriptor of the memory where they lie


class Choices(NamedTuple):
    """The arguments and settings of `blueque-listener`.

    settings: of [listener], by key, with their defaults, except those that a queue may set itself.
    weights: of queues in a lottery.
    handlers, of_queues: by queue. reuse: how many tasks a process takes, and for how many seconds,
        by queue; see `Reuse.of`.
    statistics_keep: for how many days the daily numbers are kept.
    replicas: how many must confirm a change, and within how many seconds.
    payloads: the variables for how payloads are stored; see model/payloads.py.
    config: the blueque.toml that was read.
    environ: variables for some of this, which tasks do not inherit or `host` replaces.
    remarks: on the arguments, for the log.
    """

    settings: dict[str, Any]
    weights: dict[str, float]
    handlers: dict[str, HandlerName]
    of_queues: dict[str, OfQueue]
    reuse: dict[str, tuple[int | None, float | None]]
    redis_url: str
    url_source: str
    max_bytes: int
    statistics_keep: int
    payloads: dict[str, str]
    config: str | None
    environ: dict[str, str]
    replicas: tuple[int, float]
    remarks: Sequence[str] = ()

    @classmethod
    def from_json(cls, text: str | bytes) -> Choices:
        """Return the choices in a text. Raises ValueError, TypeError for one of another version."""
        found = cls(**json.loads(text))
        return found._replace(
            handlers={queue: HandlerName(*name) for queue, name in found.handlers.items()},
            of_queues={
                queue: OfQueue(nearer, farther, WorkingDirectory(*cwd))
                for queue, (nearer, farther, cwd) in found.of_queues.items()
            },
        )

    @property
    def queues(self) -> list[str]:
        """The queues to take from."""
        return [*self.of_queues]

    @property
    def spool(self) -> str:
        """The directory for the files of attempts."""
        return str(self.settings["spool"])

    @property
    def select(self) -> str:
        """How to choose among the queues: one of queue_order.NAMES, or the name of a callable."""
        return str(self.settings["select"])

    @property
    def job(self) -> Job:
        """What the task processes do."""
        is_told = self.settings["task_redis"]  # None: callables are
        url = address_of_tasks(is_told, self.redis_url)
        return Job(self.handlers, self.max_bytes, url, bool(is_told), self.settings["hooks"])

    def in_effect(self) -> InEffect:
        """Return the settings for the tasks of each queue, before those in Redis."""
        timing = Timing(*(self.settings[name] for name in Timing._fields))
        return InEffect(timing, self.settings["log_limit"], self.of_queues)


def kinds(handlers: Mapping[str, HandlerName]) -> dict[str, str]:
    """Return for each queue the first queue that has the same handler."""
    return {
        queue: next(other for other in handlers if handlers[other] == name)
        for queue, name in handlers.items()
    }


def queues_text(choices: Choices) -> str:
    """Return which queues there are, and how a listener chooses among them, as text."""
    if len(choices.queues) == 1:
        return f"queue {choices.queues[0]!r}"
    weights = choices.weights if choices.select == "lottery" else {}
    names = [
        f"{queue!r}={weights[queue]:g}" if queue in weights else repr(queue)
        for queue in choices.queues
    ]
    return f"{len(names)} queues ({choices.settings['select']}) {', '.join(names)}"


def handlers_text(choices: Choices) -> str:
    """Return what runs the tasks, as text; by queue if that differs."""
    names = {str(name) for name in choices.handlers.values()}
    if len(names) == 1:
        return names.pop()
    return ", ".join(f"{queue!r} by {name}" for queue, name in choices.handlers.items())


def pool_of(choices: Choices) -> Pool | None:
    if not choices.settings["resources"]:
        return None
    return Pool(
        f"{os.path.abspath(choices.settings['spool'])}/resources", choices.settings["resources"]
    )
