"""`blueque stack`: where a running Python task is just now."""

from __future__ import annotations

import os
import re
import time
from typing import TYPE_CHECKING

import click

from blueque.cli import show
from blueque.cli.failure import REFUSED, TIMED_OUT, Failure
from blueque.cli.logs import harmless
from blueque.cli.options import Invocation, pass_invocation, shared_options
from blueque.cli.tasks import find_one
from blueque.stack import WORDS

if TYPE_CHECKING:
    from blueque.client import Client
    from blueque.task_log import Place

PATIENCE = 10.0                                        # seconds for its listener to answer
PACE, QUIET = 0.2, 1.5                                 # seconds between two looks; after the last line that is part of it
# What faulthandler writes; all else is the task's.
_TRACE = re.compile(r'(Current t|T)hread 0x.*|  File ".*|  \.\.\.|  <.*|$')


@click.command("stack", short_help="Show where a running Python task is just now, in all its threads.")
@click.argument("prefix", metavar="ID")
@shared_options
@pass_invocation
def stack(invocation: Invocation, prefix: str) -> None:
    """Show where the running task ID is just now: the traceback of each of its threads.

    \b
    blueque stack 7c1f

    The task goes on and does not notice. It has to be a Python handler: of a program of --exec nothing is known. Its
    listener asks it, wherever that is; a traceback comes into the log of the task, too. The exit code is 5 when the task
    does not run or is a program, 124 when its listener has not answered within 10 s.
    """
    client = invocation.client()
    task = client.get_task(find_one(client.get_inspector(), prefix))
    name = show.short_id(task.id)
    if task.status == "started" and task.token is None:
        raise Failure(REFUSED, f"task {name} runs on a listener of 1.0.0, which cannot be asked")
    _, place = client.get_log(task.id)
    mark = os.urandom(8).hex()
    status = client.get_queue(task.queue or "").ask_stack(task.id, mark)
    if status != "started":
        raise Failure(REFUSED, f"task {name} does not run: it is {status}", f"What it printed: blueque logs {name}")
    lines = _answer(client, place, mark)
    if isinstance(lines, str):
        raise Failure(REFUSED, f"task {name} has none: {lines}")
    if lines is None:
        raise Failure(
            TIMED_OUT, f"the listener of task {name} ({task.node}) has not answered within {PATIENCE:g} s",
            "Is it silent, or of an older version? See: blueque status. An answer that comes later is in: blueque logs",
        )
    if len(lines) == 1:
        raise Failure(TIMED_OUT, f"task {name} was asked, and has shown nothing: it may have ended just then")
    for line in lines[1:]:
        click.echo(harmless(line))


def _answer(client: Client, place: Place, mark: str) -> list[str] | str | None:
    """Return the lines of the answer, the one with the mark first; or why there is none; None: none came in time."""
    found: list[str] = []
    head = f"{WORDS} {mark}"
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        lines, (place,), *_ = client.follow_logs([place])
        for line in lines:
            if line.stream == "stderr" and (_TRACE.fullmatch(line.text) if found else line.text == head):
                found.append(line.text)
                deadline = time.monotonic() + QUIET
        if not found:
            its, _, reason = client.get_task(place.task).fields.get("stack", "").partition(" ")
            if its == mark and reason:
                return reason
        time.sleep(PACE)
    return found or None
