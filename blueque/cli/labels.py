"""The options --title and --tag: what people read about a task, and what they find it by."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from blueque.errors import InvalidInput

if TYPE_CHECKING:
    from blueque.cli.options import Decorated


def label_options(command: Decorated) -> Decorated:
    """Add the options, as the parameters title and tags of `Queue.enqueue`."""
    title = click.option("--title", metavar="TEXT", help="What people read beside its id.")
    return title(
        tag_option("A tag to find it by, as customer:17; several times for several.")(command)
    )


def tag_option(help: str) -> Callable[[Decorated], Decorated]:
    """Add --tag, as the parameter `tags`."""
    return click.option("--tag", "tags", multiple=True, metavar="TAG", callback=_checked, help=help)


def _checked(
    context: click.Context, parameter: click.Parameter, value: tuple[str, ...]
) -> tuple[str, ...]:
    if value:
        from blueque.model.labels import require_tags  # here: --help does without

        try:
            require_tags(value)
        except InvalidInput as error:
            raise click.UsageError(f"--tag: {str(error).removeprefix('tags: ')}") from error
    return value
