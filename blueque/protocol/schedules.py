"""Recurring tasks: set_schedule, delete_schedule. occurrences.py makes their tasks.

A change of a schedule is a Define, Pause or Resume. Its `of` returns what to write; or, if there is
nothing to change, whether the schedule is as this change would leave it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from blueque.connection.redis import Command, Redis, as_hash, time_of
from blueque.errors import InvalidInput, NoSuchSchedule, WrongSchedule
from blueque.model import keys
from blueque.model.recurrence import planned_times
from blueque.model.schedule import (
    DEFINED,
    OF_RULE,
    TIMES_AT_ONCE,
    Definition,
    Occurrence,
    differing,
    digest_of,
    together,
)
from blueque.protocol.schedule_record import (
    moved_on,
    next_of,
    noted,
    told,
    whole_look,
    whole_number,
)
from blueque.protocol.transaction import Answer, Change, Tries, Verdict, transact

MOST_COUNTED = 10 * TIMES_AT_ONCE  # planned times that a pause or a change counts
_OF_PAUSE = ("paused", "paused_by", "paused_reason")


class _Written(NamedTuple):
    """What a change writes.

    outcome: `new`, `changed`, `paused` or `resumed`. commands: those that write the record and move
        it on. event, why: for the stream of its queue.
    """

    outcome: str
    queue: str
    commands: Sequence[Command]
    event: str
    why: str | None = None


class Define(NamedTuple):
    """Create a schedule, or redefine it.

    origin: `file` or `hand`; only the same may change it. only_new: refuse to change one.
    """

    definition: Definition
    origin: str
    only_new: bool = False

    def of(
        self, name: str, found: Mapping[str, str], now: float, by: str, may_be_done: bool
    ) -> _Written | bool:
        defined, is_new = self.definition.as_stored(name, found).fields(), not found
        digest = digest_of(defined)
        if found:
            if self.only_new and not (may_be_done and found.get("digest") == digest):
                raise WrongSchedule(name, "it is there already")
            require_origin(name, found, self.origin)
        has_its_rule = all(found.get(field) == defined.get(field) for field in OF_RULE)
        begins = is_new or not has_its_rule
        last = int(now) if begins else whole_number(found, "last")
        missed = _missed(found, last, now, "changed") if begins else []
        following = next_of(name, self.definition, last)
        planned = None if following is None else str(following[0])
        if (found.get("digest"), found.get("planned")) == (digest, planned):
            return True
        if is_new and following is None:
            raise InvalidInput("until: the rule has no time before it")
        fields: dict[str, Any] = {"name": name} | defined
        fields |= {"origin": self.origin, "digest": digest, "last": last}
        fields |= {"version": whole_number(found, "version") + 1}
        fields |= {"created": now} if is_new else {}
        score = "+inf" if following is None or "paused" in found else following[1]
        gone = [field for field in DEFINED if field in found and field not in defined]
        commands = [
            *([("HDEL", keys.schedule(name), *gone)] if gone else []),
            *moved_on(name, fields, following, score, missed, now),
            ("ZINCRBY", keys.QUEUES, 0, self.definition.queue),
        ]
        if is_new:
            return _Written("new", self.definition.queue, commands, "added")
        why = ", ".join(differing(found, defined)) or None
        return _Written("changed", self.definition.queue, commands, "changed", why)


class Pause(NamedTuple):
    """Make no task of a schedule at its planned times until it is resumed."""

    reason: str | None = None

    def of(
        self, name: str, found: Mapping[str, str], now: float, by: str, may_be_done: bool
    ) -> _Written | bool:
        if not found:
            raise NoSuchSchedule(name)
        if "paused" in found:
            return (found.get("paused_by"), found.get("paused_reason")) == (by, self.reason)
        fields = {"paused": now, "paused_by": by}
        fields |= {} if self.reason is None else {"paused_reason": self.reason}
        commands: list[Command] = [
            *noted(name, fields, [], now),
            ("ZADD", keys.SCHEDULES, "+inf", name),
        ]
        return _Written("paused", found.get("queue", ""), commands, "paused", self.reason)


class Resume(NamedTuple):
    """End the pause of a schedule.

    catches_up: make tasks for times that were due during the pause, as after an outage; otherwise
        they are missed.
    """

    catches_up: bool = False

    def of(
        self, name: str, found: Mapping[str, str], now: float, by: str, may_be_done: bool
    ) -> _Written | bool:
        if not found:
            raise NoSuchSchedule(name)
        if "paused" not in found:
            return True
        definition, last = Definition.of(found), whole_number(found, "last")
        missed: list[Occurrence] = []
        if not self.catches_up:
            last = _due_by(name, definition, last, now)
            missed = _missed(found, last, now, "paused")
        following = next_of(name, definition, last)
        score: float | str = "+inf" if following is None else following[1]
        commands = [
            ("HDEL", keys.schedule(name), *_OF_PAUSE),
            *moved_on(name, {"last": last}, following, score, missed, now),
        ]
        return _Written("resumed", definition.queue, commands, "resumed")


def set_schedule(redis: Redis, name: str, change: Define | Pause | Resume, by: str) -> str:
    """Create, change, pause or resume a schedule.

    Return `new`, `changed`, `paused` or `resumed`; or `same`, if there was nothing to change.
    Raises WrongSchedule; NoSuchSchedule to pause or resume it; InvalidInput for a rule that has no
        time left.
    """
    tries, outcome = Tries(whole_look(name)), "same"

    def judge(reply: Sequence[str], clock: Sequence[str]) -> Verdict[str]:
        nonlocal outcome
        now = time_of(clock)
        written = change.of(name, as_hash(reply), now, by, tries.may_be_done)
        if not isinstance(written, _Written):  # perhaps by an earlier try of this call
            return Answer(outcome if written and tries.may_be_done else "same")
        outcome = written.outcome
        event = told(name, written.queue, written.event, by, now, written.why)
        return Change([*written.commands, event], outcome)

    return transact(redis, "set_schedule", tries.look, judge, again=tries.again)


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
    """Return a time up to which all planned times are due, and after which none is."""
    last = max(last, int(now) - definition.jitter)
    while (following := next_of(name, definition, last)) is not None and following[1] <= now:
        last = following[0]
    return last


def _missed(record: Mapping[str, str], until: int, now: float, why: str) -> list[Occurrence]:
    """Return what to write about undecided planned times up to `until`, which get no tasks.

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
