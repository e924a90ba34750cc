"""Recurring tasks: set_schedule, fire, undoom, pause_schedule, resume_schedule, skip_occurrences,
trigger, backfill, delete_schedule.

No program leads, and no task is made ahead. The EXEC that makes a task also moves the record on to what
is next. The id of the task is made of the name and the planned time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any, Generic, NamedTuple

from blueque.connection.redis import AnyLook, Command, Look, Redis, Replies, as_hash
from blueque.errors import InvalidInput, NoSuchSchedule, WrongSchedule
from blueque.model import keys
from blueque.model.encoding import count_of
from blueque.model.ids import id_of_occurrence, id_of_trigger
from blueque.model.lines import parse_needs
from blueque.model.recurrence import planned_times
from blueque.model.schedule import (
    AT_ONCE,
    BLUEQUE,
    DEFINED,
    KEPT,
    OF_RULE,
    OPEN,
    Definition,
    Occurrence,
    Step,
    decide,
    digest_of,
    due_times,
    is_out_of_order,
    lock_of,
    missed_in_a_row,
    together,
    with_lock,
)
from blueque.protocol.dependencies import NewTask, creation
from blueque.protocol.fields import flat
from blueque.protocol.transaction import Answer, Change, Verdict, transact

BACKFILLED_AT_ONCE = 100  # tasks that one `backfill` makes
MOST_COUNTED = 10 * AT_ONCE  # planned times that a pause or a change counts
_OF_PAUSE = ("paused", "paused_by", "paused_reason")


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


class _Tries(Generic[*Replies]):
    """The look of a transaction, and whether an earlier try of the same call may have been executed."""

    def __init__(self, look: Look[*Replies]) -> None:
        self.look, self.may_be_done = look, False

    def again(self, is_unknown: bool) -> Look[*Replies]:
        self.may_be_done = is_unknown
        return self.look


def plan_of(name: str, record: Mapping[str, str], now: float) -> Plan | None:
    """Return what comes of a schedule next. None: nothing is due, or it is paused.

    now: the clock of Redis. Raises InvalidInput for a record that this version cannot read.
    """
    if "at" not in record or "paused" in record or "doomed" in record:
        return None
    definition = Definition.of(record)
    planned, at = _whole(record, "planned"), _whole(record, "at")
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

    def judge(
        reply: Sequence[str], clock: Sequence[str], exists: int = 0, *others: Any
    ) -> Verdict[Fired | None]:
        now = time_of(clock)
        if as_hash(reply) != plan.record or _whole(plan.record, "at") > now:
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
                return Change(_pausing(name, failures, now), Fired("paused", planned))
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
            [*commands, *_moved(name, fields, step.next, score, occurrences, counts, now)], fired
        )

    return transact(redis, "fire", look_at(name, plan), judge, ahead=ahead)


def _longer(
    newest: Sequence[str], skip: Occurrence, record: Mapping[str, str]
) -> Occurrence | None:
    """Return the newest entry of the list with one more that was skipped. None: it is another thing."""
    before = Occurrence.read(newest[0]) if newest else None
    return None if before is None else before.with_next(skip, _whole(record, "last"))


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


def set_schedule(
    redis: Redis, name: str, definition: Definition, origin: str, *, only_new: bool = False
) -> str:
    """Make a schedule, or change one. Return `new`, `changed` or `same`.

    origin: `file` or `hand`; only the same may change it. only_new: refuse to change one.
    Raises WrongSchedule; InvalidInput for a rule that has no time left.
    """
    key, defined = keys.schedule(name), definition.fields()
    digest, tries, outcome = digest_of(defined), _Tries(_whole_look(name)), "same"

    def judge(reply: Sequence[str], clock: Sequence[str]) -> Verdict[str]:
        nonlocal outcome
        found, now = as_hash(reply), time_of(clock)
        if found:
            is_ours = tries.may_be_done and found.get("digest") == digest
            if only_new and not is_ours:
                raise WrongSchedule(name, "it is there already")
            require_origin(name, found, origin)
        occurrences: list[Occurrence] = []
        counts: dict[str, int] = {}
        is_same_rule = all(found.get(field) == defined.get(field) for field in OF_RULE)
        last = _whole(found, "last") if found and is_same_rule else int(now)
        if found and not is_same_rule:
            occurrences, counts = _lost_by_change(found, now)
        following = _following(name, definition, last)
        if following is not None and (found.get("planned"), found.get("jitter")) == (
            str(following[0]),
            defined["jitter"],
        ):
            following = following[0], _whole(found, "at")
        planned = None if following is None else str(following[0])
        if (found.get("digest"), found.get("planned")) == (digest, planned):
            return Answer(outcome if tries.may_be_done else "same")
        if not found and following is None:
            raise InvalidInput("until: the rule has no time before it")
        gone = [field for field in DEFINED if field in found and field not in defined]
        fields: dict[str, Any] = {"name": name} | defined
        fields |= {"origin": origin, "digest": digest, "last": last}
        fields |= {"version": _whole(found, "version") + 1} if found else _first(now)
        is_held = "paused" in found
        score = "+inf" if following is None or is_held else following[1]
        if "doomed" in found:
            score = 0
        outcome = "changed" if found else "new"
        return Change(
            [
                *([] if found else [("DEL", keys.occurrences(name))]),
                *([("HDEL", key, *gone)] if gone else []),
                *_moved(name, fields, following, score, occurrences, counts, now),
                ("ZINCRBY", keys.QUEUES, 0, definition.queue),
            ],
            outcome,
        )

    return transact(redis, "set_schedule", tries.look, judge, again=tries.again)


def pause_schedule(redis: Redis, name: str, by: str, reason: str | None) -> bool:
    """Have nothing come of a schedule until it is resumed. False: it was paused already.

    Raises NoSuchSchedule.
    """
    key, tries = keys.schedule(name), _Tries(_whole_look(name))

    def judge(reply: Sequence[str], clock: Sequence[str]) -> Verdict[bool]:
        found, now = _required(name, reply), time_of(clock)
        if "paused" in found:
            known = found.get("paused_by"), found.get("paused_reason")
            return Answer(tries.may_be_done and known == (by, reason))
        why: dict[str, str] = {} if reason is None else {"paused_reason": reason}
        fields: dict[str, Any] = {"paused": now, "paused_by": by, **why, "updated": now}
        score = 0 if "doomed" in found else "+inf"
        return Change([("HSET", key, *flat(fields)), ("ZADD", keys.SCHEDULES, score, name)], True)

    return transact(redis, "pause_schedule", tries.look, judge, again=tries.again)


def resume_schedule(redis: Redis, name: str, catches_up: bool = False) -> bool:
    """End the pause of a schedule. False: it was not paused.

    catches_up: what was planned during the pause comes as after an outage; otherwise it is missed.
    Raises NoSuchSchedule.
    """
    key, tries = keys.schedule(name), _Tries(_whole_look(name))

    def judge(reply: Sequence[str], clock: Sequence[str]) -> Verdict[bool]:
        found, now = _required(name, reply), time_of(clock)
        if "paused" not in found:
            return Answer(tries.may_be_done)
        definition, last = Definition.of(found), _whole(found, "last")
        following = _following(name, definition, last)
        if following is not None and found.get("planned") == str(following[0]):
            following = following[0], _whole(found, "at")
        occurrences: list[Occurrence] = []
        counts: dict[str, int] = {}
        if not catches_up and following is not None and following[1] <= now:
            due, following = due_times(definition, name, *following, now, MOST_COUNTED)
            missed = [planned for planned, _ in due]
            last = missed[-1]
            if following is not None and following[1] <= now:  # too many to be counted
                last, following = _after_all_due(name, definition, last, now)
            occurrences = [together("missed", missed, now, "paused")]
            counts = {"missed": len(missed)}
        score: float | str = "+inf" if following is None else following[1]
        fields: dict[str, Any] = {"last": last, "failures": 0}
        if found.get("paused_by") == BLUEQUE and "current" in found:
            fields["forgiven"] = found["current"]  # or the next one would be paused at once
        if "doomed" in found:
            score = 0
        return Change(
            [
                ("HDEL", key, *_OF_PAUSE),
                *_moved(name, fields, following, score, occurrences, counts, now),
            ],
            True,
        )

    return transact(redis, "resume_schedule", tries.look, judge, again=tries.again)


def skip_occurrences(redis: Redis, name: str, before: int, times: Sequence[int], by: str) -> None:
    """Have nothing come of the next planned times of a schedule.

    before: `last` of the record by which these are the next. times: at least one, in order.
    Raises NoSuchSchedule; WrongSchedule if others are the next by now.
    """

    is_sent = False

    def judge(reply: Sequence[str], clock: Sequence[str], listed: Sequence[str]) -> Verdict[None]:
        nonlocal is_sent
        found, now = _required(name, reply), time_of(clock)
        definition, last = Definition.of(found), _whole(found, "last")
        nexts = islice(definition.rule.times(last), len(times))
        if (last, *nexts) != (before, *times):
            # Not by `last`: another transaction may have decided about the same times.
            known = [Occurrence.read(text) for text in listed] if is_sent else []
            if any(one and one[:2] == ("skipped", times[0]) and one.by == by for one in known):
                return Answer(None)
            raise WrongSchedule(name, "it has moved on meanwhile; look at it again")
        following = _following(name, definition, times[-1])
        skipped = [together("skipped", list(times), now, "person", by)]
        score: float | str = "+inf" if following is None or "paused" in found else following[1]
        if "doomed" in found:
            score = 0
        counts = {"skipped": len(times)}
        fields = {"last": times[-1]}
        is_sent = True
        return Change(_moved(name, fields, following, score, skipped, counts, now), None)

    key = keys.schedule(name)
    recent = ("LRANGE", keys.occurrences(name), 0, KEPT - 1)
    reads: list[Command] = [("HGETALL", key), ("TIME",), recent]
    look: Look[Sequence[str], Sequence[str], Sequence[str]] = Look([key], reads)
    transact(redis, "skip_occurrences", look, judge)


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
        found, now = _required(name, reply), time_of(clock)
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
        noted = _noted(name, fields, [occurrence], {"triggered": 1}, now)
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
        found, now = _required(name, reply), time_of(clock)
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
        return Change(
            [*_creation(name, definition, new, now), *_noted(name, {}, [made], counts, now)],
            [*ours],
        )

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


def delete_schedule(redis: Redis, name: str) -> bool:
    """Remove a schedule. Its tasks stay. False: there is none."""
    key = keys.schedule(name)
    look: Look[int] = Look([key], [("EXISTS", key)])
    tries = _Tries(look)

    def judge(exists: int) -> Verdict[bool]:
        if not exists:
            return Answer(tries.may_be_done)
        return Change([("DEL", key, keys.occurrences(name)), ("ZREM", keys.SCHEDULES, name)], True)

    return transact(redis, "delete_schedule", tries.look, judge, again=tries.again)


def require_origin(name: str, record: Mapping[str, str], origin: str) -> None:
    """Refuse to change a schedule that comes from elsewhere. Raises WrongSchedule."""
    if record.get("origin") != origin:
        raise WrongSchedule(name, _of_other(record.get("origin")))


def time_of(reply: Sequence[str]) -> float:
    """Return Unix seconds of the answer to TIME."""
    seconds, microseconds = reply
    return int(seconds) + int(microseconds) / 1e6


def _whole_look(name: str) -> Look[Sequence[str], Sequence[str]]:
    key = keys.schedule(name)
    return Look([key], [("HGETALL", key), ("TIME",)])


def _required(name: str, reply: Sequence[str]) -> dict[str, str]:
    if not reply:
        raise NoSuchSchedule(name)
    return as_hash(reply)


def _whole(record: Mapping[str, str], field: str) -> int:
    return count_of(record.get(field))


def _first(now: float) -> dict[str, Any]:
    return {"version": 1, "created": now}


def _of_other(origin: str | None) -> str:
    if origin == "file":
        return "it comes from a file; change it there, and apply the file"
    return "it was made by hand; remove it, or take it out of the file"


def _following(name: str, definition: Definition, last: int) -> tuple[int, int] | None:
    """Return what comes after a planned time, and when."""
    planned = definition.rule.next_after(last)
    return None if planned is None else (planned, definition.at(name, planned))


def _after_all_due(
    name: str, definition: Definition, last: int, now: float
) -> tuple[int, tuple[int, int] | None]:
    """Return a time up to which all planned times are due, and what comes after them, and when."""
    last = max(last, int(now) - definition.jitter)
    while (following := _following(name, definition, last)) is not None and following[1] <= now:
        last = following[0]
    return last, following


def _failures(record: Mapping[str, str], current: _Current) -> int:
    """Return how many tasks in a row have failed, the current one included."""
    before = _whole(record, "failures")
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


def _moved(
    name: str,
    fields: Mapping[str, Any],
    following: tuple[int, int] | None,
    score: float | str,
    occurrences: Sequence[Occurrence],
    counts: Mapping[str, int],
    now: float,
) -> list[Command]:
    """Return the commands that move a schedule on. following: what is next, and when."""
    nexts = {} if following is None else {"planned": following[0], "at": following[1]}
    over: list[Command] = [("HDEL", keys.schedule(name), "planned", "at")]
    return [
        *_noted(name, {**fields, **nexts}, occurrences, counts, now),
        *(over if following is None else []),
        ("ZADD", keys.SCHEDULES, score, name),
    ]


def _noted(
    name: str,
    fields: Mapping[str, Any],
    occurrences: Sequence[Occurrence],
    counts: Mapping[str, int],
    now: float,
) -> list[Command]:
    """Return the commands that write fields of a record, and what came of planned times."""
    key, listed = keys.schedule(name), keys.occurrences(name)
    commands: list[Command] = [("HSET", key, *flat(fields), "updated", now)]
    commands += [("HINCRBY", key, what, times) for what, times in counts.items() if times]
    if occurrences:
        texts = [occurrence.text() for occurrence in occurrences[-KEPT:]]
        commands += [("LPUSH", listed, *texts), ("LTRIM", listed, 0, KEPT - 1)]
    return commands


def _pausing(name: str, failures: int, now: float) -> list[Command]:
    reason = "1 task has failed" if failures == 1 else f"{failures} tasks in a row have failed"
    fields: dict[str, Any] = {
        "paused": now,
        "paused_by": BLUEQUE,
        "paused_reason": reason,
        "updated": now,
    }
    return [("HSET", keys.schedule(name), *flat(fields)), ("ZADD", keys.SCHEDULES, "+inf", name)]


def _lost_by_change(
    record: Mapping[str, str], now: float
) -> tuple[list[Occurrence], dict[str, int]]:
    """Return what to write of the planned times that are past, and undecided when the rule changes."""
    if "planned" not in record or _whole(record, "planned") > now:
        return [], {}
    try:
        rule = Definition.of(record).rule
    except InvalidInput:  # only its first time is known
        times = [_whole(record, "planned")]
    else:
        first = _whole(record, "planned")
        times = [first, *planned_times(rule, first, int(now), MOST_COUNTED - 1)]
    return [together("missed", times, now, "changed")], {"missed": len(times)}
