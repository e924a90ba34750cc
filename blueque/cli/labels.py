"""The options --title, --tag and --context: what people read about a task, what they find it by, and
what it comes from.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from blueque.cli.values import Value
from blueque.errors import InvalidInput

if TYPE_CHECKING:
    from blueque.cli.options import Decorated


def label_options(command: Decorated) -> Decorated:
    """Add the options, as the parameters title, tags and context of `Queue.enqueue`."""
    context = click.option(
        "--context",
        type=Value("context", _read_context),
        metavar="JSON",
        help="An object for the handler, beside the parameters.",
    )
    title = click.option(
        "--title", metavar="TEXT", callback=_checked_title, help="What people read beside its id."
    )
    return title(
        tag_option("A tag to find it by, as customer:17; several times for several.")(
            context(command)
        )
    )


def _read_context(text: str) -> dict[str, Any]:
    """Return a context, written as a JSON object."""
    from blueque.model.labels import require_context  # here: --help does without
    from blueque.text.json_errors import NotJson, as_json

    try:
        found = as_json(text.encode("utf-8", "surrogateescape"))
        require_context(found)
    except NotJson as error:  # its message has the text, which may have secrets
        raise InvalidInput(f"not valid JSON ({error.__cause__})") from error
    except InvalidInput as error:
        raise InvalidInput(str(error).removeprefix("context: ")) from error
    return found


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


def _checked_title(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> str | None:
    if value is not None:
        from blueque.model.labels import require_title  # here: --help does without

        try:
            require_title(value)
        except InvalidInput as error:
            raise click.UsageError(f"--title: {str(error).removeprefix('title: ')}") from error
    return value
