"""Ask before work is destroyed or started a second time, on the terminal; --yes answers before."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from typing import TextIO

import click

from blueque.cli import printing
from blueque.cli.failure import UNCONFIRMED, Failure
from blueque.sentences.consent import sentence

TERMINAL = "/dev/tty"
FEW = 20  # tasks; for more than that, their number has to be typed


def require_consent(
    is_given: bool,
    facts: str,
    question: str,
    details: Sequence[str] = (),
    number: int | None = None,
    has_ids: bool = False,
) -> None:
    """Continue only after a yes; any other answer, and no terminal to ask on, ends the program.

    facts: what would happen, a sentence without capital and full stop. details: more lines.
    number: of tasks that would be deleted for good; a large one must be typed.
    has_ids: standard input is the list of ids, not the answer.
    """
    if is_given:
        return
    with contextlib.ExitStack() as stack:
        answers = _answers(stack, has_ids)
        if answers is None:
            raise Failure(
                UNCONFIRMED,
                facts,
                "Nothing was done. There is no terminal to ask on: to go on, add --yes.",
            )
        for line in details:
            click.echo(line, err=True)
        printing.talk(sentence(facts))
        expected, how = ("y", "yes"), "y/N"
        if number is not None and number > FEW:
            expected, how = (str(number), f"{number:,}"), f"Type {number} to go on"
        click.echo(f"{question} [{how}] ", err=True, nl=False)
        answer = answers.readline()
    if not answer.endswith("\n"):  # Ctrl-D
        click.echo(err=True)
    if answer.strip().lower() not in expected:
        raise Failure(UNCONFIRMED, "nothing was done")


def _answers(stack: contextlib.ExitStack, has_ids: bool) -> TextIO | None:
    """Return the stream with the answer; None: there is no terminal."""
    if not sys.stderr.isatty():  # the question would not be seen
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
