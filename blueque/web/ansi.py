"""Terminal output of a program as HTML: colours become classes, everything else is text."""

from __future__ import annotations

import re
from collections.abc import Iterator

from markupsafe import Markup

from blueque.report import svg

LONGEST = 8192  # characters of a line: more than a log keeps of one
# A sequence that sets colours; any other sequence; a single control character.
_COLOURS = re.compile(r"\x1b\[([0-9;:]*)m")
_OTHERS = re.compile(
    "(?:\x1b\\[|\x9b)[0-?]*[ -/]*[@-~]?|\x1b[\\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\\\)?|\x1b[ -/]*[0-~]?"
)


def html(line: str) -> Markup:
    """Return a line as HTML: its text, escaped, with classes for colours, bold and underlined text.

    Text that a carriage return has overwritten, and all sequences but those of colours, are left
    out. A line that is too long is cut.
    """
    line = line.rstrip("\r\n").rpartition("\r")[2]
    if line.isprintable() and len(line) <= LONGEST:
        return svg.text(line)
    shown, cut = line[:LONGEST], len(line) - LONGEST
    parts, classes, place = [], frozenset[str](), 0
    for found in _COLOURS.finditer(shown):
        parts.append(_part(shown[place : found.start()], classes))
        classes = _after(classes, found[1])
        place = found.end()
    parts.append(_part(shown[place:], classes))
    if cut > 0:
        parts.append(svg.tag("i", f" … {cut:,} more characters"))
    return Markup("".join(parts))


def plain(line: str) -> str:
    """Return the text of a line without any sequence."""
    return _OTHERS.sub("", line.rstrip("\r\n").rpartition("\r")[2])


def _part(text: str, classes: frozenset[str]) -> Markup:
    text = _OTHERS.sub("", text)
    escaped = Markup("\t".join(map(svg.text, text.split("\t"))))
    if not escaped or not classes:
        return escaped
    return svg.tag("span", escaped, class_=" ".join(sorted(classes)))


def _after(classes: frozenset[str], codes: str) -> frozenset[str]:
    """Return the classes after a sequence that sets colours."""
    numbers = iter([int(code) if code else 0 for code in re.split("[;:]", codes)])
    for number in numbers:
        if number == 0:
            classes = frozenset()
        elif number in (1, 4):
            classes |= {"b" if number == 1 else "u"}
        elif number in (22, 24):
            classes -= {"b" if number == 22 else "u"}
        elif number == 38 or number == 48:
            colour = _colour(numbers)
            if number == 38 and colour is not None:
                classes = _coloured(classes, colour)
        elif 30 <= number <= 37 or 90 <= number <= 97:
            classes = _coloured(classes, number % 10)
        elif number == 39:
            classes = _coloured(classes, None)
    return classes


def _coloured(classes: frozenset[str], colour: int | None) -> frozenset[str]:
    others = frozenset(name for name in classes if not name.startswith("a"))
    return others if colour is None else others | {f"a{colour}"}


def _colour(numbers: Iterator[int]) -> int | None:
    """Return which of eight colours is nearest to an indexed or a true colour."""
    kind = next(numbers, 0)
    if kind == 5:
        index = next(numbers, 0)
        if index < 16:
            return index % 8
        if index >= 232:
            return None
        red, green, blue = (
            (index - 16) // 36 * 51,
            (index - 16) // 6 % 6 * 51,
            (index - 16) % 6 * 51,
        )
    elif kind == 2:
        red, green, blue = (next(numbers, 0) for _ in range(3))
    else:
        return None
    half = max(red, green, blue) / 2
    bits = (red > half) + 2 * (green > half) + 4 * (blue > half)
    return None if bits in (0, 7) else bits
