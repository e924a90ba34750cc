"""Write durations, points in time, counts, sizes and JSON, and make text safe for terminals."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from datetime import datetime

MAX_LINE = 200  # characters of the progress of a task
# ECMA-48: with parameters, with a text that ends with a bell or a sequence, and short ones.
_ESCAPES = re.compile(
    "(?:\x1b\\[|\x9b)[0-?]*[ -/]*[@-~]?|\x1b[\\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\\\)?|\x1b[ -/]*[0-~]?"
)
# Escaped in JSON besides what it requires: C1 controls, marks that change the direction of text, lone
# surrogates.
_UNSEEN = re.compile(
    "[\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff]"
)


def clean(text: str) -> str:
    """Escape everything but printable characters and spaces, as \\n, \\x1b or \\u202e."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def as_cell(text: str) -> str:
    """Return text for a cell of CSV, with a ' before what a spreadsheet would take for a formula."""
    is_formula = text[:1] in ("\t", "\r") or text.lstrip()[:1] in ("=", "+", "-", "@")
    return f"'{text}" if text and is_formula else text


def one_line(text: str) -> str:
    """Return the progress of a task as one line, cut, without control sequences."""
    if not text.isprintable():
        text = "".join(c for c in " ".join(_ESCAPES.sub("", text).split()) if c.isprintable())
    return " ".join(text.split())[:MAX_LINE]


def span(seconds: float | None) -> str:
    """Return a duration in words: 0.8 s, 41 s, 4 m 12 s, 3 h 12 m, 2 d 4 h."""
    if seconds is None or not math.isfinite(seconds):
        return "-"
    if seconds < 9.95:
        return f"{max(seconds, 0.0):.1f} s"
    whole = int(seconds)
    for size, unit, smaller_size, smaller in (
        (86400, "d", 3600, "h"),
        (3600, "h", 60, "m"),
        (60, "m", 1, "s"),
    ):
        if whole >= size:
            rest = whole % size // smaller_size
            return f"{whole // size} {unit} {rest} {smaller}" if rest else f"{whole // size} {unit}"
    return f"{whole} s"


def ago(seconds: float | None) -> str:
    """Return an age in words: 12 s ago; a negative age is 0.0 s ago."""
    return "-" if seconds is None or not math.isfinite(seconds) else f"{span(seconds)} ago"


def count(number: int, noun: str) -> str:
    """Return `1 task`, `12,000 tasks`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def size(count: float) -> str:
    """Return a number of bytes in words: 512 B, 1.5 KiB, 31.8 GiB."""
    amount = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(amount) < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"


def times(**moments: float | None) -> dict[str, str | float | None]:
    """Return each time twice for JSON: `<name>` as ISO 8601 in UTC, `<name>_seconds` as Unix time."""
    pairs: dict[str, str | float | None] = {}
    for name, seconds in moments.items():
        moment = utc_moment(seconds)
        pairs[name] = (
            None
            if moment is None
            else moment.isoformat(timespec="microseconds").replace("+00:00", "Z")
        )
        pairs[f"{name}_seconds"] = seconds if moment else None
    return pairs


def due(eta: float, now: float) -> str:
    """Return when something is due: due in 5 m, due 3 s ago."""
    return f"due in {span(eta - now)}" if eta > now else f"due {span(now - eta)} ago"


def stamp(seconds: float | None, is_utc: bool) -> str:
    """Return a time with its zone: 2026-11-21 05:26:11 UTC."""
    moment = utc_moment(seconds)
    if moment is None:
        return "-"
    try:
        shown = moment if is_utc else moment.astimezone()
    except (ValueError, OverflowError, OSError):  # outside the calendar
        shown = moment
    return shown.strftime("%Y-%m-%d %H:%M:%S %Z")


def utc_moment(seconds: float | None) -> datetime | None:
    """Return a time in UTC; None: there is none, or it is outside the calendar."""
    from datetime import UTC, datetime  # here: a task process does not need it

    try:
        return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        # malformed; written by another program
        return None


def envelope(kind: str, content: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object of docs/json.md."""
    return {"blueque": 2, "kind": kind, **content}


def to_json(content: Mapping[str, Any], indent: int | None = None) -> str:
    """Return an object as JSON, without characters that hide text or change its direction."""
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, indent=indent)
    return _UNSEEN.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def no_open_task(ended: int) -> str:
    """Return why a list of waiting and running tasks is empty. ended: how many have ended."""
    return f"no task waits or runs; {ended:,} {'has' if ended == 1 else 'have'} ended"


def names_of(queues: Iterable[str]) -> str:
    """Return these queues for a sentence: queue 'a', or queues 'a', 'b'."""
    names = [*map(repr, queues)]
    return f"queue{'s' * (len(names) > 1)} {', '.join(names)}"
