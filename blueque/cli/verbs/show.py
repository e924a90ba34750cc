"""`blueque show`: show one task in full."""

from __future__ import annotations

import time

import click

from blueque.cli import printing
from blueque.cli.fact_lines import print_fact
from blueque.cli.named_tasks import find_one
from blueque.cli.options import Invocation, reveal_option, shared_options
from blueque.documents.tasks import of_task
from blueque.sentences.facts import facts


@click.command()
@click.argument("prefix", metavar="ID")
@reveal_option
@shared_options
def show(invocation: Invocation, prefix: str, reveals: bool) -> None:
    """Show everything about the task ID.

    \b
    blueque show 7c1f

    ID may be the first 4 or more characters of an id, if only one task matches. An id that the producer chose must be
    complete. `blueque ls --key` shows the id of a task with a key.
    """
    inspector, hide = invocation.client().get_inspector(), invocation.hider(reveals)
    task = inspector.task(find_one(inspector, prefix))
    signs, others = inspector.signs(task, time.time()), inspector.dependencies(task)
    if invocation.as_json:
        printing.print_json("task", **of_task(task, signs, others, hide))
        return
    cause = inspector.cause(task)
    for label, value in facts(task, signs, invocation.is_utc, hide, others, cause):
        print_fact(label, value)
