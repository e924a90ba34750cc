"""Collect the metrics of schedules; docs/monitoring.md, "Metrics", explains their names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from prometheus_client.core import Metric

from blueque.connection.redis import Command, Redis, as_fields
from blueque.metrics.families import Sample, family
from blueque.model import keys
from blueque.model.parts import in_parts
from blueque.model.record import parse
from blueque.model.schedule import FIELDS, Occurrence
from blueque.model.states import FINISHED
from blueque.model.task import Task

BATCH = 500  # records that are read in one write
LATEST = 5  # occurrences of a schedule whose tasks are asked for their end
OTHER = "other"  # the name of the sum of all others
COUNTED = ("made", "skipped", "missed", "triggered")
_TYPES = {field: FIELDS[field] for field in (*COUNTED, "at", "paused")}


class _Numbers(NamedTuple):
    """The numbers of a schedule, or of several together. overdue: the maximum, in seconds."""

    counts: Mapping[str, int]
    overdue: float


def families(redis: Redis, listed: Sequence[str], now: float, most: int) -> list[Metric]:
    """Return the metrics of these schedules. now: the time of Redis.

    most: how many schedules have metrics of their own, the first by name.
    """
    names = sorted(listed)
    own: dict[str, _Numbers] = {}
    rest: list[_Numbers] = []
    for some in in_parts(names, BATCH):
        replies = redis.read(*[("HMGET", keys.schedule(name), *_TYPES) for name in some])
        for name, values in zip(some, replies, strict=True):
            if len(own) < most:
                own[name] = _numbers(values, now)
            else:
                rest.append(_numbers(values, now))
    succeeded = _last_success(redis, list(own))
    if rest:
        own[OTHER] = _together([*rest, *([own[OTHER]] if OTHER in own else [])])
        succeeded.pop(OTHER, None)
    return _families(own, succeeded)


def _numbers(values: Sequence[str | None], now: float) -> _Numbers:
    fields = as_fields(_TYPES, values)
    record = parse(fields, _TYPES)
    at = now if "paused" in fields else record.get("at", now)
    return _Numbers({what: record.get(what, 0) for what in COUNTED}, max(now - at, 0.0))


def _together(some: Sequence[_Numbers]) -> _Numbers:
    counts = {what: sum(each.counts[what] for each in some) for what in COUNTED}
    return _Numbers(counts, max(each.overdue for each in some))


def _last_success(redis: Redis, names: Sequence[str]) -> dict[str, float]:
    """Return when a task of each schedule last completed, in Unix seconds; 0: none of the latest did.

    A schedule is missing if none has ended, or if a newer task than its last success is gone.
    """
    asked: list[Command] = [("LRANGE", keys.occurrences(name), 0, LATEST - 1) for name in names]
    tasks = {name: _tasks(texts) for name, texts in zip(names, redis.read(*asked), strict=True)}
    ends = [
        ("HMGET", keys.task(task), "status", "finished") for some in tasks.values() for task in some
    ]
    replies = iter(redis.read(*ends))
    found = {name: _success([next(replies) for _ in some]) for name, some in tasks.items()}
    return {name: at for name, at in found.items() if at is not None}


def _tasks(texts: Sequence[str]) -> list[str]:
    """Return the tasks that were made for occurrences, newest first."""
    return [
        found.task
        for found in map(Occurrence.read, texts)
        if found is not None and found.task is not None and found.what in ("made", "triggered")
    ]


def _success(ends: Sequence[Sequence[str | None]]) -> float | None:
    """Return when the newest complete task ended. ends: `status` and `finished`, newest first."""
    success = None
    for status, finished in ends:
        if status is None:
            return None
        if status == "complete":
            return Task("", {"finished": finished or ""}).finished
        if status in FINISHED:
            success = 0.0
    return success


def _families(own: Mapping[str, _Numbers], succeeded: Mapping[str, float]) -> list[Metric]:
    return [
        family(
            "schedule_last_success_timestamp",
            "gauge",
            "Time when a task of the schedule last completed, in Unix seconds",
            [Sample({"schedule": name}, at) for name, at in succeeded.items()],
        ),
        family(
            "schedule_occurrences_total",
            "counter",
            "Number of planned times of the schedule with this outcome",
            [
                Sample({"schedule": name, "what": what}, number)
                for name, numbers in own.items()
                for what, number in numbers.counts.items()
            ],
        ),
        family(
            "schedule_overdue_seconds",
            "gauge",
            "Time that a planned time of the schedule has been due",
            [
                Sample({"schedule": name}, round(numbers.overdue, 3))
                for name, numbers in own.items()
            ],
        ),
    ]
