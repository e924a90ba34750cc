"""A noun of the program, such as queue or host, with its verbs."""

from __future__ import annotations

from typing import Any

import click


class Noun(click.Group):
    """A command with verbs of its own. Alone, or with options only, it is its verb `ls`."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **{"subcommand_metavar": "[VERB] [ARGS]...", **options})

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        is_listing = not args or (args[0].startswith("-") and args[0] not in ctx.help_option_names)
        is_asked = ctx.resilient_parsing  # a shell asks what could come next
        return super().parse_args(ctx, ["ls", *args] if is_listing and not is_asked else args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if self.get_command(ctx, args[0]) is None:
            from blueque.cli.advice import of_verb  # here: only for a mistake

            ctx.fail(f"unknown verb {args[0]!r}.{of_verb(args, ctx)}")
        return super().resolve_command(ctx, args)
