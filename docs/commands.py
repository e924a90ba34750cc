"""Write docs/commands.md, the reference of all commands, and the manual pages of docs/man from --help:
`.venv/bin/python docs/commands.py`. With --print, print all that; with --count, print each command with
its options.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import click
import man

from blueque.cli import listener, main, scheduler
from blueque.settings.table import TABLES

FEW = 3  # commands that have an option in common
PAGE = Path(__file__).with_suffix(".md")
HEAD = """# Commands

What `--help` and `man blueque` say of every command; `docs/commands.py` writes this page. For a guide see the [index](README.md).
An option that several commands have, with the same meaning, is explained once, in the [last section](#options-of-several-commands).
All programs have `--redis-url`, `--config`, `--debug`, `--version` and `--help`.
"""
ID = "ID is the beginning of an id; - reads ids from standard input."
SETTINGS = "Settings, which [Configuration](configuration.md#all-settings) explains: {}.\n"
SHARED = "## Options of several commands\n\n```text\n{}\n```\n"
PROGRAMS = {
    "blueque": main.blueque,
    "blueque-listener": listener.command,
    "blueque-scheduler": scheduler.command,
}
TABLE_OF = {"blueque-listener": "listener", "blueque-scheduler": "scheduler", "blueque web": "web"}


def page() -> str:
    """Return the text of the page."""
    found = [each for name, program in PROGRAMS.items() for each in contexts(program, name, None)]
    shared = shared_records(found)
    explained = formatter()
    with explained.indentation():
        explained.write_dl([shared[name] for name in sorted(shared)])
    sections = [section(context, shared) for context in found]
    return "\n".join([HEAD, *sections, SHARED.format(explained.getvalue().rstrip())])


def shared_records(found: Sequence[click.Context]) -> dict[str, tuple[str, str]]:
    """Return what is said of the options that several commands have with the same meaning, by name.

    If a name has several meanings, only the most usual one is shared.
    """
    numbers = Counter(each for context in found for each in records(context).items())
    shared: dict[str, tuple[str, str]] = {}
    for (name, record), number in numbers.most_common():
        if number >= FEW and name not in shared:
            shared[name] = record
    return shared


def contexts(
    command: click.Command, name: str, parent: click.Context | None, seen: set[int] | None = None
) -> Iterator[click.Context]:
    """Yield the context of a command and those of its verbs, of each verb once."""
    seen = set() if seen is None else seen
    if id(command) in seen:
        return
    seen.add(id(command))
    settings = {**command.context_settings, "terminal_width": 80, "max_content_width": 80}
    context = click.Context(command, info_name=name, parent=parent, **settings)
    yield context
    if isinstance(command, click.Group):
        for verb in command.list_commands(context):
            found = command.get_command(context, verb)
            if found is not None and not found.hidden:
                yield from contexts(found, verb, context, seen)


def records(context: click.Context) -> dict[str, tuple[str, str]]:
    """Return what is said of each option of a command, but for those that all commands have."""
    found = {each.opts[-1]: each.get_help_record(context) for each in own_options(context.command)}
    return {name: record for name, record in found.items() if record is not None}


def section(context: click.Context, shared: Mapping[str, tuple[str, str]]) -> str:
    """Return the section of a command, which only names its settings and the shared options."""
    command, text = context.command, formatter()
    if table := TABLE_OF.get(context.command_path):
        return f"{heading(context)}\n\n{section_with_settings(context, table)}"
    command.format_help_text(context, text)
    if context.parent is None:
        click.Command.format_options(command, context, text)
        text.write_paragraph()
        text.write_text(ID)
    else:
        found = records(context)
        if own := [record for name, record in found.items() if shared.get(name) != record]:
            with text.section("Options"):
                text.write_dl(own)
        if names := [name for name, record in found.items() if shared.get(name) == record]:
            text.write_paragraph()
            text.write_text(f"Also: {', '.join(names)}")
    if isinstance(command, click.Group):
        text.write_paragraph()
        text.write_text(f"Verbs: {', '.join(command.list_commands(context))}")
    return f"{heading(context)}\n\n```text\n{body(text)}\n```\n"


def heading(context: click.Context) -> str:
    """Return the heading of a command, which is its usage; that it has options need not be said."""
    pieces = [one for one in context.command.collect_usage_pieces(context) if one != "[OPTIONS]"]
    level = "##" if context.parent is None else "###"
    return f"{level} `{' '.join([context.command_path, *pieces])}`"


def section_with_settings(context: click.Context, table: str) -> str:
    """Return what is said of a command whose options are mostly the settings of a table."""
    command, text = context.command, formatter()
    command.format_help_text(context, text)
    settings = {setting.flags[-1] for setting in TABLES[table]}
    found = records(context)
    if own := [record for name, record in found.items() if name not in settings]:
        with text.section("Options"):
            text.write_dl(own)
    names = ", ".join(f"`{record[0]}`" for name, record in found.items() if name in settings)
    return f"```text\n{body(text)}\n```\n\n{SETTINGS.format(names)}"


def body(text: click.HelpFormatter) -> str:
    return text.getvalue().strip("\n").rstrip()


def formatter() -> click.HelpFormatter:
    return click.HelpFormatter(width=80, max_width=80)


def count() -> str:
    """Return a line for each command with its options, and the sums.

    A command with two names, such as `ls` and `task ls`, counts once. A group of commands and the two daemons are
    no commands. The options that all commands have, such as --json and --utc, are not counted.
    """
    found = {
        path: [option.opts[-1] for option in own_options(command)]
        for name, program in PROGRAMS.items()
        for path, command in commands(program, name)
    }
    lines = [f"{len(names):4}  {path}  {' '.join(names)}".rstrip() for path, names in found.items()]
    total = sum(map(len, found.values()))
    daemons = len(found.keys() & PROGRAMS.keys())
    sums = f"{len(found) - daemons} commands and {daemons} daemons, {total} options"
    return "\n".join([*lines, sums, ""])


def commands(
    command: click.Command, path: str, seen: set[int] | None = None
) -> Iterator[tuple[str, click.Command]]:
    """Yield each command that is no group, once, by the first path that leads to it."""
    seen = set() if seen is None else seen
    if not isinstance(command, click.Group):
        if id(command) not in seen:
            yield path, command
        seen.add(id(command))
        return
    context = click.Context(command, info_name=path)
    for verb in command.list_commands(context):
        found = command.get_command(context, verb)
        if found is not None and not found.hidden:
            yield from commands(found, f"{path} {verb}", seen)


def own_options(command: click.Command) -> list[click.Option]:
    """Return the options of a command, but for those that all commands have."""
    return [one for one in command.params if isinstance(one, click.Option) and one.expose_value]


if __name__ == "__main__":
    pages = {PAGE: page()}
    for name, program in PROGRAMS.items():
        pages[man.DIRECTORY / f"{name}.1"] = man.page(name, [*contexts(program, name, None)])
    if sys.argv[1:] == ["--print"]:
        sys.stdout.writelines(pages.values())
    elif sys.argv[1:] == ["--count"]:
        sys.stdout.write(count())
    else:
        for path, text in pages.items():
            path.write_text(text)
