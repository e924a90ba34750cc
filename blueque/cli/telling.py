"""`blueque progress`: how a shell script that runs as a task tells how far it is. Redis is not needed for that."""

from __future__ import annotations

import os
from collections.abc import Sequence

import click

from blueque.cli import show
from blueque.cli.failure import USAGE, Failure


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("words", nargs=-1, required=True, metavar="[DONE[/TOTAL]] [TEXT...]")
def progress(words: Sequence[str]) -> None:
    """In a task: tell how far it is.

    \b
    blueque progress 0.4
    blueque progress 450/1500 frames
    blueque progress waiting for a licence

    It is what a stall limit goes by, and what `blueque show` and `ls` show. In a task it never fails: what it cannot do, it
    says on standard error.
    """
    directory = os.environ.get("BLUEQUE_TASK_DIR")
    if not directory:
        raise Failure(USAGE, "this is no task: BLUEQUE_TASK_DIR is not set")
    line, new = " ".join(" ".join(words).split()), f"{directory}/progress.{os.getpid()}"
    try:
        # A new file each time: who reads sees the old words or the new ones.
        with open(new, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(line)
        os.rename(new, f"{directory}/progress")
    except OSError as error:
        show.talk(f"cannot write to {directory}: {error.strerror}")
