"""The exception that ends a program with a sentence, beside the exit codes."""

from __future__ import annotations

import click

from blueque.errors import (
    ATTENTION,
    AWAY,
    BUG,
    CONFIGURATION,
    FORBIDDEN,
    INTERRUPTED,
    MISSING,
    NOT_COMPLETE,
    PIPE,
    REFUSED,
    TIMED_OUT,
    UNCONFIRMED,
    USAGE,
)

__all__ = [
    "ATTENTION",
    "AWAY",
    "BUG",
    "CONFIGURATION",
    "FORBIDDEN",
    "INTERRUPTED",
    "MISSING",
    "NOT_COMPLETE",
    "PIPE",
    "REFUSED",
    "TIMED_OUT",
    "UNCONFIRMED",
    "USAGE",
    "Failure",
    "cannot_listen",
]


def cannot_listen(where: str, error: OSError) -> Failure:
    """Return what ends a program that cannot listen on an address."""
    sentence = f"cannot listen on {where}: {error.strerror or error}"
    return Failure(CONFIGURATION, sentence, "Choose another: --listen HOST:PORT")


class Failure(click.ClickException):
    """Ends the program: what happened, what to do about it (two lines at most), and the exit code."""

    def __init__(self, code: int, message: str, *advice: str) -> None:
        super().__init__(message)
        self.exit_code = code  # type: ignore[misc]  # newer click calls it a class variable
        self.advice = advice
