"""The manual pages docs/man/*.1, from --help. `.venv/bin/python docs/commands.py` writes them, and a wheel has them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from blueque.cli.verbs.help import EXIT_CODES
from blueque.version import __version__

DIRECTORY = Path(__file__).parent / "man"
ABOUT = {
    "blueque": "put tasks in queues on Redis, look at them, and give orders",
    "blueque-listener": "run the tasks of queues on Redis",
    "blueque-scheduler": "put scheduled tasks in line when they are due",
}
VERBATIM = "\b"  # click's mark of a paragraph whose lines stay as they are


def page(program: str, contexts: Sequence[click.Context]) -> str:
    """Return the manual page of a program. contexts: of its command and of those of its verbs."""
    first, *verbs = contexts
    others = [f"\\fB{escaped(name)}\\fR(1)" for name in ABOUT if name != program]
    lines = [
        f'.TH {escaped(program.upper())} 1 "" "Blueque {__version__}"',
        *(".nh", ".ad l"),  # no hyphen and no wide blank in a command
        *(".SH NAME", f"{escaped(program)} \\- {escaped(ABOUT[program])}"),
        *(".SH SYNOPSIS", usage(first), ".SH DESCRIPTION", *described(first)),
        *(".SH OPTIONS", *options(first)),
    ]
    if verbs:
        lines += [".PP", "All verbs have these options, too.", ".SH VERBS"]
    for verb in verbs:
        lines += [".SS", usage(verb), *described(verb), *options(verb)]
    lines.append('.SH "EXIT STATUS"')
    for code, meaning in EXIT_CODES.items():
        lines += [".TP", str(code), escaped(meaning)]
    return "\n".join([*lines, '.SH "SEE ALSO"', ", ".join(others), ""])


def usage(context: click.Context) -> str:
    pieces = context.command.collect_usage_pieces(context)
    return " ".join([f"\\fB{escaped(context.command_path)}\\fR", *map(escaped, pieces)])


def described(context: click.Context) -> Iterator[str]:
    """Yield the lines of the text of a command, and the verbs of a group."""
    for number, paragraph in enumerate(inspect.cleandoc(context.command.help or "").split("\n\n")):
        yield from [".PP"] if number else []
        lines = [escaped(line) for line in paragraph.splitlines() if line != VERBATIM]
        yield from [".nf", *lines, ".fi"] if paragraph.startswith(VERBATIM) else lines
    if isinstance(context.command, click.Group) and context.parent is not None:
        yield from (".PP", f"Verbs: {', '.join(context.command.list_commands(context))}")


def options(context: click.Context) -> Iterator[str]:
    """Yield the lines of the options of a command; of a verb, without those that each verb has."""
    for option in context.command.get_params(context):
        if not isinstance(option, click.Option) or (context.parent and not option.expose_value):
            continue
        if (record := option.get_help_record(context)) is not None:
            name, text = record
            yield from (
                ".TP",
                re.sub(r"(\\-[\w\\-]+)", r"\\fB\1\\fR", escaped(name)),
                escaped(text),
            )


def escaped(text: str) -> str:
    """Return text as roff prints it: no backslash, dash, dot or quote of it is a command."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{text}" if text.startswith((".", "'")) else text
