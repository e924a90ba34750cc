"""Choices: what `blueque-listener` was asked to do, as the master and its slots know it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from blueque.listener.resources import Pool
from blueque.model.limits import Limits
from blueque.model.retry import Retry
from blueque.model.units import LOG_LEVEL, HandlerName, Keep, Timing
from blueque.model.working_directory import WorkingDirectory
from blueque.node.options import Defaults
from blueque.task_process.job import Job

CHOICES = "BLUEQUE_LISTENER_CHOICES"  # names the descriptor of the memory where they lie
_EMPTY: Mapping[str, WorkingDirectory] = MappingProxyType({})


class Choices(NamedTuple):
    """What `blueque-listener` was asked to do.

    limits, timing: as `Limits` and `Timing`. retry: the text of a policy. on_term: leave, drain or
        stop.
    resources: how much of each our node has. is_warm: import ahead of the task.
    preload: modules that each fork server imports, so that its forks have them.
    reuse: how many tasks a process takes, and for how many seconds, by queue; see `Reuse.of`.
    """

    queues: list[str]
    select: str  # one of selection.NAMES, or the name of a callable
    weights: dict[str, float]  # of queues in a lottery
    slots: int
    redis_url: str
    url_source: str
    spool: str
    max_bytes: int
    keep: float  # seconds for which the files of a reported attempt are kept
    spool_limit: float  # bytes for all of them, or below 1 a share of the disk
    log_limit: int  # bytes of each file that a task prints to
    handlers: dict[str, HandlerName]  # by queue
    limits: list[float | None]
    timing: list[float]
    retry: str | None
    on_term: str
    resources: dict[str, int]
    is_warm: bool
    preload: list[str]
    reuse: dict[str, tuple[int | None, float | None]]
    of_queues: dict[str, tuple[list[float | None], str | None]]  # limits, retry
    fixed: dict[str, list[str]]  # by queue, see `Defaults`
    # by queue and by status, as `Keep`
    retention: dict[str, dict[str, tuple[float | None, int | None]]]
    statistics_keep: int  # for how many days the numbers of a day are kept
    config: str | None  # the blueque.toml that was read
    until_empty: bool
    max_runtime: float | None  # seconds
    log_format: str  # one of logs.FORMATS
    host: str | None  # what node ids call this host
    task_redis: bool | None  # whether tasks get the address; None: those of callables do
    # variables that say some of this and that no task inherits, or that `host` replaces
    environ: dict[str, str]
    remarks: Sequence[str] = ()  # on what was asked for, for the log
    hooks: str | None = None  # the name of the class
    log_level: str = LOG_LEVEL
    cwd: Mapping[str, WorkingDirectory] = _EMPTY  # by queue

    @classmethod
    def from_json(cls, text: str | bytes) -> Choices:
        """Raises ValueError, TypeError: it is not what this version writes."""
        found = cls(**json.loads(text))
        return found._replace(
            handlers={queue: HandlerName(*name) for queue, name in found.handlers.items()},
            cwd={queue: WorkingDirectory(*words) for queue, words in found.cwd.items()},
        )

    @property
    def job(self) -> Job:
        """What the task processes do."""
        url = None if self.task_redis is False else self.redis_url
        return Job(self.handlers, self.max_bytes, url, self.task_redis is True, self.hooks)

    def defaults(self) -> Defaults:
        limits = Limits(*self.limits)  # type: ignore[arg-type]  # JSON has kept its kinds of number
        own = Defaults(
            Timing(*self.timing), limits, Retry.parse(self.retry), log_limit=self.log_limit
        )
        queues = {
            name: own._replace(limits=Limits(*its), retry=Retry.parse(retry))  # type: ignore[arg-type]
            for name, (its, retry) in self.of_queues.items()
        }
        for name, rules in self.retention.items():
            queues[name] = queues.get(name, own)._replace(
                retention={status: Keep(*its) for status, its in rules.items()},
                weight=self.weights.get(name, 1.0),
                fixed=self.fixed.get(name, ()),
            )
        for name, cwd in self.cwd.items():
            queues[name] = queues.get(name, own)._replace(cwd=cwd)
        return own._replace(queues=queues)


def kinds(handlers: Mapping[str, HandlerName]) -> dict[str, str]:
    """Return of each queue the first one that has the same handler."""
    return {
        queue: next(other for other in handlers if handlers[other] == name)
        for queue, name in handlers.items()
    }


def queues_text(choices: Choices) -> str:
    """Return which queues there are, and how a listener chooses among them."""
    if len(choices.queues) == 1:
        return f"queue {choices.queues[0]!r}"
    weights = choices.weights if choices.select == "lottery" else {}
    names = [
        f"{queue!r}={weights[queue]:g}" if queue in weights else repr(queue)
        for queue in choices.queues
    ]
    return f"{len(names)} queues ({choices.select}) {', '.join(names)}"


def handlers_text(choices: Choices) -> str:
    """Return what runs the tasks, by queue where that makes a difference."""
    names = {str(name) for name in choices.handlers.values()}
    if len(names) == 1:
        return names.pop()
    return ", ".join(f"{queue!r} by {name}" for queue, name in choices.handlers.items())


def pool_of(choices: Choices) -> Pool | None:
    if not choices.resources:
        return None
    return Pool(f"{os.path.abspath(choices.spool)}/resources", choices.resources)
