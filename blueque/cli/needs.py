"""The options --priority, --resource and --lock: the needs of a task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from blueque.errors import InvalidInput
from blueque.model.lines import require_resources

if TYPE_CHECKING:
    from blueque.cli.options import Decorated


def needs_options(command: Decorated) -> Decorated:
    """Add the options, as the parameters priority, resources and lock; see `needs`."""
    options = [
        click.option(
            "--priority", type=int, default=0, metavar="N", help="-100 to 100; higher is first."
        ),
        click.option(
            "--resource",
            "resources",
            multiple=True,
            metavar="NAME=AMOUNT",
            help="A resource that it needs: gpu=1, memory=8GiB.",
        ),
        click.option(
            "--lock",
            metavar="NAME[=N]",
            help="Of the tasks with this lock, one runs at a time, or N.",
        ),
    ]
    for option in reversed(options):
        command = option(command)
    return command


def needs(resources: Sequence[str], lock: str | None) -> dict[str, Any]:
    """Return the arguments `resources` and `lock` of `Queue.enqueue`."""
    return {
        "resources": _amounts(resources) or None,
        "lock": _lock(lock) if lock is not None else None,
    }


def _amounts(words: Sequence[str]) -> dict[str, int | str]:
    amounts: dict[str, int | str] = {}
    for word in words:
        name, _, amount = word.partition("=")
        if not amount:
            raise click.UsageError(
                f"--resource {word!r}: write NAME=AMOUNT, as gpu=1 or memory=8GiB"
            )
        if name in amounts:
            raise click.UsageError(f"--resource {word!r}: {name} is named twice")
        amounts[name] = int(amount) if amount.isdecimal() else amount
        try:
            require_resources({name: amounts[name]})
        except InvalidInput as error:
            raise click.UsageError(f"--resource {word!r}: {error}") from error
    return amounts


def _lock(text: str) -> tuple[str, int]:
    name, sign, limit = text.rpartition("=")
    if not sign:
        return text, 1
    if not limit.isdecimal():
        raise click.UsageError(
            f"--lock {text!r}: {limit!r} is not a number: write NAME=N; write a lock whose name contains = as {text + '=1'!r}"
        )
    return name, int(limit)
