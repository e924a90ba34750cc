"""QueueSettings: the settings of a queue in Redis for its tasks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from blueque.errors import InvalidInput
from blueque.model import limits
from blueque.model.encoding import CENTURY, known_count, number, require_number, require_whole
from blueque.model.queue_order import require_weight
from blueque.model.retry import Retry
from blueque.model.states import FINISHED
from blueque.model.units import MOST_KEPT, SPARED, Keep

RETENTION = {f"retention.{status}": status for status in FINISHED}
BOUNDS = ("max_running", "max_pending", "discard")  # of all programs, so they are in Redis only
NAMES = ("weight", "retry", *limits.NAMES, *RETENTION, *BOUNDS)  # the others are as in blueque.toml
NO_LIMIT = "none"
OLDEST = "oldest"  # the only value of discard
DISCARDED = "discarded"  # why a task was cancelled to make room
MOST = {"max_running": 1_000_000, "max_pending": 10**12}

_EMPTY: Mapping[str, Any] = MappingProxyType({})


NOT_PAUSED: Mapping[str, None] = dict.fromkeys(("paused", "paused_by", "paused_reason"))


class QueueSettings(NamedTuple):
    """The settings that are set.

    weight: in a lottery. retry: the policy of tasks; False: no retries.
    limits: see `limits.fields`; None: without this limit. retention: by status.
    """

    weight: float | None = None
    retry: Retry | Literal[False] | None = None
    limits: Mapping[str, int | float | None] = _EMPTY
    retention: Mapping[str, Keep] = _EMPTY


def pausing(by: str, reason: str | None, now: float) -> dict[str, str | None]:
    """Return the settings that pause a queue. by, reason: who pauses it, and why."""
    return {"paused": str(now), "paused_by": by, **({"paused_reason": reason} if reason else {})}


def read_settings(fields: Mapping[str, str]) -> QueueSettings:
    """Return the settings in a hash. A malformed one has no effect."""
    wrong = malformed(fields)
    found = {
        name: read_setting(name, fields[name])
        for name in NAMES
        if name in fields and name not in wrong
    }
    return QueueSettings(
        found.get("weight"),
        found.get("retry"),
        {name: found[name] for name in limits.NAMES if name in found},
        {status: found[name] for name, status in RETENTION.items() if name in found},
    )


def malformed(fields: Mapping[str, str]) -> dict[str, str]:
    """Return the settings in a hash that are malformed and have no effect."""
    found = {}
    for name in NAMES:
        try:
            if name in fields:
                read_setting(name, fields[name])
        except InvalidInput:
            found[name] = fields[name]
    return found


def read_setting(name: str, text: str) -> Any:
    """Return the value of a field. Raises InvalidInput."""
    try:
        if name == "weight":
            return require_weight(number(text))
        if name == "retry":
            return False if text == "null" else Retry.from_text(text)
        if name in RETENTION:
            return _read_keep(**json.loads(text))
        if name in BOUNDS:
            count = known_count(text) if name in MOST else None  # as programs read it
            return require_bound(name, text if count is None else count)
    except (ValueError, TypeError, RecursionError) as error:
        raise InvalidInput(f"{name} is {text!r}") from error
    return None if text == NO_LIMIT and name.endswith("_limit") else limits.read(name, text)


def write_setting(name: str, value: Any) -> str:
    """Return the text of a value for its field."""
    if name == "retry":
        return value.to_text() if value else "null"
    if name in RETENTION:
        kept = {"age": value.age, "newest": value.newest}
        given = {key: _short(number) for key, number in kept.items() if number is not None}
        return json.dumps(given, separators=(",", ":"))
    if name in BOUNDS:
        return str(value)
    if value is None:
        return NO_LIMIT
    return str(_short(value))


def require_bound(name: str, value: object) -> int | str:
    """Return the value of one of `BOUNDS`. Raises InvalidInput."""
    if name in MOST:
        if isinstance(value, str | float):  # as people write it
            raise InvalidInput(f"{value!r} is not a whole number: write 1000")
        return require_whole(value, "it", 0, MOST[name])
    if value != OLDEST:
        raise InvalidInput(f"it is {OLDEST!r} or not set, not {value!r}")
    return OLDEST


def _short(number: float) -> float:
    """Return the number in its shorter form: 7200, not 7200.0."""
    return int(number) if float(number).is_integer() else number


def _read_keep(age: object = None, newest: object = None) -> Keep:
    seconds = None if age is None else require_number(age, "age", 0.001, CENTURY)
    if newest is None:
        return Keep(seconds)
    return Keep(seconds, require_whole(newest, "newest", 1, MOST_KEPT), spared=SPARED)
