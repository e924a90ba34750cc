"""The option --title: what people read about a task."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from blueque.cli.options import Decorated


def label_options(command: Decorated) -> Decorated:
    """Add the option, as the parameter title of `Queue.enqueue`."""
    return click.option("--title", metavar="TEXT", help="What people read beside its id.")(command)
