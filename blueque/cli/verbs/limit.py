"""`blueque limit`: set how many tasks of a queue may run at a time."""

from __future__ import annotations

import click

from blueque.cli import printing
from blueque.cli.options import Invocation, json_option, shared_options
from blueque.cli.printing import count
from blueque.cli.queue_control import (
    print_control,
    queues_there,
    queues_there_or_new,
    warn_of_1_0_0,
)
from blueque.cli.values import Value
from blueque.errors import InvalidInput


def _read_limit(text: str) -> int | None:
    if text == "none":
        return None
    if not text.isdecimal():
        raise InvalidInput(f"{text!r} is not a number of tasks: give a whole number, or none")
    return int(text)


@click.command(
    context_settings={"ignore_unknown_options": True},  # to refuse a negative number as such
    short_help="Set how many tasks of a queue may run at a time.",
)
@click.argument("pattern", metavar="QUEUE")
@click.argument("most", metavar="N|none", type=Value("number", _read_limit))
@click.option("--by", metavar="NAME", help="Who sets it; default USER@HOST.")
@json_option
@shared_options
def limit(
    invocation: Invocation, pattern: str, most: int | None, by: str | None, as_json: bool
) -> None:
    """Set how many tasks of a queue may run at a time, on all hosts together.

    \b
    blueque limit video.encode 8
    blueque limit video.encode none
    blueque limit 'render.*' 2

    A pattern limits each queue that it matches. You can limit a queue before its first task. Running tasks run on.
    Listeners of 1.0.0 know no limit, but their tasks count.
    """
    client = invocation.client()
    inspector = client.get_inspector()
    find = queues_there if most is None else queues_there_or_new
    names = find(inspector, [pattern])
    how_many = "no limit" if most is None else f"{count(most, 'task')} at a time"
    for name in names:
        client.get_queue(name).set_max_concurrency(most, by)
        taken = inspector.queue_seen(name).room.taken
        if not as_json:
            click.echo(
                f"{printing.clean(name)}  {how_many}, {taken} run{'s' if taken == 1 else ''} now"
            )
    warn_of_1_0_0(inspector, names)
    if as_json:
        print_control("limit", inspector, names)
