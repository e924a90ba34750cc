"""How durations and counts are said, and how a text of somebody else is made harmless: the same in
every face.
"""

from __future__ import annotations

import math
import re

MAX_LINE = 200  # characters of a line that a task tells of itself
# As ECMA-48 has them: with parameters, with a text that ends by a bell or a sequence of its own,
# and short ones.
_ESCAPES = re.compile(
    "(?:\x1b\\[|\x9b)[0-?]*[ -/]*[@-~]?|\x1b[\\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\\\)?|\x1b[ -/]*[0-~]?"
)


def clean(text: str) -> str:
    """Return the text with everything but printable characters and spaces written out, as \\n, \\x1b or \\u202e."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def one_line(text: str) -> str:
    """Return what a task tells of itself as it fits into a table: one line, cut, without what would
    control a terminal.
    """
    if not text.isprintable():
        text = "".join(c for c in " ".join(_ESCAPES.sub("", text).split()) if c.isprintable())
    return " ".join(text.split())[:MAX_LINE]


def span(seconds: float | None) -> str:
    """Return a duration as people say it: 0.8 s, 41 s, 4 m 12 s, 3 h 12 m, 2 d 4 h."""
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
    """Return how old something is: 12 s ago; a clock that is ahead makes nothing younger than that."""
    return "-" if seconds is None or not math.isfinite(seconds) else f"{span(seconds)} ago"


def count(number: int, noun: str) -> str:
    """Return `1 task`, `2 tasks`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def size(count: float) -> str:
    """Return a number of bytes as people say it: 512 B, 1.5 KiB, 31.8 GiB."""
    amount = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(amount) < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"
