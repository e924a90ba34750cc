"""The failed tasks of queues, grouped by error type, and the newest of each group.

Reads are bounded: a number of the newest failed tasks of each queue. Older failures are counted by
day, see statistics.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from blueque.model import keys
from blueque.model.encoding import seconds_of
from blueque.queries.statistics import load
from blueque.queries.steps import of_each, read
from blueque.queries.task_lists import TaskList

if TYPE_CHECKING:
    from blueque.connection.redis import Redis

MAX_FAILED = 1000  # newest failed tasks of a queue that are read
MAX_FAILED_IN_ALL = 10_000  # in all queues together, but LEAST_FAILED of each
LEAST_FAILED = 50
WORDS = 200  # characters of an error that are shown

_FIELDS = ("status", "queue", "error_type", "finished", "updated")
UNKNOWN = "-"  # the type of a task that 1.0.0 has failed


class Kind(NamedTuple):
    """The failures of one queue with one error type.

    attempts: how many attempts failed this way within the days, including retried ones; listeners
        of 1.0.0 do not count them.
    failed: how many of the tasks that were read are failed with it now.
    newest: the id of the last of them; `at`: when it failed, in Unix seconds; and its `error`.
        None: there is none.
    """

    queue: str
    error_type: str
    attempts: int
    failed: int = 0
    newest: str | None = None
    at: float | None = None
    error: str | None = None


class Failures(NamedTuple):
    """kinds: by queue, most frequent first. looked_at: how many were read of queues with more."""

    kinds: list[Kind]
    looked_at: int
    has_more: list[str]


def failures(redis: Redis, queues: Sequence[str], days: int) -> Failures:
    """Return what failed in these queues within `days` days, and what is failed now.

    Five round trips, or more for many days of many queues, see `statistics.load`.
    """
    if not queues:
        return Failures([], 0, [])
    counted = load(redis, queues, days)
    kinds = {
        (numbers.queue, error_type): Kind(numbers.queue, error_type, count)
        for numbers in counted
        for error_type, count in numbers.total.errors.items()
    }
    most = max(min(MAX_FAILED, MAX_FAILED_IN_ALL // len(queues)), LEAST_FAILED)
    lists = {queue: TaskList(queue, "failed").beginning(most) for queue in queues}
    found = read(redis, of_each(lists))
    _add_failed(redis, kinds, {queue: ids for queue, (ids, _) in found.items()})
    ordered = sorted(
        kinds.values(),
        key=lambda kind: (kind.queue, -max(kind.attempts, kind.failed), kind.error_type),
    )
    has_more = [queue for queue, (ids, length) in found.items() if length > len(ids)]
    return Failures(_with_errors(redis, ordered), most, has_more)


def _add_failed(
    redis: Redis, kinds: dict[tuple[str, str], Kind], lists: Mapping[str, Sequence[str]]
) -> None:
    """Count the failed tasks of each kind, and remember the newest."""
    entries = [(queue, task_id) for queue, ids in lists.items() for task_id in ids]
    reads = [("HMGET", keys.task(task_id), *_FIELDS) for _, task_id in entries]
    hashes = redis.read(*reads)
    for (queue, task_id), fields in zip(entries, hashes, strict=True):
        status, queue_of_task, error_type, finished, updated = fields
        if (status, queue_of_task) == ("failed", queue):  # an entry is only a hint
            place = queue, error_type or UNKNOWN
            kind = kinds.get(place) or Kind(*place, 0)
            if kind.newest is None:
                kind = kind._replace(newest=task_id, at=seconds_of(finished or updated))
            kinds[place] = kind._replace(failed=kind.failed + 1)


def _with_errors(redis: Redis, kinds: Sequence[Kind]) -> list[Kind]:
    """Add the error of the newest task of each kind. The others are not needed and may be long."""
    named = [kind.newest for kind in kinds if kind.newest is not None]
    errors = redis.read(*[("HGET", keys.task(task_id), "error") for task_id in named])
    texts = {task_id: _shortened(text) for task_id, text in zip(named, errors, strict=True) if text}
    return [kind._replace(error=texts.get(kind.newest or "")) for kind in kinds]


def _shortened(text: str) -> str:
    """Return an error; of a long one the beginning and the last line, which usually names the cause."""
    if len(text) <= WORDS:
        return text
    first, *more = text.strip().split("\n")
    return f"{first[:WORDS]}\n{more[-1][:WORDS]}" if more else first[:WORDS]
