"""Write docs/commands.md, the reference of all commands, from their --help: `.venv/bin/python
docs/commands.py`.
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


if __name__ == "__main__":
    if sys.argv[1:] == ["--print"]:
        sys.stdout.write(page())
    else:
        PAGE.write_text(page())
