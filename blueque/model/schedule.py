"""Schedules: their definitions, their records in Redis, and which planned times are due.

A schedule has a rule that says when, and a template of a task. Each planned time of the rule is an
occurrence. It gives one task, or a reason why not.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from itertools import groupby, pairwise
from operator import itemgetter
from typing import Any, Literal, NamedTuple, get_args

from blueque.errors import InvalidInput
from blueque.model import record
from blueque.model.cron import read_cron
from blueque.model.encoding import (
    LAST_SECOND,
    count_of,
    from_json,
    integer,
    is_sealed,
    known_count,
    number,
    require_whole,
)
from blueque.model.lines import parse_needs, write_needs
from blueque.model.options import Options
from blueque.model.recurrence import (
    LEAST_EVERY,
    MOST_EVERY,
    Rule,
    duration_text,
    jitter_of,
    planned_times,
)
from blueque.model.units import DAY, parse_duration

Overlap = Literal["skip", "queue", "allow"]
CatchUp = Literal["last", "all", "none"]

# The fields of a record. Type and meaning as in docs/protocol/schedules.md, "Schedules"; every value
# is text in Redis.
FIELDS: record.Types = {
    "name": str,
    "queue": str,
    "cron": str,
    "every": integer,
    "timezone": str,
    "start": integer,
    "until": integer,
    "parameters": str,
    "parameters_encoding": str,
    "options": str,
    "overlap": str,
    "catch_up": str,
    "window": integer,
    "jitter": integer,
    "requires": str,
    "version": integer,
    "digest": str,
    "origin": str,
    "planned": integer,
    "at": integer,
    "last": integer,
    "current": str,
    "before": str,
    "paused": number,
    "paused_by": str,
    "paused_reason": str,
    "made": integer,
    "skipped": integer,
    "missed": integer,
    "triggered": integer,
    "failures": integer,
    "created": number,
    "updated": number,
}
DEFINED = tuple(FIELDS)[1:15]  # the fields that a person defines
OF_RULE = ("cron", "every", "timezone", "start", "until")
POLICIES = ("overlap", "catch_up", "window", "jitter")
OPEN = ("blocked", "scheduled", "pending", "reserved", "started")

TIMES_AT_ONCE = 1000  # planned times about which one transaction decides, at most
PROMPT = 60  # seconds after its time in which an occurrence counts as not missed
MAX_JITTER = 86400
DEFAULT_WINDOW = 86400
MOST_WINDOW = 10 * MOST_EVERY
MOST_BACKFILLED = 1000  # tasks that one call of `Schedule.backfill` makes, unless told otherwise
KEPT = 100  # occurrences in the list of a schedule


class Definition(NamedTuple):
    """The definition of a schedule.

    rule: when. queue, parameters, encoding, options: of each task, as they are written.
    overlap: what to do if the previous task has not ended. catch_up: which of several missed
        occurrences to make. window: how many seconds back to catch up. jitter: by how many seconds
        at most a task comes later than planned.
    """

    queue: str
    rule: Rule
    parameters: str
    encoding: str | None = None
    options: Mapping[str, str | int | float] = {}
    overlap: str = "skip"
    catch_up: str = "last"
    window: int = DEFAULT_WINDOW
    jitter: int = 0

    @classmethod
    def of(cls, found: Mapping[str, str]) -> Definition:
        """Return the definition in a record. Raises InvalidInput if this version cannot read it."""
        if "requires" in found:  # a later version has written it
            what = found["requires"]
            raise InvalidInput(f"it requires {what[:60]!r}, which this version does not know")
        try:
            definition = cls(
                found["queue"],
                _rule_of(found),
                found["parameters"],
                found.get("parameters_encoding"),
                json.loads(found["options"]),
                found["overlap"],
                found["catch_up"],
                integer(found["window"]),
                integer(found["jitter"]),
            )
        except InvalidInput:
            raise
        except (KeyError, ValueError, TypeError, RecursionError) as error:
            raise InvalidInput(f"the record cannot be read: {error!r}"[:200]) from error
        definition._require_known()
        return definition

    def _require_known(self) -> None:
        """Raise InvalidInput if this version does not support what a record contains."""
        rule, options = self.rule, self.options
        if self.overlap not in get_args(Overlap) or self.catch_up not in get_args(CatchUp):
            raise InvalidInput("the record names a policy that this version does not know")
        if (rule.cron is None) == (rule.every is None):
            raise InvalidInput("the record has no rule, or two")
        if rule.every is not None and not LEAST_EVERY <= rule.every <= MOST_EVERY:
            raise InvalidInput("every: it must be from 10s to 366d")
        bounded = (rule.start, rule.until, self.window, self.jitter)
        if any(not 0 <= number <= LAST_SECOND for number in bounded if number is not None):
            raise InvalidInput("a time or a duration of the record is out of bounds")
        is_plain = isinstance(options, dict) and all(
            isinstance(value, str | int | float) and not isinstance(value, bool)
            for value in options.values()
        )
        if not is_plain or parse_needs(str(options.get("needs", ""))) is None:
            raise InvalidInput("the record has options that this version does not know")

    def as_stored(self, name: str, found: Mapping[str, str]) -> Definition:
        """Return the definition with the texts of its record, if they differ in their encryption only."""
        if not is_sealed(self.encoding) or not found:
            return self
        from blueque.model.payloads import same_again  # here: few are encrypted

        options = read_options(found)
        mine = self.parameters, self.encoding, self.options.get("context")
        stored = found.get("parameters", ""), found.get("parameters_encoding")
        if not same_again(name, mine, (*stored, options.get("context"))):
            return self
        context = {"context": options["context"]} if "context" in options else {}
        return self._replace(parameters=stored[0], options={**self.options, **context})

    def fields(self) -> dict[str, str]:
        """Return the fields of the record."""
        options = json.dumps(dict(self.options), separators=(",", ":"), sort_keys=True)
        values = {
            "queue": self.queue,
            "cron": self.rule.cron,
            "every": self.rule.every,
            "timezone": self.rule.timezone,
            "start": self.rule.start,
            "until": self.rule.until,
            "parameters": self.parameters,
            "parameters_encoding": self.encoding,
            "options": options,
            "overlap": self.overlap,
            "catch_up": self.catch_up,
            "window": self.window,
            "jitter": self.jitter,
        }
        return {name: str(value) for name, value in values.items() if value is not None}

    @property
    def lock(self) -> str | None:
        """The lock that each task needs; None: it needs none."""
        needs = parse_needs(str(self.options.get("needs", "")))
        return None if needs is None else needs.lock

    def at(self, name: str, planned: int, before: int = 0) -> int:
        """Return the earliest time of the task of a planned time.

        before: when the task of the previous planned time comes.
        """
        return max(planned + jitter_of(name, planned, self.jitter), before)


def require_jitter(jitter: int, rule: Rule, now: float) -> None:
    """Refuse a jitter that could move a planned time past the next one. Raises InvalidInput.

    now: the next 1,000 planned times within 400 days are checked.
    """
    if not jitter:
        return
    times = planned_times(rule, now, now + 400 * DAY, TIMES_AT_ONCE)
    apart = rule.every or min((b - a for a, b in pairwise(times)), default=jitter)
    if jitter > apart:
        raise InvalidInput(
            f"jitter: it is {jitter} s, and two planned times may be only {apart} s apart"
        )


def read_policies(
    *,
    overlap: str = "skip",
    catch_up: str = "last",
    window: float | str = DEFAULT_WINDOW,
    jitter: float | str = 0,
) -> dict[str, Any]:
    """Return the policies of a Definition as fields.

    Raises InvalidInput, whose message begins with the wrong option.
    """
    for what, given, known in (("overlap", overlap, Overlap), ("catch_up", catch_up, CatchUp)):
        if given not in get_args(known):
            words = ", ".join(f'"{word}"' for word in get_args(known))
            raise InvalidInput(f"{what}: it is {given!r}; it has to be one of {words}")
    if catch_up == "all" and overlap != "allow":
        raise InvalidInput(
            'catch_up: "all" needs overlap = "allow", for all that was missed comes at the same time;'
            " with a lock, the tasks still run one after the other"
        )
    return {
        "overlap": overlap,
        "catch_up": catch_up,
        "window": read_seconds("window", window, MOST_WINDOW),
        "jitter": read_seconds("jitter", jitter, MAX_JITTER),
    }


def differing(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """Return what differs between two definitions, as fields of a record; for `options`, their names."""
    names = [name for name in DEFINED if before.get(name) != after.get(name)]
    if "options" in names:
        was, new = (read_options(fields) for fields in (before, after))
        options = [name for name in {**was, **new} if was.get(name) != new.get(name)]
        names[names.index("options") : names.index("options") + 1] = options
    return [name for name in names if name != "parameters_encoding"]


def read_options(fields: Mapping[str, str]) -> dict[str, Any]:
    """Return the options in a record; none if they cannot be read."""
    try:
        found = from_json(fields.get("options", ""))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def digest_of(fields: Mapping[str, str]) -> str:
    """Return the SHA-256 of a definition, as 64 hexadecimal digits."""
    import hashlib  # here: OpenSSL takes 3 ms

    text = json.dumps({name: fields[name] for name in DEFINED if name in fields}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def lock_of(name: str) -> str:
    """Return the lock that keeps the tasks of a schedule apart."""
    return f"schedule:{name}"


def with_lock(options: Mapping[str, Any], lock: str) -> Options:
    """Return task options with one more lock. Raises InvalidInput if several tasks may hold it."""
    needs = parse_needs(str(options.get("needs", "")))
    if needs is None:
        raise InvalidInput("the needs of the task cannot be read")
    if needs.lock is not None and needs.limit != 1:
        raise InvalidInput(
            f"overlap: the lock {needs.lock!r} may be held by {needs.limit} tasks, so it does not keep two of them apart"
        )
    return {**options, "needs": write_needs(dict(needs.resources), needs.lock or lock)}


class Step(NamedTuple):
    """A decision about planned times that are due.

    missed: planned times without a task, oldest first, and why: `window` or `catch_up`.
    chosen: the one that gets a task, and when it was due; None: none.
    last: the last one that is decided. next: the next one, and when it is due; None: there is none.
    """

    missed: list[tuple[int, str]]
    chosen: tuple[int, int] | None
    last: int
    next: tuple[int, int] | None


def decide(
    definition: Definition, name: str, planned: int, at: int, now: float, most: int = TIMES_AT_ONCE
) -> Step | None:
    """Decide what becomes of the planned times that are due. None: none is due.

    planned, at: the next one, by the record. now: the time of Redis. most: how many planned times
        at a time.
    """
    if at > now:
        return None
    due, after = due_times(definition, name, planned, at, now, most)
    oldest = now - max(definition.window, PROMPT)
    too_old = [each for each in due if each[1] < oldest]
    rest = due[len(too_old) :]
    missed = [(moment, "window") for moment, _ in too_old]
    if not rest:
        return Step(missed, None, due[-1][0], after)
    if definition.catch_up == "all":
        later = rest[1] if len(rest) > 1 else after
        return Step(missed, rest[0], rest[0][0], later)
    *others, latest = rest
    missed += [(moment, "catch_up") for moment, _ in others]
    is_late = latest[1] <= now - PROMPT
    # More may be due: then a later one is the last.
    is_last = after is None or after[1] > now
    if not is_last or (definition.catch_up == "none" and is_late):
        return Step([*missed, (latest[0], "catch_up")], None, latest[0], after)
    return Step(missed, latest, latest[0], after)


def due_times(
    definition: Definition, name: str, planned: int, at: int, now: float, most: int
) -> tuple[list[tuple[int, int]], tuple[int, int] | None]:
    """Return the planned times that are due and when each was, then the next one or None.

    The first is given. most: how many due ones are returned.
    """
    due = [(planned, at)]
    for moment in planned_times(definition.rule, planned, int(now), most):
        following = moment, definition.at(name, moment, due[-1][1])
        if following[1] > now or len(due) == most:
            return due, following
        due.append(following)
    coming = definition.rule.next_after(due[-1][0])
    if coming is None:
        return due, None
    return due, (coming, definition.at(name, coming, due[-1][1]))


def is_out_of_order(found: Mapping[str, str]) -> bool:
    """Return whether a record cannot tell what is next.

    `planned` and `at` are not both numbers or both missing, or `planned` is not later than `last`.
    """
    planned, at = found.get("planned"), found.get("at")
    if planned is None and at is None:
        return False
    number = known_count(planned)
    if number is None or known_count(at) is None:
        return True
    return number <= count_of(found.get("last"))


def score_of(found: Mapping[str, str]) -> str:
    """Return the score of a schedule for its record."""
    at = found.get("at", "")
    return "+inf" if "paused" in found or known_count(at) is None else at


class Occurrence(NamedTuple):
    """What became of a planned time.

    what: made, skipped, missed or triggered. planned: in Unix seconds. at: when that was decided.
    task: the new task; if skipped, the one that had not ended, and its status.
    why: overlap, window, catch_up, paused or changed. by: who asked for it.
    until, times: the last, and the number, of several planned times in a row that were missed together.
    """

    what: str
    planned: int
    at: float
    task: str | None = None
    why: str | None = None
    by: str | None = None
    status: str | None = None
    until: int | None = None
    times: int | None = None

    def text(self) -> str:
        """Return it as JSON, as it is written."""
        found = {name: value for name, value in self._asdict().items() if value is not None}
        return json.dumps(found, separators=(",", ":"))

    @classmethod
    def read(cls, text: str) -> Occurrence | None:
        """Return what was written; None: it cannot be read."""
        try:
            found = from_json(text)
            known = {name: found[name] for name in cls._fields if name in found}
            return cls(**known) if isinstance(known["planned"], int) else None
        except (ValueError, TypeError, KeyError):
            return None


def missed_in_a_row(missed: list[tuple[int, str]], now: float) -> list[Occurrence]:
    """Return one occurrence for each reason. missed: planned times and reasons, oldest first."""
    reasons = groupby(missed, key=itemgetter(1))
    return [together([moment for moment, _ in some], now, why) for why, some in reasons]


def together(times: list[int], now: float, why: str) -> Occurrence:
    """Return the occurrence that stands for several missed planned times in a row."""
    one = Occurrence("missed", times[0], now, why=why)
    return one if len(times) == 1 else one._replace(until=times[-1], times=len(times))


def parse(fields: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields of a record with their types. A malformed field is left out."""
    return record.parse(fields, FIELDS)


def _rule_of(found: Mapping[str, str]) -> Rule:
    numbers = {name: integer(found[name]) for name in ("every", "start", "until") if name in found}
    cron = found.get("cron")
    return Rule(
        cron if cron is None else read_cron(cron),
        numbers.get("every"),
        found.get("timezone", "UTC"),
        numbers.get("start"),
        numbers.get("until"),
    )


def read_seconds(what: str, value: object, highest: int) -> int:
    """Return whole seconds, given as a number or as text like "10m". Raises InvalidInput."""
    if isinstance(value, str):
        try:
            value = parse_duration(value)
        except InvalidInput as error:
            raise InvalidInput(f"{what}: {error}") from error
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    seconds = require_whole(value, what, -sys.maxsize, sys.maxsize)
    if not 0 <= seconds <= highest:
        raise InvalidInput(f"{what}: it must be from 0 to {duration_text(highest)}")
    return seconds
