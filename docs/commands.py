"""Write docs/commands.md, the reference of all commands, from their --help: `.venv/bin/python
docs/commands.py`. With --print, print the page; with --count, print each command with its options.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import click

from blueque.cli import listener, main, scheduler

PAGE = Path(__file__).with_suffix(".md")
HEAD = """# Commands

What `--help` says of every command. `docs/commands.py` writes this page. For a guide by task see the [index](README.md).
"""
PROGRAMS = {
    "blueque": main.blueque,
    "blueque-listener": listener.command,
    "blueque-scheduler": scheduler.command,
}


def page() -> str:
    """Return the text of the page."""
    sections = (
        section for name, program in PROGRAMS.items() for section in describe(program, name, None)
    )
    return "\n".join([HEAD, *sections])


def describe(command: click.Command, name: str, parent: click.Context | None) -> Iterator[str]:
    """Yield the section of a command and those of its verbs."""
    settings = {**command.context_settings, "terminal_width": 80, "max_content_width": 80}
    with click.Context(command, info_name=name, parent=parent, **settings) as context:
        level = "##" if parent is None else "###"
        yield f"{level} {context.command_path}\n\n```text\n{command.get_help(context)}\n```\n"
        if isinstance(command, click.Group):
            for verb in command.list_commands(context):
                found = command.get_command(context, verb)
                if found is not None and not found.hidden:
                    yield from describe(found, verb, context)


def count() -> str:
    """Return a line for each command with its options, but for those that all commands have, and the sums."""
    found = {
        path: [option.opts[-1] for option in own_options(command)]
        for name, program in PROGRAMS.items()
        for path, command in commands(program, name)
    }
    lines = [f"{len(names):4}  {path}  {' '.join(names)}".rstrip() for path, names in found.items()]
    total = sum(map(len, found.values()))
    return "\n".join([*lines, f"{len(found)} commands, {total} options", ""])


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
    if sys.argv[1:] == ["--print"]:
        sys.stdout.write(page())
    elif sys.argv[1:] == ["--count"]:
        sys.stdout.write(count())
    else:
        PAGE.write_text(page())
