"""Recurring tasks: set_schedule, pause_schedule, resume_schedule, skip_occurrences, delete_schedule.
What makes their tasks is in occurrences.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from blueque.connection.redis import Command, Look, Redis, as_hash
from blueque.errors import InvalidInput, WrongSchedule
from blueque.model import keys
from blueque.model.recurrence import planned_times
from blueque.model.schedule import (
    AT_ONCE,
    BLUEQUE,
    DEFINED,
    KEPT,
    OF_RULE,
    Definition,
    Occurrence,
    differing,
    digest_of,
    due_times,
    together,
)
from blueque.protocol.schedule_record import (
    Tries,
    moved_on,
    next_of,
    noticed,
    pausing,
    required,
    time_of,
    whole_look,
    whole_number,
)
from blueque.protocol.transaction import Answer, Change, Verdict, transact

MOST_COUNTED = 10 * AT_ONCE  # planned times that a pause or a change counts
_OF_PAUSE = ("paused", "paused_by", "paused_reason")


def set_schedule(
    redis: Redis, name: str, definition: Definition, origin: str, by: str, *, only_new: bool = False
) -> str:
    """Make a schedule, or change one. Return `new`, `changed` or `same`.

    origin: `file` or `hand`; only the same may change it. only_new: refuse to change one.
    Raises WrongSchedule; InvalidInput for a rule that has no time left.
    """
    key, defined = keys.schedule(name), definition.fields()
    digest, tries, outcome = digest_of(defined), Tries(whole_look(name)), "same"

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
        last = whole_number(found, "last") if found and is_same_rule else int(now)
        if found and not is_same_rule:
            occurrences, counts = _lost_by_change(found, now)
        following = next_of(name, definition, last)
        if following is not None and (found.get("planned"), found.get("jitter")) == (
            str(following[0]),
            defined["jitter"],
        ):
            following = following[0], whole_number(found, "at")
        planned = None if following is None else str(following[0])
        if (found.get("digest"), found.get("planned")) == (digest, planned):
            return Answer(outcome if tries.may_be_done else "same")
        if not found and following is None:
            raise InvalidInput("until: the rule has no time before it")
        gone = [field for field in DEFINED if field in found and field not in defined]
        fields: dict[str, Any] = {"name": name} | defined
        fields |= {"origin": origin, "digest": digest, "last": last}
        fields |= {"version": whole_number(found, "version") + 1} if found else _first(now)
        is_held = "paused" in found
        score = "+inf" if following is None or is_held else following[1]
        if "doomed" in found:
            score = 0
        outcome = "changed" if found else "new"
        why = ", ".join(differing(found, defined)) or None if found else None
        what = "changed" if found else "added"
        occurrences = [*occurrences, Occurrence(what, int(now), now, why=why, by=by)]
        return Change(
            [
                *([] if found else [("DEL", keys.occurrences(name))]),
                *([("HDEL", key, *gone)] if gone else []),
                *moved_on(
                    name, definition.queue, fields, following, score, occurrences, counts, now
                ),
                ("ZINCRBY", keys.QUEUES, 0, definition.queue),
            ],
            outcome,
        )

    return transact(redis, "set_schedule", tries.look, judge, again=tries.again)


def pause_schedule(redis: Redis, name: str, by: str, reason: str | None) -> bool:
    """Have nothing come of a schedule until it is resumed. False: it was paused already.

    Raises NoSuchSchedule.
    """
    tries = Tries(whole_look(name))

    def judge(reply: Sequence[str], clock: Sequence[str]) -> Verdict[bool]:
        found, now = required(name, reply), time_of(clock)
        if "paused" in found:
            known = found.get("paused_by"), found.get("paused_reason")
            return Answer(tries.may_be_done and known == (by, reason))
        score = 0 if "doomed" in found else "+inf"
        return Change(pausing(name, found.get("queue", ""), by, reason, score, now), True)

    return transact(redis, "pause_schedule", tries.look, judge, again=tries.again)


def resume_schedule(redis: Redis, name: str, by: str, catches_up: bool = False) -> bool:
    """End the pause of a schedule. False: it was not paused.

    catches_up: what was planned during the pause comes as after an outage; otherwise it is missed.
    Raises NoSuchSchedule.
    """
    key, tries = keys.schedule(name), Tries(whole_look(name))

    def judge(reply: Sequence[str], clock: Sequence[str]) -> Verdict[bool]:
        found, now = required(name, reply), time_of(clock)
        if "paused" not in found:
            return Answer(tries.may_be_done)
        definition, last = Definition.of(found), whole_number(found, "last")
        following = next_of(name, definition, last)
        if following is not None and found.get("planned") == str(following[0]):
            following = following[0], whole_number(found, "at")
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
        occurrences = [*occurrences, Occurrence("resumed", int(now), now, by=by)]
        score: float | str = "+inf" if following is None else following[1]
        fields: dict[str, Any] = {"last": last, "failures": 0}
        if found.get("paused_by") == BLUEQUE and "current" in found:
            fields["forgiven"] = found["current"]  # or the next one would be paused at once
        if "doomed" in found:
            score = 0
        return Change(
            [
                ("HDEL", key, *_OF_PAUSE),
                *moved_on(
                    name, definition.queue, fields, following, score, occurrences, counts, now
                ),
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
        found, now = required(name, reply), time_of(clock)
        definition, last = Definition.of(found), whole_number(found, "last")
        nexts = islice(definition.rule.times(last), len(times))
        if (last, *nexts) != (before, *times):
            # Not by `last`: another transaction may have decided about the same times.
            known = [Occurrence.read(text) for text in listed] if is_sent else []
            if any(one and one[:2] == ("skipped", times[0]) and one.by == by for one in known):
                return Answer(None)
            raise WrongSchedule(name, "it has moved on meanwhile; look at it again")
        following = next_of(name, definition, times[-1])
        skipped = [together("skipped", list(times), now, "person", by)]
        score: float | str = "+inf" if following is None or "paused" in found else following[1]
        if "doomed" in found:
            score = 0
        counts = {"skipped": len(times)}
        fields = {"last": times[-1]}
        is_sent = True
        queue = definition.queue
        return Change(moved_on(name, queue, fields, following, score, skipped, counts, now), None)

    key = keys.schedule(name)
    recent = ("LRANGE", keys.occurrences(name), 0, KEPT - 1)
    reads: list[Command] = [("HGETALL", key), ("TIME",), recent]
    look: Look[Sequence[str], Sequence[str], Sequence[str]] = Look([key], reads)
    transact(redis, "skip_occurrences", look, judge)


def delete_schedule(redis: Redis, name: str, by: str) -> bool:
    """Remove a schedule. Its tasks stay. False: there is none."""
    key, tries = keys.schedule(name), Tries(whole_look(name))

    def judge(reply: Sequence[str], clock: Sequence[str]) -> Verdict[bool]:
        if not reply:
            return Answer(tries.may_be_done)
        now, queue = time_of(clock), as_hash(reply).get("queue", "")
        removed = Occurrence("removed", int(now), now, by=by)
        return Change(
            [
                ("DEL", key, keys.occurrences(name)),
                ("ZREM", keys.SCHEDULES, name),
                noticed(name, queue, removed),
            ],
            True,
        )

    return transact(redis, "delete_schedule", tries.look, judge, again=tries.again)


def require_origin(name: str, record: Mapping[str, str], origin: str) -> None:
    """Refuse to change a schedule that comes from elsewhere. Raises WrongSchedule."""
    if record.get("origin") != origin:
        raise WrongSchedule(name, _of_other(record.get("origin")))


def _first(now: float) -> dict[str, Any]:
    return {"version": 1, "created": now}


def _of_other(origin: str | None) -> str:
    if origin == "file":
        return "it comes from a file; change it there, and apply the file"
    return "it was made by hand; remove it, or take it out of the file"


def _after_all_due(
    name: str, definition: Definition, last: int, now: float
) -> tuple[int, tuple[int, int] | None]:
    """Return a time up to which all planned times are due, and what comes after them, and when."""
    last = max(last, int(now) - definition.jitter)
    while (following := next_of(name, definition, last)) is not None and following[1] <= now:
        last = following[0]
    return last, following


def _lost_by_change(
    record: Mapping[str, str], now: float
) -> tuple[list[Occurrence], dict[str, int]]:
    """Return what to write of the planned times that are past, and undecided when the rule changes."""
    if "planned" not in record or whole_number(record, "planned") > now:
        return [], {}
    try:
        rule = Definition.of(record).rule
    except InvalidInput:  # only its first time is known
        times = [whole_number(record, "planned")]
    else:
        first = whole_number(record, "planned")
        times = [first, *planned_times(rule, first, int(now), MOST_COUNTED - 1)]
    return [together("missed", times, now, "changed")], {"missed": len(times)}
