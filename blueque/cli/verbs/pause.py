"""`blueque pause`: make listeners take nothing from a queue."""

from __future__ import annotations

from collections.abc import Sequence

import click

from blueque.cli import printing
from blueque.cli.options import Invocation, json_option, shared_options
from blueque.cli.queue_control import (
    print_control,
    queues_argument,
    queues_there_or_new,
    warn_of_1_0_0,
)


@click.command(short_help="Make listeners take nothing from a queue.")
@queues_argument
@click.option("--reason", metavar="TEXT", help="Why; status and why show it.")
@click.option("--by", metavar="NAME", help="Who pauses it; default USER@HOST.")
@json_option
@shared_options
def pause(
    invocation: Invocation,
    patterns: Sequence[str],
    reason: str | None,
    by: str | None,
    as_json: bool,
) -> None:
    """Make listeners take nothing from a queue until `blueque resume`. Running tasks run on.

    \b
    blueque pause video.encode --reason 'deploying 3.1'
    blueque pause 'render.*'

    Tasks can still be enqueued. You can pause a queue before its first task. If it is paused already, its reason and the
    name of the person stay. Listeners of 1.0.0 know no pause and go on.
    """
    client = invocation.client()
    inspector = client.get_inspector()
    names = queues_there_or_new(inspector, patterns)
    for name in names:
        is_new = client.get_queue(name).pause(by, reason)
        paused = inspector.queue_seen(name).settings.pause
        paused_by = (paused.by if paused is not None else None) or "an unknown user"
        if not as_json:
            already = "" if is_new else f" already, by {printing.clean(paused_by)}"
            click.echo(f"{printing.clean(name)}  paused{already}")
    warn_of_1_0_0(inspector, names)
    if as_json:
        print_control("pause", inspector, names)
