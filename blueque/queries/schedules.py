"""Schedules: which are due, and what a person wants to see of one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from blueque.connection.redis import (
    Command,
    Redis,
    as_fields,
    as_hash,
    as_scores,
    raise_refusal,
    time_of,
)
from blueque.errors import RedisRefused
from blueque.model import keys
from blueque.model.encoding import seconds_of
from blueque.model.parts import in_parts
from blueque.model.schedule import Occurrence, parse, read_options
from blueque.model.task import Task
from blueque.queries.listing import entered
from blueque.queries.steps import clock, of_each, read

if TYPE_CHECKING:
    from blueque.queries.steps import Reader

_OF_TASK = ("status", "created", "queued", "eta", "started", "finished", "updated")
BATCH = 500  # records that are read in one write
MAX_WATCHED = 1000  # schedules that are read for what needs attention, of each kind
_IN_A_ROW = 5  # occurrences of each that are read
_WATCHED = ("queue", "at", "current", "failures", "paused", "last")
_BY_ITSELF = ("overlap", "window", "catch_up")  # no person has asked for it


class ScheduleSeen(NamedTuple):
    """A schedule at one instant.

    record: see model/schedule.py; empty: there is none. fields: the same as text.
    score: when its next step is due, in Unix seconds by the clock of Redis; infinite: never.
    status: of its last task; None: there is none. since: when that task got its status.
    now: the time of Redis.
    """

    name: str
    record: dict[str, Any]
    fields: dict[str, str]
    score: float | None
    status: str | None
    now: float
    since: float | None = None

    @property
    def template(self) -> Task:
        """The parameters and context of each of its tasks, for people."""
        names = ("parameters", "parameters_encoding")
        fields = {name: self.fields[name] for name in names if name in self.fields}
        if "context" in (options := read_options(self.fields)):
            fields["context"] = str(options["context"])
        return Task("", {**fields, "schedule": self.name}).for_people()

    @property
    def overdue(self) -> float:
        """For how many seconds a step has been due; 0: none is."""
        at = self.now if "paused" in self.record else self.record.get("at", self.now)
        return max(self.now - float(at), 0.0)


class Watched(NamedTuple):
    """The facts about a schedule that may need attention. Times are in Unix seconds.

    at: when its next step is due; None: never.
    left_out: how many of its last occurrences in a row were skipped or missed unintentionally.
        is_more: there may be more.
    failures: how many tasks in a row failed before the last one, which is `current`.
    last: the planned time that was decided last.
    """

    name: str
    queue: str | None
    at: float | None
    left_out: int = 0
    failures: int = 0
    current: str | None = None
    paused: float | None = None
    is_more: bool = False
    last: float | None = None


def clock_of(redis: Redis) -> float:
    """Return the clock of Redis, in Unix seconds."""
    return read(redis, clock())


def first(redis: Redis, count: int, skip: int = 0) -> tuple[float, dict[str, float]]:
    """Return the time of Redis, and the schedules that make the next tasks, with their scores.

    Without schedules the clock is not read, and the time is 0. skip: how many of the first to leave out.
    """
    (names,) = redis.read(("ZRANGE", keys.SCHEDULES, skip, skip + count - 1, "WITHSCORES"))
    if not names:
        return 0.0, {}
    return clock_of(redis), as_scores(names)


def records(redis: Redis, names: Sequence[str]) -> list[dict[str, str] | RedisRefused]:
    """Return the records of some schedules as text. A key that is not a hash gives its error."""
    found = redis.answers(*[("HGETALL", keys.schedule(name)) for name in names])
    return [reply if isinstance(reply, RedisRefused) else as_hash(reply) for reply in found]


def queues(redis: Redis, names: Sequence[str]) -> list[Any]:
    """Return the queue of each schedule; None if missing. A key of another type gives its error."""
    return redis.answers(*[("HGET", keys.schedule(name), "queue") for name in names])


def load(redis: Redis, name: str) -> ScheduleSeen | None:
    """Return a schedule; None: there is none."""
    found = load_all(redis, [name])
    return found[0] if found else None


def names() -> Reader[list[str]]:
    """Read the names of all schedules, the next to make a task first."""
    (found,) = yield [("ZRANGE", keys.SCHEDULES, 0, -1)]
    return list(found)


def load_all(redis: Redis, only: Sequence[str] | None = None) -> list[ScheduleSeen]:
    """Return schedules, the next to make a task first. only: of these names."""
    wanted = read(redis, names()) if only is None else only
    seen: list[ScheduleSeen] = []
    for some in in_parts(wanted, BATCH):
        seen += _load_some(redis, some)
    return sorted(seen, key=lambda each: (each.score is None, each.score or 0.0, each.name))


def _load_some(redis: Redis, names: Sequence[str]) -> list[ScheduleSeen]:
    clock, listed, *replies = redis.answers(
        ("TIME",),
        ("ZMSCORE", keys.SCHEDULES, *names),
        *[("HGETALL", keys.schedule(name)) for name in names],
    )
    raise_refusal([clock, listed])
    # Doctor reports one that is not a hash.
    found = [{} if isinstance(reply, RedisRefused) else as_hash(reply) for reply in replies]
    now = time_of(clock)
    current = [fields.get("current") for fields in found]
    asked: list[Command] = [("HMGET", keys.task(task), *_OF_TASK) for task in current if task]
    states = iter(redis.read(*asked))
    tasks = [Task(task, as_fields(_OF_TASK, next(states))) if task else None for task in current]
    return [
        ScheduleSeen(
            name,
            parse(fields),
            fields,
            None if score is None else float(score),
            None if task is None else task.status,
            now,
            None if task is None else entered(task),
        )
        for name, fields, score, task in zip(names, found, listed, tasks, strict=True)
        if fields
    ]


def recent(redis: Redis, names: Sequence[str], count: int) -> dict[str, list[Occurrence]]:
    """Return what became of the last planned times of some schedules, newest first."""
    asked: list[Command] = [("LRANGE", keys.occurrences(name), 0, count - 1) for name in names]
    found = redis.read(*asked)
    return {name: _read(texts) for name, texts in zip(names, found, strict=True)}


def statuses(redis: Redis, found: Sequence[Occurrence]) -> dict[str, str | None]:
    """Return the status of each task that was made for planned times, by id; None: it is gone."""
    tasks = [each.task for each in found if each.task is not None]
    asked: list[Command] = [("HGET", keys.task(task), "status") for task in tasks]
    return dict(zip(tasks, redis.read(*asked), strict=True))


def _read(texts: Sequence[str]) -> list[Occurrence]:
    return [found for text in texts if (found := Occurrence.read(text)) is not None]


def occurrences(redis: Redis, name: str, limit: int = 100) -> list[Occurrence]:
    """Return what became of the last planned times of a schedule, newest first."""
    (texts,) = redis.read(("LRANGE", keys.occurrences(name), 0, max(limit, 1) - 1))
    return _read(texts)


def watched(names: Sequence[str]) -> Reader[list[Watched]]:
    """Read these schedules: one round trip."""
    found = yield from of_each({name: _watched(name) for name in names})
    return [schedule for schedule in found.values() if schedule is not None]


def _watched(name: str) -> Reader[Watched | None]:
    values, texts = yield [
        ("HMGET", keys.schedule(name), *_WATCHED),
        ("LRANGE", keys.occurrences(name), 0, _IN_A_ROW - 1),
    ]
    if not (fields := as_fields(_WATCHED, values)):
        return None
    left_out, is_more = _left_out(texts)
    return Watched(
        name,
        fields.get("queue"),
        seconds_of(fields.get("at")),
        left_out,
        int(seconds_of(fields.get("failures")) or 0),
        fields.get("current"),
        seconds_of(fields.get("paused")),
        is_more,
        seconds_of(fields.get("last")),
    )


def _left_out(texts: Sequence[str]) -> tuple[int, bool]:
    """Return how many occurrences were left out since the last task, and whether there may be more.

    texts: newest first.
    """
    left_out = 0
    for occurrence in map(Occurrence.read, texts):
        if occurrence is None or occurrence.what in ("made", "triggered"):
            return left_out, False
        if occurrence.what in ("skipped", "missed") and occurrence.why in _BY_ITSELF:
            left_out += occurrence.times or 1
    return left_out, len(texts) == _IN_A_ROW
