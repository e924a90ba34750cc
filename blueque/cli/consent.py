"""Consent: what destroys work, or starts it a second time, wants a yes: asked for on the terminal,
or said by --yes.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from typing import TextIO

import click

from blueque.cli import printing
from blueque.cli.failure import UNCONFIRMED, Failure

TERMINAL = "/dev/tty"
FEW = 20  # of which a yes is enough


def require_consent(
    is_given: bool,
    facts: str,
    question: str,
    details: Sequence[str] = (),
    number: int | None = None,
    has_ids: bool = False,
) -> None:
    """Go on only with a yes; any other answer is a no. Without a terminal nobody is asked.

    facts: what is at stake, a sentence without capital and full stop. details: more lines, for the
        terminal.
    number: of tasks that would be deleted for good; of more than a few it has to be typed.
    has_ids: standard input is not for answers, but the list of the ids.
    """
    if is_given:
        return
    with contextlib.ExitStack() as stack:
        answers = _answers(stack, has_ids)
        if answers is None:
            raise Failure(
                UNCONFIRMED,
                facts,
                "Nothing was done. There is no terminal to ask on: add --yes if you mean it.",
            )
        for line in details:
            click.echo(line, err=True)
        printing.talk(f"{facts[0].upper()}{facts[1:]}.")
        expected = (str(number),) if number is not None and number > FEW else ("y", "yes")
        how = f"Type {number} to say yes" if number is not None and number > FEW else "y/N"
        click.echo(f"{question} [{how}] ", err=True, nl=False)
        answer = answers.readline()
    if not answer.endswith("\n"):  # Ctrl-D
        click.echo(err=True)
    if answer.strip().lower() not in expected:
        raise Failure(UNCONFIRMED, "nothing was done")


def _answers(stack: contextlib.ExitStack, has_ids: bool) -> TextIO | None:
    """Return where a person answers; None: nobody is there."""
    if not sys.stderr.isatty():  # a question that nobody sees would be waited on for ever
        return None
    if sys.stdin.isatty():
        return sys.stdin
    if not has_ids:
        return None
    try:
        return stack.enter_context(
            os.fdopen(os.open(TERMINAL, os.O_RDONLY | os.O_NOCTTY), encoding="utf-8")
        )
    except OSError:
        return None
