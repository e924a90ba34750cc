"""The tasks of schedules: fire, undoom, trigger, backfill.

No program leads, and no task is made ahead. The EXEC that makes a task also moves the record on to what
is next. The id of the task is made of the name and the planned time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from blueque.connection.redis import AnyLook, Command, Look, Redis, as_hash
from blueque.errors import InvalidInput, WrongSchedule
from blueque.model import keys
from blueque.model.ids import id_of_occurrence, id_of_trigger
from blueque.model.lines import parse_needs
from blueque.model.schedule import (
    BLUEQUE,
    OPEN,
    Definition,
    Occurrence,
    Step,
    decide,
    is_out_of_order,
    lock_of,
    missed_in_a_row,
    together,
    with_lock,
)
from blueque.protocol.dependencies import NewTask, creation
from blueque.protocol.schedule_record import (
    moved_on,
    pausing,
    recorded,
    required,
    time_of,
    whole_number,
)
from blueque.protocol.transaction import Answer, Change, Verdict, transact

BACKFILLED_AT_ONCE = 100  # tasks that one `backfill` makes


class Plan(NamedTuple):
    """What comes of a schedule next, by its record as it was read. task: the id for the planned
    time that gets a task; None: no task is made.
    """

    record: Mapping[str, str]
    definition: Definition
    step: Step
    task: str | None


class Fired(NamedTuple):
    """What has come of a schedule. what: made, skipped, missed, or paused after too many failures."""

    what: str
    planned: int
    task: str | None = None


class _Current(NamedTuple):
    """The fields of the task that came last which say whether it has ended, and how."""

    status: str | None = None
    needs: str | None = None

    @property
    def is_open(self) -> bool:
        return self.status in OPEN


class _Hindrance(NamedTuple):
    """The task that lets none come beside it, its status, and why it does not."""

    task: str
    status: str | None
    why: str


def plan_of(name: str, record: Mapping[str, str], now: float) -> Plan | None:
    """Return what comes of a schedule next. None: nothing is due, or it is paused.

    now: the clock of Redis. Raises InvalidInput for a record that this version cannot read.
    """
    if "at" not in record or "paused" in record or "doomed" in record:
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
        task, kept = keys.task(plan.task), keys.key_kept(plan.task)
        watch += [task, kept]
        reads += [("EXISTS", task, kept)]
        if (current := plan.record.get("current")) is not None:
            watch += [keys.task(current)]
            reads += [("HMGET", keys.task(current), *_Current._fields)]
            # It changes only together with the record, which is watched.
            reads += [("LRANGE", keys.occurrences(name), 0, 0)]
            if plan.definition.overlap == "queue" and "before" in plan.record:
                watch += [before := keys.task(plan.record["before"])]
                reads += [("HMGET", before, *_Current._fields)]
    return Look(watch, reads)


def fire(redis: Redis, name: str, plan: Plan, ahead: AnyLook | None = None) -> Fired | None:
    """Decide about the next occurrence of a schedule. None: its record has changed since it was read:
    it may have been decided, by this call or by another one.

    ahead: the look of the `fire` that follows on this connection.
    """
    definition, step, task = plan.definition, plan.step, plan.task
    queue = definition.queue

    def judge(
        reply: Sequence[str], clock: Sequence[str], exists: int = 0, *others: Any
    ) -> Verdict[Fired | None]:
        now = time_of(clock)
        if as_hash(reply) != plan.record or whole_number(plan.record, "at") > now:
            return Answer(None)
        current = _Current(*others[0]) if others else _Current()
        before = _Current(*others[2]) if len(others) > 2 else _Current()
        commands: list[Command] = []
        occurrences = missed_in_a_row(step.missed, now)
        counts = {"missed": len(step.missed)}
        fields: dict[str, Any] = {"last": step.last}
        fired = Fired("missed", step.last)
        score: float | str = "+inf" if step.next is None else step.next[1]
        if step.chosen is not None and task is not None:
            planned = step.chosen[0]
            failures = _failures(plan.record, current)
            if definition.pause_after_failures and failures >= definition.pause_after_failures:
                return Change(_pausing(name, queue, failures, now), Fired("paused", planned))
            held = None if exists else _hindrance(definition, plan.record, current, before)
            if held is not None:
                skip = Occurrence("skipped", planned, now, held.task, "overlap", None, held.status)
                longer = None if occurrences else _longer(others[1], skip, plan.record)
                if longer is not None:
                    commands += [("LTRIM", keys.occurrences(name), 1, -1)]
                occurrences += [longer or skip]
                counts["skipped"] = 1
                fired = Fired("skipped", planned, held.task)
            else:
                occurrences += [Occurrence("made", planned, now, task)]
                counts["made"] = 1
                fired = Fired("made", planned, task)
                if not (exists and current.is_open):  # no other one may come before this one ends
                    fields |= _succession(definition, plan.record, current, task)
                if not exists:
                    commands += _creation(name, definition, [(task, planned)], now)
                    if definition.overlap == "replace" and current.is_open:
                        fields["doomed"], score = plan.record["current"], 0
        return Change(
            [*commands, *moved_on(name, queue, fields, step.next, score, occurrences, counts, now)],
            fired,
        )

    return transact(redis, "fire", look_at(name, plan), judge, ahead=ahead)


def _longer(
    newest: Sequence[str], skip: Occurrence, record: Mapping[str, str]
) -> Occurrence | None:
    """Return the newest entry of the list with one more that was skipped. None: it is another thing."""
    before = Occurrence.read(newest[0]) if newest else None
    return None if before is None else before.with_next(skip, whole_number(record, "last"))


def undoom(redis: Redis, name: str, task: str) -> None:
    """Note that the task has been cancelled in whose place another one has come."""
    key = keys.schedule(name)

    def judge(reply: list[str | None]) -> Verdict[None]:
        doomed, at, paused = reply
        if doomed != task:
            return Answer(None)
        score = "+inf" if at is None or paused is not None else at
        return Change([("HDEL", key, "doomed"), ("ZADD", keys.SCHEDULES, score, name)], None)

    look: Look[list[str | None]] = Look([key], [("HMGET", key, "doomed", "at", "paused")])
    transact(redis, "undoom", look, judge)


def trigger(redis: Redis, name: str, mark: str, by: str, is_forced: bool = False) -> str:
    """Make a task of a schedule now, besides those that are planned, and return its id.

    mark: a random text, the same for every try. is_forced: even if the task before has not ended.
    Raises NoSuchSchedule; WrongSchedule if the task before has not ended and the schedule says that
    none comes then.
    """
    task, key = id_of_trigger(name, mark), keys.schedule(name)
    (seen,) = redis.read(("HMGET", key, "current", "before"))
    others = [keys.task(other) for other in seen if other is not None]

    def judge(
        reply: Sequence[str], clock: Sequence[str], exists: int, *states: list[str | None]
    ) -> Verdict[str]:
        if exists:
            return Answer(task)
        found, now = required(name, reply), time_of(clock)
        definition = Definition.of(found)
        if "doomed" in found:
            doomed = f"task {found['doomed']} is being cancelled"
            raise WrongSchedule(name, f"{doomed}, for another has come in its place; try again")
        if [found.get("current"), found.get("before")] != [*seen]:
            raise WrongSchedule(name, "a task has come of it just now; try again")
        known = iter(states)
        current, before = (_Current(*next(known)) if other else _Current() for other in seen)
        held = None if is_forced else _hindrance(definition, found, current, before)
        if held is not None:
            raise WrongSchedule(name, f"task {held.task} is {held.status}, and {held.why}")
        planned = int(now)
        fields: dict[str, Any] = {}
        if not (is_forced and current.is_open):  # the longer of both is likely to be the older one
            fields = _succession(definition, found, current, task)
        commands = _creation(name, definition, [(task, planned)], now)
        occurrence = Occurrence("triggered", planned, now, task, by=by)
        again: list[Command] = []
        if definition.overlap == "replace" and current.is_open and not is_forced:
            fields["doomed"] = found["current"]
            again = [("ZADD", keys.SCHEDULES, 0, name)]
        noted = recorded(name, definition.queue, fields, [occurrence], {"triggered": 1}, now)
        return Change([*commands, *noted, *again], task)

    own = keys.task(task), keys.key_kept(task)  # the latter if it was deleted
    look: AnyLook = Look(
        [key, *own, *others],
        [
            ("HGETALL", key),
            ("TIME",),
            ("EXISTS", *own),
            *[("HMGET", other, *_Current._fields) for other in others],
        ],
        task,
    )
    return transact(redis, "trigger", look, judge)


def backfill(
    redis: Redis, name: str, times: Sequence[int], by: str, is_together: bool = False
) -> list[str]:
    """Make the tasks of planned times in the past, and return the ids of those that were made: not of
    one that is there, or was deleted and whose key is still in use.

    times: at most 100. is_together: they may run beside each other; otherwise one after the other.
    Raises NoSuchSchedule; WrongSchedule for a time that is still to come.
    """
    tasks = [id_of_occurrence(name, planned) for planned in times]
    ours: list[str] = []  # what an earlier try has made, if its answer was lost

    def judge(reply: Sequence[str], clock: Sequence[str], *exists: int) -> Verdict[list[str]]:
        found, now = required(name, reply), time_of(clock)
        definition = Definition.of(found)
        if max(times) > now:
            raise WrongSchedule(name, f"{max(times)} is still to come")
        if not is_together:
            options = with_lock(definition.options, lock_of(name))
            definition = definition._replace(options=options)
        rows = zip(tasks, times, exists, strict=True)
        new = [(task, planned) for task, planned, is_there in rows if not is_there]
        if not new:
            return Answer([*ours])
        ours[:] = [task for task, _ in new]
        made = together("backfilled", [each for _, each in new], now, "person", by, new[0][0])
        counts = {"backfilled": len(new)}
        noted = recorded(name, definition.queue, {}, [made], counts, now)
        return Change([*_creation(name, definition, new, now), *noted], [*ours])

    hashes = [keys.task(task) for task in tasks]
    kept = [keys.key_kept(task) for task in tasks]
    look: AnyLook = Look(
        [keys.schedule(name), *hashes, *kept],
        [
            ("HGETALL", keys.schedule(name)),
            ("TIME",),
            *[("EXISTS", *both) for both in zip(hashes, kept, strict=True)],
        ],
        tasks[0],
    )
    return transact(redis, "backfill", look, judge)


def _failures(record: Mapping[str, str], current: _Current) -> int:
    """Return how many tasks in a row have failed, the current one included."""
    before = whole_number(record, "failures")
    if current.status == "failed":
        return before + (record["current"] != record.get("forgiven"))
    return 0 if current.status == "complete" else before


def _hindrance(
    definition: Definition, record: Mapping[str, str], current: _Current, before: _Current
) -> _Hindrance | None:
    """Return what lets no task come while the one before has not ended; None: one comes.

    before: the task for whose end `current` was to wait.
    """
    if not current.is_open or definition.overlap == "allow":
        return None
    task, status = record["current"], current.status
    if definition.overlap == "skip":
        return _Hindrance(task, status, 'overlap = "skip" lets none come beside it')
    needs = parse_needs(current.needs or "")
    if needs is None or needs.lock != definition.lock:
        why = "it was made without the lock that keeps it apart from the next"
        return _Hindrance(task, status, why)
    if definition.overlap == "queue" and (status != "started" or before.is_open):
        why = 'overlap = "queue" lets one wait at a time'
        if status == "started":  # before it waits for its next attempt
            task, status = record["before"], before.status
        return _Hindrance(task, status, why)
    return None


def _succession(
    definition: Definition, record: Mapping[str, str], current: _Current, task: str
) -> dict[str, Any]:
    """Return the fields of a schedule whose next task follows the current one."""
    fields: dict[str, Any] = {"current": task, "failures": _failures(record, current)}
    if definition.overlap == "queue" and current.is_open:
        fields["before"] = record["current"]
    return fields


def _creation(
    name: str, definition: Definition, tasks: Sequence[tuple[str, int]], now: float
) -> list[Command]:
    """Return the commands that make tasks. tasks: id and planned time of each."""
    coded = {} if definition.encoding is None else {"parameters_encoding": definition.encoding}
    zone = {} if definition.rule.timezone == "UTC" else {"timezone": definition.rule.timezone}
    new = [
        NewTask(
            task,
            definition.parameters,
            {**coded, **definition.options, "schedule": name, "planned": planned, **zone},
            {},
            None,
        )
        for task, planned in tasks
    ]
    return creation([(definition.queue, each) for each in new], {}, now)


def _pausing(name: str, queue: str, failures: int, now: float) -> list[Command]:
    reason = "1 task has failed" if failures == 1 else f"{failures} tasks in a row have failed"
    return pausing(name, queue, BLUEQUE, reason, "+inf", now)
