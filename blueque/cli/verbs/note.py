"""`blueque note`: add a line to the history of a task from a shell script. It needs no Redis."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

import click

from blueque.cli import printing
from blueque.cli.failure import USAGE, Failure
from blueque.spool.attempt import MAX_NOTES, Attempt
from blueque.text.format import one_line


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("words", nargs=-1, required=True, metavar="TEXT...")
def note(words: Sequence[str]) -> None:
    """Add a line to the history of the task that calls this.

    \b
    blueque note took the old model

    `blueque history` shows it. Text is cut to one line of 200 characters, and an attempt has at most 20 notes. In a
    task, errors and further notes are only reported on standard error.
    """
    directory = os.environ.get("BLUEQUE_TASK_DIR")
    if not directory:
        raise Failure(USAGE, "not inside a task: BLUEQUE_TASK_DIR is not set")
    text = one_line(" ".join(words))
    if not text:
        raise Failure(USAGE, "give a text")
    try:
        if not Attempt(directory, "").write_note(text, time.time()):
            printing.talk(f"an attempt has at most {MAX_NOTES} notes; this one is left out")
    except OSError as error:
        printing.talk(f"cannot write to {directory}: {error.strerror}")
