"""The time before which a task must start, or else not run at all."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Literal, NamedTuple

from blueque.errors import InvalidInput, InvalidType
from blueque.model.encoding import (
    CENTURY,
    LAST_SECOND,
    require_number,
    require_queue_name,
    require_time,
    seconds_of,
)
from blueque.model.units import parse_duration

Within = float | str | Literal[False] | None
EXPIRED = "expired"  # why such a task was cancelled, or moved


class StartTime(NamedTuple):
    """Until when new tasks may start; false: at any time.

    within: seconds from the creation of a task or, if it is scheduled, from its eta. before: Unix
        seconds.
    to: the queue to which a task moves that has not started; None: it is cancelled.
    """

    within: float | None = None
    before: float | None = None
    to: str | None = None

    def __bool__(self) -> bool:
        return self.within is not None or self.before is not None

    def at(self, now: float, eta: float | None = None) -> float | None:
        """Return the time for a task that is created now and due at `eta`.

        Raises InvalidInput if it could never start.
        """
        due = now if eta is None else max(now, eta)
        if self.within is not None:
            return min(due + self.within, LAST_SECOND)
        if self.before is not None and self.before <= due:
            when = "is past" if due == now else "is not later than the eta"
            raise InvalidInput(f"start_before {when}: the task could never start")
        return self.before

    def fields(self, now: float, eta: float | None = None) -> dict[str, str | int | float]:
        """Return the fields of such a task; see `at`."""
        before = self.at(now, eta)
        if before is None:
            return {}
        return {"start_before": before, **({"expired_to": self.to} if self.to else {})}

    def fields_of_all(self, now: float) -> dict[str, str | int | float]:
        """Return the fields that are the same for many tasks; with `within`, each has its own time."""
        if self.within is None:
            return self.fields(now)
        return {"expired_to": self.to} if self.to else {}


ANY_TIME = StartTime()


def start_time(
    queue: str,
    start_within: Within,
    start_before: float | datetime | None,
    expired_to: str | None,
    default: float | None = None,
) -> StartTime:
    """Return the start time for these options of `Queue.enqueue`. default: the start_within of its queue.

    Raises InvalidInput, InvalidType.
    """
    if (start_within, start_before, expired_to, default) == (None,) * 4:  # the usual case
        return ANY_TIME
    if start_within not in (None, False) and start_before is not None:
        raise InvalidInput("give start_within or start_before, not both")
    within = default if start_within is None and start_before is None else None
    if start_within is not None and start_within is not False:
        within = require_within(start_within)
    before = None if start_before is None else require_time(start_before, "start_before")
    found = StartTime(within, before, expired_to)
    if expired_to is None:
        return found
    if not found:
        raise InvalidInput("expired_to needs start_within or start_before")
    if require_queue_name(expired_to) == queue:
        raise InvalidInput(f"expired_to is the queue of the task itself, {queue}")
    return found


def require_within(value: object) -> float:
    """Return seconds of a number, or of text such as 2h. Raises InvalidInput, InvalidType."""
    if isinstance(value, str):
        value = parse_duration(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidType(f"start_within is seconds or text as '2h', not {type(value).__name__}")
    seconds = require_number(value, "start_within")
    if not 0 < seconds <= CENTURY:
        raise InvalidInput(f"start_within is more than 0 s and at most 100 years, not {value!r}")
    return seconds


def is_over(task: Mapping[str, str], now: float) -> bool:
    """Return whether a task that has not started may no longer start."""
    return "start_before" in task and "attempt" not in task and is_past(task["start_before"], now)


def is_past(at: str | None, now: float) -> bool:
    """Return whether a time in the hash of a task has come."""
    time = seconds_of(at)
    return time is not None and time <= now
