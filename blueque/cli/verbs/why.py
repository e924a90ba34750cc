"""`blueque why`: say why a task does not run."""

from __future__ import annotations

import click

from blueque.cli import printing
from blueque.cli.named_tasks import find_one
from blueque.cli.options import Invocation, shared_options
from blueque.documents.tasks import of_inquiry
from blueque.faces.why import load
from blueque.sentences import why as words
from blueque.sentences.start import about_start, seconds_to_start
from blueque.text.what import what


@click.command()
@click.argument("prefix", metavar="ID")
@shared_options
def why(invocation: Invocation, prefix: str) -> None:
    """Explain why the task ID does not run, and what you can do.

    \b
    blueque why 7c1f

    A task may wait for its time, other tasks, tasks before it, a listener, resources, a lock, the limit of its queue,
    or a paused queue. The answer describes this moment.

    With --json each reason also has a code.
    """
    inspector = invocation.client().get_inspector()
    task, has_handler = find_one(inspector, prefix), invocation.config.has_handler
    facts, found = load(inspector, task, has_handler, invocation.is_utc)
    name = what(facts.task, invocation.hider(False))
    if invocation.as_json:
        seconds = seconds_to_start(facts, found)
        printing.print_json("why", **of_inquiry(facts, found, seconds, invocation.hider(False)))
        return
    headline = f"{words.headline(facts, name)} {about_start(facts, found)}"
    printing.print_wrapped(printing.clean(headline.rstrip()))
    for number, reason in enumerate(found, 1):
        mark = f"  {number}. " if len(found) > 1 else "  "
        printing.print_wrapped(printing.clean(reason.sentence), mark)
        if reason.command is not None:
            command = printing.short_ids(printing.clean(reason.command))
            click.echo(f"{' ' * len(mark)}{printing.paint(command, '', bold=True)}")
