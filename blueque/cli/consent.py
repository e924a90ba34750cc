"""Consent: what destroys work, or starts it a second time, wants a yes: asked for on the terminal, or said by --yes."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from blueque.cli import show
from blueque.cli.failure import UNCONFIRMED, Failure


def require_consent(is_given: bool, facts: str, question: str, details: Sequence[str] = ()) -> None:
    """Go on only with a yes; any other answer is a no. Without a terminal nobody is asked.

    facts: what is at stake, a sentence without capital and full stop. details: more lines, for the terminal.
    """
    if is_given:
        return
    # Both: a question that nobody sees would be waited on for ever.
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise Failure(UNCONFIRMED, facts, "Nothing was done. There is no terminal to ask on: add --yes if you mean it.")
    for line in details:
        click.echo(line, err=True)
    show.talk(f"{facts[0].upper()}{facts[1:]}.")
    click.echo(f"{question} [y/N] ", err=True, nl=False)
    answer = sys.stdin.readline()
    if not answer.endswith("\n"):                      # Ctrl-D
        click.echo(err=True)
    if answer.strip().lower() not in ("y", "yes"):
        raise Failure(UNCONFIRMED, "nothing was done")
