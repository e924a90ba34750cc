"""Print text for people and JSON for programs. Text from Redis is made harmless for terminals.

On a terminal, tables fit its width: names are cut and ids shortened. In a pipe or a file, every
value is printed whole.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import chain
from typing import Any, NamedTuple

import click

from blueque.text.format import clean as clean
from blueque.text.format import count as count
from blueque.text.format import size as size
from blueque.text.format import span as span

# Escaped in JSON besides what JSON requires: C1 controls, marks that change the direction of text,
# lone surrogates.
_UNSEEN = re.compile(
    "[\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff]"
)
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_COLOURS = {
    "started": "blue",
    "reserved": "yellow",
    "complete": "green",
    "failed": "red",
    "scheduled": "magenta",
    "blocked": "magenta",
    "cancelled": "cyan",
    "cancelling": "cyan",
    "interrupting": "cyan",
    "up": "green",
    "draining": "yellow",
    "paused": "yellow",
    "silent": "red",
    "dead": "red",
    "gone": "red",
}
# A command at the end of a sentence or in it: `To see why: blueque why ID`.
_COMMAND = re.compile(r"(?<=: )blueque[ -](?:(?![.,;)] ).)*")
_GLUE = "\0"  # for the spaces of a command; `clean` leaves none in a text
_NARROWEST, _BRIEF = 8, 12
_COMFORTABLE = 16  # as far as a column shrinks before the spaces between the others do
_LONGEST_PATH = 1024  # characters


class Column(NamedTuple):
    """A column of a table. yields: it shrinks before the others do."""

    title: str
    is_number: bool = False  # aligned right
    can_shrink: bool = False
    yields: bool = False


def table(columns: Sequence[Column], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a table, titles first; none is wider than the terminal."""
    cells = [[clean(cell) for cell in row] for row in rows]
    widths = [
        max([width(column.title), *(width(row[n]) for row in cells)])
        for n, column in enumerate(columns)
    ]
    gaps = [2] * (len(columns) - 1)
    if is_terminal():
        yielding = [column._replace(can_shrink=column.yields) for column in columns]
        _shrink(yielding, widths, terminal_width() - sum(gaps), _BRIEF)
        _shrink(columns, widths, terminal_width() - sum(gaps), _COMFORTABLE)
        if sum(widths) + sum(gaps) > terminal_width():
            gaps = [1 if column.is_number else 2 for column in columns[1:]]
            _shrink(columns, widths, terminal_width() - sum(gaps), _NARROWEST)
    lines = [_row(columns, widths, gaps, [column.title for column in columns], is_title=True)]
    return lines + [_row(columns, widths, gaps, row) for row in cells]


def talk(line: str) -> None:
    """Print a remark to standard error, so that it is not taken for data."""
    text = clean(line)
    click.echo("\n".join(wrapped(text)) if sys.stderr.isatty() else text, err=True)


def print_wrapped(text: str, before: str = "") -> None:
    """Print a sentence behind `before`, on a terminal wrapped and indented."""
    if is_terminal():
        text = f"\n{' ' * width(before)}".join(wrapped(text, terminal_width() - width(before)))
    click.echo(f"{before}{text}")


def print_json(kind: str, **content: Any) -> None:
    """Print the JSON object of a command with --json."""
    text = json.dumps(
        {"blueque": 2, "kind": kind, **content}, ensure_ascii=False, allow_nan=False, indent=2
    )
    click.echo(_UNSEEN.sub(lambda match: f"\\u{ord(match[0]):04x}", text))


def print_json_line(kind: str, **content: Any) -> None:
    """Print one of many JSON objects, on a line of its own."""
    click.echo(json_line({"blueque": 2, "kind": kind, **content}))


def json_line(content: Mapping[str, Any]) -> str:
    """Return an object as one line of JSON."""
    text = json.dumps(content, ensure_ascii=False, allow_nan=False)
    return _UNSEEN.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def times(**moments: float | None) -> dict[str, str | float | None]:
    """Return each time twice for JSON: `<name>` as ISO 8601 in UTC, `<name>_seconds` as Unix time."""
    pairs: dict[str, str | float | None] = {}
    for name, seconds in moments.items():
        moment = _moment(seconds)
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
    moment = _moment(seconds)
    if moment is None:
        return "-"
    try:
        shown = moment if is_utc else moment.astimezone()
    except (ValueError, OverflowError, OSError):  # outside the calendar
        shown = moment
    return shown.strftime("%Y-%m-%d %H:%M:%S %Z")


def short_id(task_id: str) -> str:
    """Return the first eight characters of a UUID on a terminal; else the whole id."""
    return task_id[:8] if is_terminal() and _UUID.fullmatch(task_id) else task_id


def short_ids(text: str) -> str:
    """Shorten the UUIDs in a text as `short_id` does."""
    return _UUID.sub(lambda match: short_id(match[0]), text)


def short_node(node: str) -> str:
    """Return the node id without the domain of its host on a terminal, whole in a pipe."""
    host, separator, pid = node.rpartition("_")
    return f"{host.partition('.')[0]}{separator}{pid}" if is_terminal() and host else node


def within(text: str, columns: int | None = None) -> str:
    """Cut the text to the width of the terminal, if there is one.

    columns: how many to use; None: all.
    """
    if not is_terminal():
        return text
    return cut(text, terminal_width() if columns is None else columns)


def lines(text: str, columns: int) -> list[str]:
    """Wrap the text between words; a path stays whole, however long it is."""
    found = [""]
    for place, word in enumerate(text.split(" ")):
        if place:
            word = f" {word}"
        if width(found[-1]) + width(word) <= columns:
            found[-1] += word
            continue
        word = word.lstrip() if found[-1] else word
        parts = [word] if _is_path(word) or _GLUE in word else pieces(word, columns)
        found[-1:] = [found[-1], *parts] if found[-1] else parts
    return found


def wrapped(text: str, columns: int | None = None) -> list[str]:
    """Wrap a sentence; a command in it stays whole, to be copied.

    columns: None: those of the terminal.
    """
    glued = _COMMAND.sub(lambda match: match[0].replace(" ", _GLUE), text)
    return [
        line.replace(_GLUE, " ")
        for line in lines(glued, terminal_width() if columns is None else columns)
    ]


def pieces(text: str, columns: int) -> list[str]:
    """Cut the text into pieces of at most `columns`; an empty text is one empty piece."""
    found, used = [""], 0
    for character in text:
        used += _columns(character)
        if used > columns:
            found.append("")
            used = _columns(character)
        found[-1] += character
    return found


def width(text: str) -> int:
    """Return the columns of a text: two for a wide character, none for a combining one."""
    if text.isascii():
        return len(text)
    return sum(_columns(character) for character in text)


def is_terminal() -> bool:
    return sys.stdout.isatty()


def terminal_width() -> int:
    """Return the columns of the terminal on standard output, or else on standard error."""
    try:
        otherwise = os.get_terminal_size(sys.stderr.fileno())
    except (OSError, ValueError, AttributeError):
        otherwise = os.terminal_size((80, 24))
    return max(shutil.get_terminal_size(otherwise).columns, 20)


def paint(text: str, word: str, **style: Any) -> str:
    """Return the text in the colour of a state, unless NO_COLOR is set; click.echo removes it in a
    pipe.

    --color and FORCE_COLOR overrule that: see options.color_option.
    """
    context = click.get_current_context(silent=True)
    wanted = context.color if context is not None else None
    if wanted is False or (wanted is None and not _has_colours()):
        return text
    colour = _COLOURS.get(word)
    return click.style(text, fg=colour, **style) if colour or style else text


def _has_colours() -> bool:
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _row(
    columns: Sequence[Column],
    widths: Sequence[int],
    gaps: Sequence[int],
    cells: Sequence[str],
    is_title: bool = False,
) -> str:
    padded = []
    for column, columns_wide, cell in zip(columns, widths, cells, strict=True):
        shown = cut(cell, columns_wide)
        space = " " * (columns_wide - width(shown))
        painted = shown if is_title else _paint_state(column, shown)
        padded.append(space + painted if column.is_number else painted + space)
    spaces = [*(" " * gap for gap in gaps), ""]
    return "".join(chain(*zip(padded, spaces, strict=True))).rstrip()


def _paint_state(column: Column, cell: str) -> str:
    return paint(cell, cell) if column.title == "STATE" else cell


def _shrink(columns: Sequence[Column], widths: list[int], room: int, narrowest: int) -> None:
    """Shrink the widest columns until all fit into the room, or none can shrink further."""
    shrinking = [n for n, column in enumerate(columns) if column.can_shrink]
    while sum(widths) > room and shrinking:
        widest = max(shrinking, key=lambda n: widths[n])
        if widths[widest] <= narrowest:
            break
        widths[widest] -= 1


def _is_path(word: str) -> bool:
    """Tell whether a word is a path, also on another host, or an address."""
    name = word.strip(" \"'(),.:;")
    return "/" in name and len(name) <= _LONGEST_PATH and not {'"', "'"} & set(name)


def cut(text: str, columns: int) -> str:
    """Cut the text to so many columns, with a mark at the end."""
    if width(text) <= columns:
        return text
    mark, used, kept = _ellipsis(), 1, ""
    for character in text:
        used += _columns(character)
        if used > columns:
            break
        kept += character
    return kept + mark


def _ellipsis() -> str:
    try:
        "…".encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return "~"
    return "…"


def _columns(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _moment(seconds: float | None) -> datetime | None:
    try:
        return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        # malformed; written by another program
        return None
