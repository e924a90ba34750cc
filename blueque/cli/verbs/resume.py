"""`blueque resume`: make listeners take tasks from a paused queue again."""

from __future__ import annotations

from collections.abc import Sequence

import click

from blueque.cli import printing
from blueque.cli.options import Invocation, json_option, shared_options
from blueque.cli.queue_control import print_control, queues_argument, queues_there


@click.command(short_help="Make listeners take tasks from a queue again.")
@queues_argument
@click.option("--by", metavar="NAME", help="Who resumes it; default USER@HOST.")
@json_option
@shared_options
def resume(invocation: Invocation, patterns: Sequence[str], by: str | None, as_json: bool) -> None:
    """Make listeners take tasks from a queue again.

    \b
    blueque resume video.encode
    blueque resume 'render.*'
    """
    client = invocation.client()
    inspector = client.get_inspector()
    names = queues_there(inspector, patterns)
    for name in names:
        was_paused = client.get_queue(name).resume(by)
        if not as_json:
            click.echo(f"{printing.clean(name)}  {'resumed' if was_paused else 'was not paused'}")
    if as_json:
        print_control("resume", inspector, names)
