"""The limits of a task, and how a task that exceeds one is ended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from blueque.errors import InvalidInput
from blueque.model.encoding import CENTURY, integer, number, require_number, require_whole
from blueque.model.units import GRACE, parse_duration, parse_size

# The fields of a task, in the order of Limits: lowest and highest. A float is in seconds, an int in
# bytes.
_RANGES: dict[str, tuple[float, float] | tuple[int, int]] = {
    "time_limit": (0.001, CENTURY),
    "stall_limit": (0.001, CENTURY),
    "memory_limit": (1, 2**63 - 1),
    "grace": (0.0, CENTURY),
    "lead": (0.0, CENTURY),
}


NAMES = tuple(_RANGES)


class Limits(NamedTuple):
    """The limits of an attempt. None: no limit."""

    time: float | None = None  # seconds since its start
    stall: float | None = None  # seconds without progress
    memory: int | None = None  # bytes, of all its processes together
    grace: float = GRACE  # seconds between SIGTERM and SIGKILL
    lead: float = 0.0  # seconds from a warning signal to a limit; 0: no warning


def fields(
    *,
    time_limit: float | str | None = None,
    stall_limit: float | str | None = None,
    memory_limit: int | str | None = None,
    grace: float | str | None = None,
    lead: float | str | None = None,
) -> dict[str, int | float]:
    """Return the given limits as fields of a task, in seconds and bytes.

    A duration may be text such as 90, 30s, 2h or 1d12h; a size 65536, 64KiB or 8GiB.
    Raises InvalidInput.
    """
    if time_limit is stall_limit is memory_limit is grace is lead is None:  # the usual case
        return {}
    given = (time_limit, stall_limit, memory_limit, grace, lead)
    return {
        name: _checked(name, value)
        for name, value in zip(_RANGES, given, strict=True)
        if value is not None
    }


def of(task_fields: Mapping[str, str], default: Limits) -> Limits:
    """Return the limits of a task from its hash; the default where a field is missing or malformed."""
    if task_fields.keys().isdisjoint(_RANGES):  # the usual case
        return default
    return Limits(
        *(
            _read(name, task_fields.get(name), other)
            for name, other in zip(_RANGES, default, strict=True)
        )
    )


def read(name: str, text: str) -> int | float:
    """Return the limit in a field of Redis. Raises InvalidInput."""
    return _checked(name, text)


def _checked(name: str, value: object) -> int | float:
    lowest, highest = _RANGES[name]
    if isinstance(value, str):
        try:
            value = parse_size(value) if isinstance(lowest, int) else parse_duration(value)
        except (InvalidInput, OverflowError) as error:
            raise InvalidInput(f"{name}: {error}") from error
    if isinstance(lowest, int) and isinstance(highest, int):
        return require_whole(value, name, lowest, highest)
    seconds = require_number(value, name, lowest, highest)
    return int(seconds) if seconds.is_integer() else seconds  # 7200 is easier to read than 7200.0


def _read(name: str, text: str | None, other: Any) -> Any:
    lowest, highest = _RANGES[name]
    try:
        value = (integer if isinstance(lowest, int) else number)(text or "")
    except ValueError:
        return other
    return value if lowest <= value <= highest else other
