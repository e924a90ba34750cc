"""`blueque stack`: show where a running Python task is in its code."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import click

from blueque.cli import printing
from blueque.cli.failure import REFUSED, TIMED_OUT, Failure
from blueque.cli.named_tasks import find_one
from blueque.cli.options import Invocation, text_options
from blueque.model.log_line import OURS, STACK
from blueque.queries import task_log
from blueque.sentences.stack import as_traceback

if TYPE_CHECKING:
    from blueque.client import Client
    from blueque.queries.task_log import Place

PATIENCE = 10.0  # seconds for its listener to answer
PACE, QUIET = 0.2, 1.5  # seconds between two looks; after the last line that is part of it


@click.command("stack")
@click.argument("prefix", metavar="ID")
@text_options
def stack(invocation: Invocation, prefix: str) -> None:
    """Show where the running task ID is in its code: the traceback of each of its threads.

    \b
    blueque stack 7c1f

    As in a Python traceback, the most recent call comes last. On the host of the task, source lines are shown for files
    that have not changed since it started. Blueque's own frames below the handler are left out.

    The task runs on. It must be a Python handler, not a program of --exec. It may run on any host. The full traceback
    is also written to its log. The exit code is 5 if the task does not run or is a program. It is 124 if its listener
    has not answered within 10 s.
    """
    client = invocation.client()
    task = client.get_task(find_one(client.get_inspector(), prefix))
    name = printing.short_id(task.id)
    if task.status == "started" and task.token is None:
        raise Failure(REFUSED, f"task {name} runs on a listener of 1.0.0, which cannot be asked")
    _, place = client.get_log(task.id)
    mark = os.urandom(8).hex()
    status = client.get_queue(task.queue or "").ask_stack(task.id, mark)
    if status != "started":
        raise Failure(
            REFUSED,
            f"task {name} does not run: it is {status}",
            f"To see what it printed: blueque logs {name}",
        )
    lines = _answer(client, place, mark)
    if isinstance(lines, str):
        raise Failure(REFUSED, f"task {name} cannot show its stack: {lines}")
    if lines is None:
        raise Failure(
            TIMED_OUT,
            f"the listener of task {name} ({task.node}) did not answer within {PATIENCE:g} s",
            "Is it silent, or of an older version? See: blueque status. A late answer is in: blueque logs",
        )
    if len(lines) == 1:
        raise Failure(
            TIMED_OUT, f"task {name} was asked but has shown nothing: it may have just ended"
        )
    for line in as_traceback(lines[1:], task):
        click.echo(printing.harmless(line))


def _answer(client: Client, place: Place, mark: str) -> list[str] | str | None:
    """Return the lines of the answer, from the mark on; a str: why there is none; None: too late."""
    found: list[str] = []
    head = f"{STACK} {mark}"
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        lines, (place,), *_ = task_log.follow(client.connections, [place])
        for line in lines:
            if line.stream == OURS and (found or line.text == head):
                found.append(line.text)
                deadline = time.monotonic() + QUIET
        if not found:
            its, _, reason = client.get_task(place.task).fields.get("stack", "").partition(" ")
            if its == mark and reason:
                return reason
        time.sleep(PACE)
    return found or None
