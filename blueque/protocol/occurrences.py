"""The tasks of schedules: fire and trigger.

There is no leader, and no task is made in advance. The EXEC that makes a task also moves the record
to the next planned time. The id of the task comes from the name and the planned time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from blueque.connection.redis import AnyLook, Command, Look, Redis, as_fields, as_hash, time_of
from blueque.errors import InvalidInput, WrongSchedule
from blueque.model import keys
from blueque.model.ids import id_of_occurrence, id_of_trigger
from blueque.model.lines import parse_needs
from blueque.model.new_task import NewTask
from blueque.model.schedule import (
    OPEN,
    Definition,
    Occurrence,
    Step,
    decide,
    is_out_of_order,
    missed_in_a_row,
)
from blueque.protocol.dependencies import creation
from blueque.protocol.schedule_record import moved_on, noted, required, told, whole_number
from blueque.protocol.transaction import Answer, Change, Verdict, transact


class Plan(NamedTuple):
    """The next step of a schedule, by its record.

    task: the id for the planned time that gets a task; None: no task is made.
    """

    record: Mapping[str, str]
    definition: Definition
    step: Step
    task: str | None


class _Task(NamedTuple):
    """An earlier task, with the fields that say whether and how it has ended."""

    id: str = ""
    status: str | None = None
    needs: str | None = None

    @property
    def is_open(self) -> bool:
        return self.status in OPEN


class _Before(NamedTuple):
    """The last task, and the one that had not ended when it was made."""

    current: _Task = _Task()
    before: _Task = _Task()

    @classmethod
    def of(cls, record: Mapping[str, str], states: Sequence[Sequence[str | None]]) -> _Before:
        """states: the replies to `_reads_of` the same record."""
        named = [name for name in cls._fields if name in record]
        tasks = (_Task(record[name], *state) for name, state in zip(named, states, strict=True))
        return cls(**dict(zip(named, tasks, strict=True)))


class _Outcome(NamedTuple):
    """What becomes of a planned time. fields: of the record. commands: those that make its task."""

    occurrence: Occurrence
    fields: Mapping[str, Any] = {}
    commands: Sequence[Command] = ()


class _Overlap(NamedTuple):
    """The task that prevents another beside it, and why."""

    task: _Task
    why: str


def plan_of(name: str, record: Mapping[str, str], now: float) -> Plan | None:
    """Return the next step of a schedule. None: nothing is due, or it is paused.

    now: the time of Redis. Raises InvalidInput for a record that this version cannot read.
    """
    if "at" not in record or "paused" in record:
        return None
    definition = Definition.of(record)
    planned, at = whole_number(record, "planned"), whole_number(record, "at")
    is_whole = (record.get("planned"), record["at"]) == (str(planned), str(at))
    if not is_whole or is_out_of_order(record):
        raise InvalidInput("it is not clear what is planned next: see blueque doctor")
    step = decide(definition, name, planned, at, now)
    if step is None:
        return None
    task = None if step.chosen is None else id_of_occurrence(name, step.chosen[0])
    return Plan(record, definition, step, task)


def look_at(name: str, plan: Plan) -> AnyLook:
    """Return the look of `fire`."""
    watch = [keys.schedule(name)]
    reads: list[Command] = [("HGETALL", keys.schedule(name)), ("TIME",)]
    if plan.task is not None:
        new = keys.task(plan.task), keys.key_kept(plan.task)
        before = _tasks_before(plan.record)
        watch += [*new, *before]
        reads += [("EXISTS", *new), *_reads_of(before)]
    return Look(watch, reads)


def fire(redis: Redis, name: str, plan: Plan) -> Occurrence | None:
    """Decide about the next planned times of a schedule, and return what became of the last of them.

    None: its record has changed since it was read; this call or another one may have decided it.
    """

    def judge(
        reply: Sequence[str], clock: Sequence[str], exists: int = 0, *states: list[str | None]
    ) -> Verdict[Occurrence | None]:
        now, step = time_of(clock), plan.step
        if as_hash(reply) != plan.record or whole_number(plan.record, "at") > now:
            return Answer(None)
        occurrences = missed_in_a_row(step.missed, now)
        fields: dict[str, Any] = {"last": step.last}
        commands: Sequence[Command] = ()
        if plan.task is not None and step.chosen is not None:
            before = _Before.of(plan.record, states)
            outcome = _outcome(name, plan, plan.task, step.chosen[0], bool(exists), before, now)
            occurrences.append(outcome.occurrence)
            fields |= outcome.fields
            commands = outcome.commands
        score: float | str = "+inf" if step.next is None else step.next[1]
        moving = moved_on(name, fields, step.next, score, occurrences, now)
        return Change([*commands, *moving], occurrences[-1])

    return transact(redis, "fire", look_at(name, plan), judge)


def _outcome(
    name: str, plan: Plan, task: str, planned: int, is_there: bool, before: _Before, now: float
) -> _Outcome:
    """Return what becomes of a planned time that may get a task. is_there: it has that task already."""
    made = Occurrence("made", planned, now, task)
    next_fields = _next_fields(plan.definition, plan.record, before, task)
    if is_there:  # no other one may come before the current task has ended
        return _Outcome(made, {} if before.current.is_open else next_fields)
    overlap = _overlap(plan.definition, before)
    if overlap is not None:
        other = overlap.task
        return _Outcome(
            Occurrence("skipped", planned, now, other.id, "overlap", status=other.status)
        )
    return _Outcome(made, next_fields, _creation(name, plan.definition, task, planned, now))


def trigger(redis: Redis, name: str, mark: str, by: str, is_forced: bool = False) -> str:
    """Make a task of a schedule now, in addition to the planned ones, and return its id.

    mark: a random text, the same for every try. is_forced: even if the previous task has not ended.
    Raises NoSuchSchedule; WrongSchedule if the previous task has not ended and the schedule does
        not allow another.
    """
    task, key = id_of_trigger(name, mark), keys.schedule(name)
    (reply,) = redis.read(("HMGET", key, *_Before._fields))
    seen = as_fields(_Before._fields, reply)

    def judge(
        reply: Sequence[str], clock: Sequence[str], exists: int, *states: list[str | None]
    ) -> Verdict[str]:
        if exists:
            return Answer(task)
        found, now = required(name, reply), time_of(clock)
        definition, tasks = Definition.of(found), _Before.of(seen, states)
        if {field: found[field] for field in _Before._fields if field in found} != seen:
            raise WrongSchedule(name, "it has just made a task; try again")
        overlap = None if is_forced else _overlap(definition, tasks)
        if overlap is not None:
            other = overlap.task
            why = f"task {other.id} has not ended ({other.status}), and {overlap.why}"
            raise WrongSchedule(name, why)
        is_beside = is_forced and tasks.current.is_open  # which is likely to run for longer
        fields = {} if is_beside else _next_fields(definition, found, tasks, task)
        triggered = Occurrence("triggered", int(now), now, task, by=by)
        return Change(
            [
                *_creation(name, definition, task, int(now), now),
                *noted(name, fields, [triggered], now),
                told(name, definition.queue, "triggered", by, now),
            ],
            task,
        )

    own = keys.task(task), keys.key_kept(task)  # the latter if it was deleted
    before = _tasks_before(seen)
    look: AnyLook = Look(
        [key, *own, *before],
        [("HGETALL", key), ("TIME",), ("EXISTS", *own), *_reads_of(before)],
        task,
    )
    return transact(redis, "trigger", look, judge)


def _tasks_before(record: Mapping[str, str]) -> list[str]:
    """Return the keys of the tasks that a record names."""
    return [keys.task(record[name]) for name in _Before._fields if name in record]


def _reads_of(tasks: Sequence[str]) -> list[Command]:
    return [("HMGET", task, "status", "needs") for task in tasks]


def _failures(record: Mapping[str, str], current: _Task) -> int:
    """Return how many tasks in a row have failed, the current one included."""
    before = whole_number(record, "failures")
    if current.status == "failed":
        return before + 1
    return 0 if current.status == "complete" else before


def _overlap(definition: Definition, tasks: _Before) -> _Overlap | None:
    """Return what prevents a task while the previous one has not ended; None: nothing."""
    current, before = tasks
    if not current.is_open or definition.overlap == "allow":
        return None
    if definition.overlap == "skip":
        return _Overlap(current, 'overlap = "skip" allows no second task')
    needs = parse_needs(current.needs or "")
    if needs is None or needs.lock != definition.lock:
        why = "it was made without the lock that keeps it apart from the next"
        return _Overlap(current, why)
    # A task that waits for its next attempt does not hold the lock, so `current` may have begun.
    waiting = current if current.status != "started" else before
    if waiting.is_open:
        return _Overlap(waiting, 'overlap = "queue" allows one waiting task')
    return None


def _next_fields(
    definition: Definition, record: Mapping[str, str], tasks: _Before, task: str
) -> dict[str, Any]:
    """Return the fields of a schedule whose next task follows the current one."""
    fields: dict[str, Any] = {"current": task, "failures": _failures(record, tasks.current)}
    if definition.overlap == "queue" and tasks.current.is_open:
        fields["before"] = tasks.current.id
    return fields


def fields_of_task(name: str, definition: Definition, planned: int) -> dict[str, str | int | float]:
    """Return the further fields of a task of a schedule, the encoding of its parameters first."""
    coded = {} if definition.encoding is None else {"parameters_encoding": definition.encoding}
    zone = {} if definition.rule.timezone == "UTC" else {"timezone": definition.rule.timezone}
    return {**coded, **definition.options, "schedule": name, "planned": planned, **zone}


def _creation(
    name: str, definition: Definition, task: str, planned: int, now: float
) -> list[Command]:
    """Return the commands that make a task."""
    fields = fields_of_task(name, definition, planned)
    new = NewTask(task, definition.queue, definition.parameters, fields, {})
    return creation([new], {}, now)
