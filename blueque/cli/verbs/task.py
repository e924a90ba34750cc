"""`blueque task`: the verbs of tasks."""

from __future__ import annotations

import importlib

import click

from blueque.cli.noun import Noun

# Each is a verb of `blueque` as well.
VERBS = (
    *("ls", "show", "why", "logs", "history", "graph", "stack"),
    *("cancel", "requeue", "interrupt", "delete", "move"),
)


class _Tasks(Noun):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        module = importlib.import_module(f"blueque.cli.verbs.{cmd_name}")
        command: click.Command = getattr(module, cmd_name)
        return command


@click.group(cls=_Tasks)
def task() -> None:
    """List, show and change tasks. Without a verb it is `blueque ls`.

    Each verb also works without the word task: blueque show 7c1f.
    """
