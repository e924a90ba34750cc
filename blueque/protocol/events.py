"""Record events and statistics in the transaction that causes them.

The commands are in the MULTI of the transition. So each event is recorded once, however often a
call is repeated.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import NamedTuple

from blueque.connection.redis import Command, Redis
from blueque.model import histogram, keys
from blueque.model.encoding import count_of, day_of, seconds_of
from blueque.model.states import LOST
from blueque.protocol.fields import TaskFields

FIRST, RECENT = 20, 80  # events of a task that are kept: the first and the last
IN_STREAM = 10_000  # events of a queue that are kept, about
ALWAYS = 1e11  # no time in seconds is beyond it
WORDS = 500  # characters of an error that an event repeats
# The events by which a task ends, or by which one that has ended is to run again.
SETTLED = frozenset(
    (
        "complete",
        "failed",
        "cancelled",
        "retried",
        "postponed",
        "requeued",
        "restored",
        "reasserted",
    )
)
_to_json = json.JSONEncoder(separators=(",", ":")).encode
_TYPE = re.compile(r"[A-Za-z_][\w.-]{0,99}")

EventFacts = Mapping[str, str | int | float | None]  # by name; None: not known, and left out


class Event(NamedTuple):
    """An event of a task or of a queue.

    what: as in docs/protocol.md, "Events". by: the node, or the person.
    facts: further facts; `took`: how many seconds the wait or the run took that ended with it.
    """

    what: str
    by: str
    at: float
    facts: EventFacts | None = None


def record_event(
    redis: Redis, queue: str, task: str, past: TaskFields, event: Event
) -> list[Command]:
    """Return the commands that record and count an event."""
    return [
        ("HSET", keys.task(task), "events", after(past)["events"]),
        *note_event(redis, queue, task, past, event),
    ]


def note_event(
    redis: Redis, queue: str, task: str, past: TaskFields, event: Event
) -> list[Command]:
    """Return the same without the number of events: the transition writes `after` itself."""
    text = _text(event, past)
    return [
        *_record_in_history(task, past, text),
        _put_in_stream(queue, task, text),
        *count(redis, queue, event.what, event.at, 1, event.facts),
        *_unsettle(task, past, event),
    ]


def _unsettle(task: str, past: TaskFields, event: Event) -> list[Command]:
    """Return the commands that let `settle` tell the tasks that wait for the task of an event."""
    if event.what not in SETTLED:
        return []
    commands: list[Command] = []
    if past.dependents is not None:
        commands += [("ZADD", keys.UNSETTLED_TASKS, event.at, task)]
    if past.group is not None:
        commands += [("ZADD", keys.UNSETTLED_MEMBERS, event.at, task)]
    return commands


def record_in_queue(queue: str, event: Event, task: str | None = None) -> Command:
    """Return the command that records an event in the stream of a queue only, without statistics.

    task: None: the event is about the queue itself.
    """
    return _put_in_stream(queue, task, _text(event))


def _put_in_stream(queue: str, task: str | None, text: str) -> Command:
    of = () if task is None else ("task", task)
    return ("XADD", keys.events(queue), "MAXLEN", "~", IN_STREAM, "*", *of, "told", text)


def record_in_task(task: str, past: TaskFields, event: Event) -> list[Command]:
    """Return the commands that record an event in the history of its task only.

    The transition writes `after` itself. This is for events of very many tasks at once, which would
    push all others out of the stream of the queue.
    """
    return _record_in_history(task, past, _text(event, past))


def _record_in_history(task: str, past: TaskFields, text: str) -> list[Command]:
    if count_of(past.events) < FIRST:
        return [("RPUSH", keys.history(task), text)]
    recent = keys.recent(task)
    return [("RPUSH", recent, text), ("LTRIM", recent, -RECENT, -1)]


def _text(event: Event, past: TaskFields | None = None) -> str:
    values: EventFacts = {
        "event": event.what,
        "at": event.at,
        "attempt": None if past is None else count_of(past.attempt),
        "by": event.by or None,
        **(event.facts or {}),
    }
    present = {
        name: value[:WORDS] if isinstance(value, str) else value
        for name, value in values.items()
        if value is not None
    }
    return _to_json(present)


def count(
    redis: Redis, queue: str, what: str, now: float, times: int = 1, facts: EventFacts | None = None
) -> list[Command]:
    """Return the commands that add an event to the statistics of a queue: of the day and in all.

    facts: those of the event.
    """
    day, totals = keys.stats(queue, day_of(now)), keys.totals(queue)
    took, error_type = (facts or {}).get("took"), (facts or {}).get("error_type")
    commands: list[Command] = [("HINCRBY", day, what, times), ("HINCRBY", totals, what, times)]
    if isinstance(took, float):
        bucket = f"{what}_{histogram.NAMES[histogram.bucket(took)]}"
        commands += [("HINCRBY", key, bucket, 1) for key in (day, totals)]
        commands += [("HINCRBYFLOAT", key, f"{what}_seconds", took) for key in (day, totals)]
        commands += [("HINCRBYFLOAT", day, f"{what}_squares", took * took)]
    if error_type is not None:
        # Any text may be given for a type, and each would be a field of its own.
        kind = error_type if _TYPE.fullmatch(str(error_type)) else "other"
        commands += [("HINCRBY", day, f"error:{kind}", 1)]
    if error_type in LOST:  # of other types there may be any number
        commands += [("HINCRBY", totals, f"error:{error_type}", 1)]
    return [*commands, ("EXPIREAT", day, int(now // 86400 + 1 + redis.settings.days_kept) * 86400)]


def after(past: TaskFields, events: int = 1) -> dict[str, str]:
    """Return the fields of a task that this many events change."""
    return {"events": str(count_of(past.events) + events)}


def ran(past: TaskFields, finished: float) -> float | None:
    """Return how long the attempt ran; None: it did not start, or its start is unknown.

    Never less than 0, although clocks differ.
    """
    started = _time(past.started)
    return max(finished - started, 0.0) if started else None


def waited(created: str | None, eta: str | None, queued: str | None, now: float) -> float:
    """Return how long a task waited that is reserved now.

    The wait began when the task was created, became due, or was last put in line.
    """
    return max(now - max(_time(text) for text in (created or str(now), eta, queued)), 0.0)


def _time(text: str | None) -> float:
    """Return a time of the hash; 0 if it is malformed."""
    seconds = seconds_of(text) or 0.0
    return seconds if abs(seconds) < ALWAYS else 0.0
