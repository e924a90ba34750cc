"""The record of a schedule: how the transactions of schedules read it and move it on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from blueque.connection.redis import Command, Look, as_hash
from blueque.errors import NoSuchSchedule
from blueque.model import keys
from blueque.model.encoding import count_of
from blueque.model.schedule import KEPT, Definition, Occurrence
from blueque.protocol.events import Event, record_in_queue
from blueque.protocol.fields import flat


def whole_look(name: str) -> Look[Sequence[str], Sequence[str]]:
    """Return the look at the whole record, and at the clock of Redis."""
    key = keys.schedule(name)
    return Look([key], [("HGETALL", key), ("TIME",)])


def required(name: str, reply: Sequence[str]) -> dict[str, str]:
    """Return the record. Raises NoSuchSchedule."""
    if not reply:
        raise NoSuchSchedule(name)
    return as_hash(reply)


def whole_number(record: Mapping[str, str], field: str) -> int:
    """Return a field of the record that is a whole number; 0 if it is malformed or missing."""
    return count_of(record.get(field))


def next_of(name: str, definition: Definition, last: int) -> tuple[int, int] | None:
    """Return the planned time after this one, and when it is due."""
    planned = definition.rule.next_after(last)
    return None if planned is None else (planned, definition.at(name, planned))


def moved_on(
    name: str,
    fields: Mapping[str, Any],
    following: tuple[int, int] | None,
    score: float | str,
    occurrences: Sequence[Occurrence],
    now: float,
) -> list[Command]:
    """Return the commands that move a schedule on. following: the next planned time, and when it is due."""
    nexts = {} if following is None else {"planned": following[0], "at": following[1]}
    over: list[Command] = [("HDEL", keys.schedule(name), "planned", "at")]
    return [
        *noted(name, {**fields, **nexts}, occurrences, now),
        *(over if following is None else []),
        ("ZADD", keys.SCHEDULES, score, name),
    ]


def noted(
    name: str, fields: Mapping[str, Any], occurrences: Sequence[Occurrence], now: float
) -> list[Command]:
    """Return the commands that write fields of a record, and what became of planned times."""
    key, listed = keys.schedule(name), keys.occurrences(name)
    counts: Counter[str] = Counter()
    for occurrence in occurrences:
        counts[occurrence.what] += occurrence.times or 1
    commands: list[Command] = [("HSET", key, *flat(fields), "updated", now)]
    commands += [("HINCRBY", key, what, times) for what, times in counts.items()]
    if occurrences:
        texts = [occurrence.text() for occurrence in occurrences[-KEPT:]]
        commands += [("LPUSH", listed, *texts), ("LTRIM", listed, 0, KEPT - 1)]
    return commands


def told(name: str, queue: str, what: str, by: str, now: float, why: str | None = None) -> Command:
    """Return the command that records what a person did to a schedule as an event of its queue."""
    return record_in_queue(
        queue, Event(f"schedule_{what}", by, now, {"schedule": name, "why": why})
    )
