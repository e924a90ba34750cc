"""Schedule: what operators do with one recurring task."""

from __future__ import annotations

import logging
import os
import time
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from blueque.connection.redis import Redis
from blueque.errors import InvalidInput, NoSuchSchedule, WrongSchedule
from blueque.model.cron import find_zone
from blueque.model.encoding import require_schedule_name, require_time, require_whole
from blueque.model.ids import DEFAULT_KEEP, id_fields, id_of_occurrence, require_keep
from blueque.model.new_task import NewTask
from blueque.model.options import TaskOptions
from blueque.model.recurrence import Rule, planned_times, read_rule
from blueque.model.schedule import (
    DEFAULT_WINDOW,
    MOST_BACKFILLED,
    CatchUp,
    Definition,
    Occurrence,
    Overlap,
    lock_of,
    read_policies,
    require_jitter,
    with_lock,
)
from blueque.producer.room import ask_for_room, only_new_of
from blueque.protocol import occurrences
from blueque.protocol.create import OneTask, create
from blueque.protocol.schedules import Pause, Resume, delete_schedule, set_schedule
from blueque.queries import schedules
from blueque.queries.schedules import ScheduleSeen
from blueque.system import process

if TYPE_CHECKING:
    from blueque.producer.queue import Queue

log = logging.getLogger("blueque")

_LOOKS_AFTER = 100  # tasks of `backfill`: whether the schedule is still there
MOST_EVER = 1_000_000  # tasks that one call of `backfill` makes, if told


class Policies(TypedDict, total=False):
    """What a schedule does besides planning times, as for `Client.set_schedule`."""

    timezone: str | None
    start: float | str | datetime | None
    until: float | str | datetime | None
    overlap: Overlap
    catch_up: CatchUp
    window: float | str
    jitter: float | str


class Recurrence(Policies, total=False):
    """The rule of a schedule and its policies."""

    cron: str | None
    every: float | str | None


class ScheduleOptions(Recurrence, TaskOptions, total=False):
    """All options of a schedule besides its queue and the parameters."""

    keep: float | str


def define(
    queue: Queue,
    name: str,
    parameters: Any = None,
    *,
    cron: str | None = None,
    every: float | str | None = None,
    timezone: str | None = None,
    start: float | str | datetime | None = None,
    until: float | str | datetime | None = None,
    overlap: str = "skip",
    catch_up: str = "last",
    window: float | str = DEFAULT_WINDOW,
    jitter: float | str = 0,
    keep: float | str = DEFAULT_KEEP,
    **options: Unpack[TaskOptions],
) -> Definition:
    """Return the definition of a schedule. Arguments and errors are those of `Client.set_schedule`."""
    if unknown := [option for option in options if option not in TaskOptions.__annotations__]:
        raise TypeError(f"a schedule has no option {unknown[0]!r}")
    rule = read_rule(cron=cron, every=every, timezone=timezone, start=start, until=until)
    policies = read_policies(overlap=overlap, catch_up=catch_up, window=window, jitter=jitter)
    text, fields = queue.template(parameters, name, **options)
    try:
        fields["keep"] = require_keep(keep)
    except InvalidInput as error:
        sentence = str(error)
        raise InvalidInput(
            sentence if sentence.startswith("keep") else f"keep: {sentence}"
        ) from error
    encoding = fields.pop("parameters_encoding", None)
    if overlap == "queue":
        fields = with_lock(fields, lock_of(name))
    require_jitter(policies["jitter"], rule, time.time())
    return Definition(
        queue.name, rule, text, None if encoding is None else str(encoding), fields, **policies
    )


class Schedule:
    """A recurring task: a name, a rule that says when, and the task to make each time.

    It holds the state of the moment at which it was loaded. `refresh` loads it anew, and so does
    the first read after a change through this object.
    """

    def __init__(self, redis: Redis, name: str) -> None:
        self.name = require_schedule_name(name)
        self._redis = redis
        self._seen = self._load()
        self._is_stale = False

    def __repr__(self) -> str:
        return f"<Schedule {self.name!r}>"

    def _load(self) -> ScheduleSeen:
        seen = schedules.load(self._redis, self.name)
        if seen is None:
            raise NoSuchSchedule(self.name)
        return seen

    def refresh(self) -> Schedule:
        """Load its state anew and return it. Raises NoSuchSchedule."""
        self._seen = self._load()
        self._is_stale = False
        return self

    @property
    def record(self) -> dict[str, Any]:
        """Its fields, see docs/protocol/schedules.md, "Schedules"."""
        return dict(self.seen.record)

    @property
    def seen(self) -> ScheduleSeen:
        """Its state when it was loaded; read again after a change through this object."""
        return self.refresh()._seen if self._is_stale else self._seen

    @property
    def definition(self) -> Definition:
        """Its definition. Raises InvalidInput if this version cannot read it."""
        return Definition.of(self.seen.fields)

    @property
    def rule(self) -> Rule:
        """When tasks are planned. Raises InvalidInput if this version cannot read it."""
        return self.definition.rule

    @property
    def is_paused(self) -> bool:
        """Whether it is paused and makes no tasks."""
        return "paused" in self.seen.record

    @property
    def decided(self) -> float:
        """All planned times up to this one, in Unix seconds, are decided or past."""
        seen = self.seen
        return max(float(seen.record.get("last", 0)), seen.now)

    def next_times(self, count: int = 1) -> list[datetime]:
        """Return the next planned times after it was loaded, in its time zone. A pause is ignored."""
        return next_times(self.rule, self.decided, count)

    def history(self, limit: int = 100) -> list[Occurrence]:
        """Return what became of its last planned times, newest first. Redis keeps 100."""
        return schedules.occurrences(self._redis, self.name, limit)

    def pause(self, by: str | None = None, reason: str | None = None) -> bool:
        """Make no tasks at planned times until `resume`. Return False if it was paused.

        by, reason: who pauses it (default: this user and host), and why.
        Raises NoSuchSchedule.
        Source: docs/protocol/schedules.md, "set_schedule".
        """
        who = process.who_of(by)
        self._is_stale = True
        is_new = set_schedule(self._redis, self.name, Pause(reason), who) == "paused"
        log.info("pause schedule=%s by=%s", self.name, who)
        return is_new

    def resume(self, catch_up: bool = False, by: str | None = None) -> bool:
        """End a pause. Return False if it was not paused.

        catch_up: make tasks for the times that were planned meanwhile, as after an outage: see
            `catch_up` of `Client.set_schedule`. Otherwise they are missed.
        by: as for `pause`.
        Raises NoSuchSchedule.
        Source: docs/protocol/schedules.md, "set_schedule".
        """
        who = process.who_of(by)
        self._is_stale = True
        was_paused = set_schedule(self._redis, self.name, Resume(catch_up), who) == "resumed"
        log.info("resume schedule=%s by=%s", self.name, who)
        return was_paused

    def trigger(self, force: bool = False, by: str | None = None) -> str:
        """Make a task now, in addition to the planned ones, and return its id.

        force: even if `overlap` does not allow one, because the previous task has not ended.
        by: as for `pause`.
        Raises NoSuchSchedule, WrongSchedule.
        Source: docs/protocol/schedules.md, "trigger".
        """
        who = process.who_of(by)
        self._is_stale = True
        task = occurrences.trigger(self._redis, self.name, os.urandom(16).hex(), who, force)
        log.info("trigger schedule=%s by=%s task=%s", self.name, who, task)
        return task

    def planned_between(self, begin: float, end: float, most: int) -> list[int]:
        """Return the first planned times between two times, both included, at most `most`."""
        return planned_times(self.rule, begin - 1e-6, end, most)

    def backfill(
        self,
        begin: float | datetime,
        end: float | datetime,
        *,
        overlap: str = "queue",
        most: int = MOST_BACKFILLED,
    ) -> list[str]:
        """Make the tasks of past planned times and return the ids of the new ones.

        A planned time never has two tasks. If the call fails, repeat it.
        begin, end: both included; Unix seconds, or a datetime with a time zone.
        overlap: "queue": run one after the other. "allow": run them at the same time.
        most: refuse if there are more planned times. Default: 1,000; at most a million.
        Raises NoSuchSchedule, also if it is deleted meanwhile; InvalidInput; QueueFull;
            WrongSchedule if `end` is in the future.
        Source: docs/protocol.md, "create".
        """
        if overlap not in ("queue", "allow"):
            raise InvalidInput(f'overlap: it is {overlap!r}; it has to be "queue" or "allow"')
        first, last = require_time(begin, "begin"), require_time(end, "end")
        require_whole(most, "most", 1, MOST_EVER)
        if last > self.refresh().seen.now:
            raise WrongSchedule(self.name, "the end of that time is still to come")
        definition = self.definition
        times = self.planned_between(first, last, most + 1)
        if len(times) > most:
            raise InvalidInput(f"more than {most} planned times; pass most=")
        if overlap == "queue":
            options = with_lock(definition.options, lock_of(self.name))
            definition = definition._replace(options=options)
        made: list[str] = []
        for number, planned in enumerate(times, 1):
            task = self._make_task(definition, planned)
            made += [] if task is None else [task]
            if number % _LOOKS_AFTER == 0:
                self.refresh()
        log.info("backfill schedule=%s new=%d of=%d", self.name, len(made), len(times))
        return made

    def _make_task(self, definition: Definition, planned: int) -> str | None:
        """Make the task of a planned time and return its id. None: the id is in use already."""
        task = id_of_occurrence(self.name, planned)
        fields = occurrences.fields_of_task(self.name, definition, planned)
        fields |= id_fields(int(fields.get("keep", 0)))
        queue = definition.queue
        ask_for_room(self._redis, {queue: 1}, only_new_of(self._redis, queue, [task]))
        new = NewTask(task, queue, definition.parameters, fields, {})
        (is_new,) = create(self._redis, OneTask(new, time.time()))
        return task if is_new else None

    def delete(self, by: str | None = None) -> bool:
        """Remove the schedule; its tasks stay. Return False if it was gone already.

        by: as for `pause`.
        Source: docs/protocol/schedules.md, "delete_schedule".
        """
        who = process.who_of(by)
        was_there = delete_schedule(self._redis, self.name, who)
        log.info("delete_schedule schedule=%s by=%s", self.name, who)
        return was_there


def next_times(rule: Rule, after: float, count: int) -> list[datetime]:
    """Return the first planned times after `after` (Unix seconds), in the time zone of the rule."""
    return [_in_zone(rule, each) for each in islice(rule.times(after), count)]


def _in_zone(rule: Rule, planned: int) -> datetime:
    zone = UTC if rule.timezone == "UTC" else find_zone(rule.timezone)
    return datetime.fromtimestamp(planned, zone)
