"""Recurring tasks: set_schedule, pause_schedule, resume_schedule, delete_schedule. What makes their
tasks is in occurrences.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from blueque.connection.redis import Redis, as_hash
from blueque.errors import InvalidInput, WrongSchedule
from blueque.model import keys
from blueque.model.recurrence import planned_times
from blueque.model.schedule import (
    AT_ONCE,
    DEFINED,
    OF_RULE,
    RETIRED,
    Definition,
    Occurrence,
    differing,
    digest_of,
    together,
)
from blueque.protocol.schedule_record import (
    Tries,
    moved_on,
    next_of,
    noted,
    required,
    time_of,
    told,
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
        is_new = not found
        has_its_rule = all(found.get(field) == defined.get(field) for field in OF_RULE)
        begins = is_new or not has_its_rule
        last = int(now) if begins else whole_number(found, "last")
        missed = _missed(found, last, now, "changed") if begins else []
        following = next_of(name, definition, last)
        planned = None if following is None else str(following[0])
        if (found.get("digest"), found.get("planned")) == (digest, planned):
            return Answer(outcome if tries.may_be_done else "same")
        if is_new and following is None:
            raise InvalidInput("until: the rule has no time before it")
        gone = [field for field in (*DEFINED, *RETIRED) if field in found and field not in defined]
        fields: dict[str, Any] = {"name": name} | defined
        fields |= {"origin": origin, "digest": digest, "last": last}
        fields |= {"version": whole_number(found, "version") + 1}
        fields |= {"created": now} if is_new else {}
        score = "+inf" if following is None or "paused" in found else following[1]
        outcome = "new" if is_new else "changed"
        what = "added" if is_new else "changed"
        why = None if is_new else ", ".join(differing(found, defined)) or None
        return Change(
            [
                *([("HDEL", key, *gone)] if gone else []),
                *moved_on(name, fields, following, score, missed, now),
                ("ZINCRBY", keys.QUEUES, 0, definition.queue),
                told(name, definition.queue, what, by, now, why),
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
        fields = {"paused": now, "paused_by": by}
        fields |= {} if reason is None else {"paused_reason": reason}
        return Change(
            [
                *noted(name, fields, [], now),
                ("ZADD", keys.SCHEDULES, "+inf", name),
                told(name, found.get("queue", ""), "paused", by, now, reason),
            ],
            True,
        )

    return transact(redis, "pause_schedule", tries.look, judge, again=tries.again)


def resume_schedule(redis: Redis, name: str, by: str, catches_up: bool = False) -> bool:
    """End the pause of a schedule. False: it was not paused.

    catches_up: what was due during the pause comes as after an outage; otherwise it is missed.
    Raises NoSuchSchedule.
    """
    key, tries = keys.schedule(name), Tries(whole_look(name))

    def judge(reply: Sequence[str], clock: Sequence[str]) -> Verdict[bool]:
        found, now = required(name, reply), time_of(clock)
        if "paused" not in found:
            return Answer(tries.may_be_done)
        definition, last = Definition.of(found), whole_number(found, "last")
        missed: list[Occurrence] = []
        if not catches_up:
            last = _due_by(name, definition, last, now)
            missed = _missed(found, last, now, "paused")
        following = next_of(name, definition, last)
        score: float | str = "+inf" if following is None else following[1]
        return Change(
            [
                ("HDEL", key, *_OF_PAUSE),
                *moved_on(name, {"last": last}, following, score, missed, now),
                told(name, definition.queue, "resumed", by, now),
            ],
            True,
        )

    return transact(redis, "resume_schedule", tries.look, judge, again=tries.again)


def delete_schedule(redis: Redis, name: str, by: str) -> bool:
    """Remove a schedule. Its tasks stay. False: there is none."""
    key, tries = keys.schedule(name), Tries(whole_look(name))

    def judge(reply: Sequence[str], clock: Sequence[str]) -> Verdict[bool]:
        if not reply:
            return Answer(tries.may_be_done)
        now, queue = time_of(clock), as_hash(reply).get("queue", "")
        return Change(
            [
                ("DEL", key, keys.occurrences(name)),
                ("ZREM", keys.SCHEDULES, name),
                told(name, queue, "removed", by, now),
            ],
            True,
        )

    return transact(redis, "delete_schedule", tries.look, judge, again=tries.again)


def require_origin(name: str, record: Mapping[str, str], origin: str) -> None:
    """Refuse to change a schedule that comes from elsewhere. Raises WrongSchedule."""
    if record.get("origin") != origin:
        raise WrongSchedule(name, _of_other(record.get("origin")))


def _of_other(origin: str | None) -> str:
    if origin == "file":
        return "it comes from a file; change it there, and apply the file"
    return "it was made by hand; remove it, or take it out of the file"


def _due_by(name: str, definition: Definition, last: int, now: float) -> int:
    """Return a time up to which all planned times are due, and later than which none is."""
    last = max(last, int(now) - definition.jitter)
    while (following := next_of(name, definition, last)) is not None and following[1] <= now:
        last = following[0]
    return last


def _missed(record: Mapping[str, str], until: int, now: float, why: str) -> list[Occurrence]:
    """Return what to write of the undecided planned times up to `until`. No task comes of them any more.
    Of many, 10,000 are counted.
    """
    first = whole_number(record, "planned")
    if "planned" not in record or first > until:
        return []
    try:
        rule = Definition.of(record).rule
    except InvalidInput:  # only its first time is known
        return [together([first], now, why)]
    return [together([first, *planned_times(rule, first, until, MOST_COUNTED - 1)], now, why)]
