"""`blueque first`: make pending tasks the next of their line."""

from __future__ import annotations

from collections.abc import Sequence

import click

from blueque.cli.actions import act_on_waiting
from blueque.cli.options import Invocation, json_option, shared_options


@click.command()
@click.argument("ids", nargs=-1, required=True, metavar="ID... | -")
@json_option
@shared_options
def first(invocation: Invocation, ids: Sequence[str], as_json: bool) -> int:
    """Make pending tasks the next of those with the same priority and needs.

    \b
    blueque first 7c1f

    If you name several, the first one that you name goes first. ID may be the beginning of an id; - reads ids from standard
    input. The exit code is 5 if a task is not pending. A scheduled task is in no line yet; priority and move work on it.
    """
    return act_on_waiting(
        "first",
        invocation,
        ids,
        lambda queue, task: queue.put_first(task.id),
        "first in its line",
        as_json,
        is_backwards=True,
    )
