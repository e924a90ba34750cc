"""Print text for people and JSON for programs. Text from Redis is made harmless for terminals.

On a terminal, tables fit its width: names are cut and ids shortened. In a pipe or a file, every
value is printed whole.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import click

from blueque.text.format import clean as clean
from blueque.text.format import count as count
from blueque.text.format import due as due
from blueque.text.format import envelope, to_json
from blueque.text.format import size as size
from blueque.text.format import span as span
from blueque.text.format import stamp as stamp
from blueque.text.format import times as times
from blueque.text.terminal import cut as cut
from blueque.text.terminal import is_terminal as is_terminal
from blueque.text.terminal import lines as lines
from blueque.text.terminal import pieces as pieces
from blueque.text.terminal import short_id as short_id
from blueque.text.terminal import short_ids as short_ids
from blueque.text.terminal import short_node as short_node
from blueque.text.terminal import terminal_width as terminal_width
from blueque.text.terminal import width as width
from blueque.text.terminal import within as within
from blueque.text.terminal import wrapped as wrapped

_OF_STATES = {
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
_COLOURS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_NARROWEST, _BRIEF = 8, 12
_COMFORTABLE = 16  # as far as a column shrinks before the spaces between the others do


class Column(NamedTuple):
    """A column of a table.

    yields: it shrinks before the others. is_name: it identifies the row for people, and shrinks
        after the others.
    """

    title: str
    is_number: bool = False  # aligned right
    can_shrink: bool = False
    yields: bool = False
    is_name: bool = False


def text_columns(*titles: str) -> list[Column]:
    """Return columns whose cells are cut if the terminal is narrow."""
    return [Column(title, can_shrink=True) for title in titles]


def number_columns(*titles: str) -> list[Column]:
    """Return columns that are aligned right."""
    return [Column(title, True) for title in titles]


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
        others = [
            each._replace(can_shrink=each.can_shrink and not each.is_name) for each in columns
        ]
        _shrink(yielding, widths, terminal_width() - sum(gaps), _BRIEF)
        _shrink(others, widths, terminal_width() - sum(gaps), _COMFORTABLE)
        if sum(widths) + sum(gaps) > terminal_width():
            gaps = [1 if column.is_number else 2 for column in columns[1:]]
            _shrink(others, widths, terminal_width() - sum(gaps), _NARROWEST)
            _shrink(columns, widths, terminal_width() - sum(gaps), _NARROWEST)
    lines = [_row(columns, widths, gaps, [column.title for column in columns], is_title=True)]
    return lines + [_row(columns, widths, gaps, row) for row in cells]


def talk(line: str) -> None:
    """Print a remark to standard error, so that it is not taken for data."""
    text = clean(line)
    click.echo("\n".join(wrapped(text)) if sys.stderr.isatty() else text, err=True)


def print_table(columns: Sequence[Column], rows: Iterable[Sequence[str]]) -> None:
    """Print a table; see `table`."""
    click.echo("\n".join(table(columns, rows)))


def print_wrapped(text: str, before: str = "") -> None:
    """Print a sentence after `before`, on a terminal wrapped and indented."""
    if is_terminal():
        text = f"\n{' ' * width(before)}".join(wrapped(text, terminal_width() - width(before)))
    click.echo(f"{before}{text}")


def print_json(kind: str, **content: Any) -> None:
    """Print the JSON object of a command with --json."""
    click.echo(to_json(envelope(kind, content), indent=2))


def print_json_line(kind: str, **content: Any) -> None:
    """Print one of many JSON objects, on a line of its own."""
    click.echo(to_json(envelope(kind, content)))


def json_line(content: Mapping[str, Any]) -> str:
    """Return an object as one line of JSON."""
    return to_json(content)


def paint(text: str, word: str, **style: Any) -> str:
    """Return the text in the colour of a state, unless NO_COLOR is set; click.echo removes it in a pipe.

    --color and FORCE_COLOR overrule that: see options.color_option.
    """
    context = click.get_current_context(silent=True)
    wanted = context.color if context is not None else None
    if wanted is False or (wanted is None and not _has_colours()):
        return text
    colour = _OF_STATES.get(word)
    return click.style(text, fg=colour, **style) if colour or style else text


def harmless(text: str) -> str:
    """Return text that is safe for any terminal: without colours, with control characters escaped."""
    return "\t".join(map(clean, _COLOURS.sub("", text).split("\t"))).expandtabs()


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
