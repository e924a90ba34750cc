"""Print a fact beside its label."""

from __future__ import annotations

import click

from blueque.cli import printing

_MAX_LINES = 12  # of a long value, on a terminal
_MOST = 65536  # characters of a value
_LABEL = 12


def print_fact(label: str, value: str) -> None:
    """Print a value beside its label; a long value, or one of several lines, as a block."""
    cut = f"\n... ({len(value) - _MOST:,} more characters: --json shows all)"
    shown = value if len(value) <= _MOST else f"{value[:_MOST]}{cut}"
    lines = [printing.clean(line) for line in shown.split("\n")]
    room = printing.terminal_width() - _LABEL if printing.is_terminal() else None
    if room is not None:
        lines = [piece for line in lines for piece in printing.lines(line, room)]
        hidden = len(lines) - _MAX_LINES
        if hidden > 0:
            lines[_MAX_LINES:] = [
                f"... ({hidden} more line{'' if hidden == 1 else 's'}: --json shows all)"
            ]
    title = printing.clean(label)
    if len(title) >= _LABEL or _is_path_too_long(lines[0], room):
        lines.insert(0, "")
    for n, line in enumerate(lines):
        before = f"{title if n == 0 else '':<{_LABEL}}"
        click.echo(line if _is_path_too_long(line, room) else f"{before}{line}".rstrip())


def _is_path_too_long(line: str, room: int | None) -> bool:
    """Return whether a line is a path that does not fit beside its label: `lines` cuts none."""
    return room is not None and printing.width(line) > room
