"""`blueque progress`: report the progress of a task from a shell script. It needs no Redis."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Sequence

import click

from blueque.cli import printing
from blueque.cli.failure import USAGE, Failure
from blueque.text.format import one_line

_NUMBER = r"([+-]?(?:\d+\.?\d*(?:e[+-]?\d+)?|\.\d+|nan|inf|infinity))"
_SHARE = re.compile(rf"{_NUMBER}[kMGTPE]?(?:/{_NUMBER}[kMGTPE]?)?(%?)", re.IGNORECASE)


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("words", nargs=-1, required=True, metavar="[DONE[/TOTAL]] [TEXT...]")
def progress(words: Sequence[str]) -> None:
    """Report the progress of the task that calls this.

    \b
    blueque progress 0.4
    blueque progress 450/1500 frames
    blueque progress waiting for a licence

    `blueque show` and `ls` show it, and a stall limit uses it. A number must be from 0 to its total, a percentage up
    to 100; other numbers are refused. Text is cut to one line of 200 characters. In a task, other errors are only
    printed on standard error.
    """
    directory = os.environ.get("BLUEQUE_TASK_DIR")
    if not directory:
        raise Failure(USAGE, "not inside a task: BLUEQUE_TASK_DIR is not set")
    line, new = one_line(" ".join(words)), f"{directory}/progress.{os.getpid()}"
    _require_progress(line)
    try:
        # A new file each time: a reader sees the old words or the new ones.
        with open(new, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(line)
        os.rename(new, f"{directory}/progress")
    except OSError as error:
        printing.talk(f"cannot write to {directory}: {error.strerror}")


def _require_progress(line: str) -> None:
    """Refuse a number that is not a progress value. Words alone are allowed."""
    first = line.partition(" ")[0]
    if not first:
        raise Failure(USAGE, "give a number or a text")
    said = _SHARE.fullmatch(first)
    if said is None:
        return
    done, total = float(said[1]), float(said[2] or 100)
    if (
        not 0 <= done < math.inf
        or not 0 <= total < math.inf
        or (total == 0 < done)
        or (said[3] and done > 100)
    ):
        raise Failure(
            USAGE,
            f"not a progress value: {first!r}. Give a number from 0 to its total, such as 0.4, 41%, 450/1500 or 450",
        )
