"""A model of schedules, beside that of the queue: a rule, what was decided last, and policies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import model
from model import Fields, Model, Refusal

from blueque.errors import InvalidInput, NoSuchSchedule, WrongSchedule
from blueque.model import keys
from blueque.model.ids import id_of_occurrence, id_of_trigger
from blueque.model.schedule import Definition, Occurrence, digest_of

OPEN = ("blocked", "scheduled", "pending", "reserved", "started")
OF_RULE = ("every", "start", "until")
PROMPT = 60  # seconds in which nothing counts as missed
KEPT = 100


@dataclass
class Schedule:
    """A record. facts: all fields but those that follow from others. history: the newest first."""

    definition: Definition
    last: int
    facts: Fields = field(default_factory=dict)
    history: list[str] = field(default_factory=list)

    @property
    def planned(self) -> int | None:
        """What is next."""
        rule = self.definition.rule
        begin, every = rule.start or 0, rule.every or 0
        following = max(begin, self.last + every - (self.last - begin) % every)
        return following if rule.until is None or following <= rule.until else None

    @property
    def score(self) -> float:
        return float("inf") if "paused" in self.facts or self.planned is None else self.planned

    @property
    def fields(self) -> dict[str, str]:
        nexts = {} if self.planned is None else {"planned": self.planned, "at": self.planned}
        defined = self.definition.fields()
        news = {**self.facts, **nexts, "last": self.last, "digest": digest_of(defined)}
        return {**defined, **{name: str(value) for name, value in news.items()}}

    def due(self, now: float) -> list[int]:
        """Return all planned times that are past and undecided."""
        first, rule = self.planned, self.definition.rule
        end = int(now if rule.until is None else min(now, rule.until))
        return [] if first is None else [*range(first, end + 1, rule.every or 1)]

    def note(self, occurrence: Occurrence) -> None:
        self.history = [occurrence.text(), *self.history][:KEPT]
        what = occurrence.what
        self.facts[what] = self.facts.get(what, 0) + (occurrence.times or 1)

    def note_missed(self, times: Sequence[int], now: float, why: str) -> None:
        if len(times) == 1:
            self.note(Occurrence("missed", times[0], now, why=why))
        elif times:
            end, count = times[-1], len(times)
            self.note(Occurrence("missed", times[0], now, why=why, until=end, times=count))

    def give_up(self, now: float, why: str) -> None:
        """Have nothing come of what is due."""
        if due := self.due(now):
            self.note_missed(due, now, why)


class Planner:
    """Everything of schedules in Redis; tasks: all the rest."""

    def __init__(self, tasks: Model) -> None:
        self._tasks = tasks
        self.schedules: dict[str, Schedule] = {}
        self.created: list[str] = []  # the tasks that are new; whoever looks at them empties it

    def everything(self) -> dict[str, Any]:
        """Return every key with its whole value."""
        found: dict[str, Any] = {}
        if self.schedules:
            found[keys.SCHEDULES] = {name: its.score for name, its in self.schedules.items()}
        for name, its in self.schedules.items():
            found[keys.schedule(name)] = its.fields
            if its.history:
                found[keys.occurrences(name)] = its.history
        return found

    def _required(self, name: str) -> Schedule:
        if name not in self.schedules:
            raise Refusal(NoSuchSchedule)
        return self.schedules[name]

    def define(self, name: str, definition: Definition, now: float) -> str:
        its = self.schedules.get(name)
        if its is None:
            new = Schedule(definition, int(now), {"name": name, "origin": "hand", "version": 1})
            if new.planned is None:
                raise Refusal(InvalidInput)
            new.facts |= {"created": now, "updated": now}
            self.schedules[name] = new
            self._tasks.queues.add(definition.queue)
            return "new"
        old, new_rule = its.definition.rule, definition.rule
        if all(getattr(old, part) == getattr(new_rule, part) for part in OF_RULE):
            if its.definition == definition:
                return "same"
        else:
            wanted = Schedule(definition, int(now))
            if (its.definition, its.planned) == (definition, wanted.planned):
                return "same"
            its.give_up(now, "changed")
            its.last = int(now)
        its.definition = definition
        its.facts |= {"version": its.facts["version"] + 1, "updated": now}
        self._tasks.queues.add(definition.queue)
        return "changed"

    def fire(self, name: str, seen: dict[str, str], then: float, now: float) -> str | None:
        """seen: the record as it was read, when it was `then`. Return what came."""
        its = self.schedules.get(name)
        if its is None or its.fields != seen:
            return None
        due, policies = its.due(then), its.definition
        old = [moment for moment in due if moment < then - max(policies.window, PROMPT)]
        rest = due[len(old) :]
        chosen = None
        if rest and policies.catch_up == "all":
            chosen, rest = rest[0], rest[:1]
        elif rest and not (policies.catch_up == "none" and rest[-1] <= then - PROMPT):
            chosen = rest[-1]
        its.note_missed(old, now, "window")
        missed = rest if chosen is None else rest[: rest.index(chosen)]
        its.note_missed(missed, now, "catch_up")
        its.last, its.facts["updated"] = (rest or old)[-1], now
        if chosen is not None:
            self._make(name, its, chosen, now)
        return its.history[0]

    def _status(self, its: Schedule, which: str = "current") -> str | None:
        task = self._tasks.tasks.get(its.facts.get(which, ""))
        return None if task is None else task.status

    def _failures(self, its: Schedule) -> int:
        status, before = self._status(its), its.facts.get("failures", 0)
        return {"failed": before + 1, "complete": 0}.get(status or "", before)

    def _hindrance(self, its: Schedule) -> str | None:
        """Return the task because of which none comes, for it has not ended; None: one comes."""
        status, overlap = self._status(its), its.definition.overlap
        if status not in OPEN or overlap == "allow":
            return None
        current = its.facts["current"]
        needs = self._tasks.tasks[current].needs
        has_lock = model.NEEDS[needs][1] == its.definition.lock
        if not has_lock or overlap == "skip":
            return current
        if status != "started":
            return current
        return its.facts["before"] if self._status(its, "before") in OPEN else None

    def _follow(self, its: Schedule, task: str) -> None:
        if its.definition.overlap == "queue" and self._status(its) in OPEN:
            its.facts["before"] = its.facts["current"]
        its.facts["current"] = task

    def _make(self, name: str, its: Schedule, planned: int, now: float) -> None:
        task = id_of_occurrence(name, planned)
        is_there = task in self._tasks.tasks
        if not is_there and (held := self._hindrance(its)) is not None:
            status = self._tasks.tasks[held].status
            its.note(Occurrence("skipped", planned, now, held, "overlap", status=status))
            return
        if not (is_there and self._status(its) in OPEN):
            its.facts["failures"] = self._failures(its)
            self._follow(its, task)
        its.note(Occurrence("made", planned, now, task))
        if not is_there:
            self._create(name, its, task, planned, now)

    def _create(self, name: str, its: Schedule, task: str, planned: int, now: float) -> None:
        definition = its.definition
        options = dict(definition.options)
        needs = str(options.pop("needs", ""))
        given = {"parameters": definition.parameters, **options}
        given |= {"schedule": name, "planned": planned}
        new = model.New(task, given, {}, {}, needs=needs)
        self._tasks.make_new(definition.queue, new, now, 0)
        self.created.append(task)

    def pause(self, name: str, by: str, reason: str | None, now: float) -> bool:
        its = self._required(name)
        if "paused" in its.facts:
            return False
        its.facts |= {"paused": now, "paused_by": by, "updated": now}
        if reason is not None:
            its.facts["paused_reason"] = reason
        return True

    def resume(self, name: str, catches_up: bool, now: float) -> bool:
        its = self._required(name)
        if "paused" not in its.facts:
            return False
        for fact in ("paused", "paused_by", "paused_reason"):
            its.facts.pop(fact, None)
        if not catches_up:
            its.give_up(now, "paused")
            its.last = max(its.last, int(now))
        its.facts["updated"] = now
        return True

    def trigger(self, name: str, mark: str, by: str, is_forced: bool, now: float) -> str:
        task = id_of_trigger(name, mark)
        if task in self._tasks.tasks:
            return task
        its = self._required(name)
        if self._hindrance(its) and not is_forced:
            raise Refusal(WrongSchedule)
        if not (is_forced and self._status(its) in OPEN):
            its.facts["failures"] = self._failures(its)
            self._follow(its, task)
        its.note(Occurrence("triggered", int(now), now, task, by=by))
        its.facts["updated"] = now
        self._create(name, its, task, int(now), now)
        return task

    def delete(self, name: str) -> bool:
        return self.schedules.pop(name, None) is not None
