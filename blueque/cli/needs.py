"""The options --priority, --resource and --lock: the needs of a task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from blueque.cli.options import together
from blueque.errors import InvalidInput
from blueque.model.lines import read_lock, read_resources

# As the parameters priority, resources and lock; see `needs`.
needs_options = together(
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
        "--lock", metavar="NAME[=N]", help="Of the tasks with this lock, one runs at a time, or N."
    ),
)


def needs(resources: Sequence[str], lock: str | None) -> dict[str, Any]:
    """Return the arguments `resources` and `lock` of `Queue.enqueue`."""
    try:
        amounts = read_resources(resources)
    except InvalidInput as error:
        raise click.UsageError(f"--resource {error}") from error
    try:
        return {"resources": amounts or None, "lock": None if lock is None else read_lock(lock)}
    except InvalidInput as error:
        raise click.UsageError(f"--lock {error}") from error
