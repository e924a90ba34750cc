"""`blueque move`: move waiting tasks to another queue."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from blueque.cli import printing
from blueque.cli.actions import act_on_waiting, split_last
from blueque.cli.options import Invocation, json_option, shared_options

if TYPE_CHECKING:
    from blueque.model.task import Task
    from blueque.producer.queue import Queue


@click.command()
@click.argument("words", nargs=-1, metavar="ID...|- QUEUE")
@json_option
@shared_options
def move(invocation: Invocation, words: Sequence[str], as_json: bool) -> int:
    """Move waiting tasks to the end of their line in another queue.

    \b
    blueque move 7c1f video.fast

    They keep their priority and needs, and the time of a scheduled task. ID may be the beginning of an id; - reads ids
    from standard input. The exit code is 5 if a task does not wait.
    """
    ids, to = split_last(words, "ID and QUEUE: the task and its new queue")
    client = invocation.client()
    to = client.get_queue(to).name  # refuses what cannot be a name
    is_new = to not in client.get_inspector().queues()
    moved = []

    def move_one(queue: Queue, task: Task) -> None:
        queue.move(task.id, to)
        moved.append(task)

    code = act_on_waiting("move", invocation, ids, move_one, f"in {to}", as_json, queue=to)
    if is_new and moved:
        printing.talk(f"{to} is a new queue: no listener serves it yet.")
    return code
