"""`blueque progress`: how a shell script that runs as a task tells how far it is. Redis is not
needed for that.
"""

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
    """In a task: tell how far it is.

    \b
    blueque progress 0.4
    blueque progress 450/1500 frames
    blueque progress waiting for a licence

    It is what a stall limit goes by, and what `blueque show` and `ls` show. A number must be one from 0 to its total, a
    percentage up to 100, or it is refused; of a text a line of 200 characters is kept. In a task nothing else makes it
    fail: what it cannot do, it says on standard error.
    """
    directory = os.environ.get("BLUEQUE_TASK_DIR")
    if not directory:
        raise Failure(USAGE, "this is no task: BLUEQUE_TASK_DIR is not set")
    line, new = one_line(" ".join(words)), f"{directory}/progress.{os.getpid()}"
    _require_progress(line)
    try:
        # A new file each time: who reads sees the old words or the new ones.
        with open(new, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(line)
        os.rename(new, f"{directory}/progress")
    except OSError as error:
        printing.talk(f"cannot write to {directory}: {error.strerror}")


def _require_progress(line: str) -> None:
    """Refuse a number that is none of progress. Words alone are one: what the task does, and not
    how far it is.
    """
    first = line.partition(" ")[0]
    if not first:
        raise Failure(USAGE, "there is nothing to tell")
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
            f"{first!r} is no progress: tell a number from 0 to its total, as 0.4, 41%, 450/1500 or 450",
        )
