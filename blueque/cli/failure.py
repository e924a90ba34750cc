"""The exit codes of every program, and the exception that ends one with a sentence."""

from __future__ import annotations

import click

BUG = 1  # unexpected error
USAGE = 2  # wrong usage, ambiguous id
MISSING = 3  # no such task, queue, node
NOT_COMPLETE = 4  # an awaited task failed, was cancelled or lost
REFUSED = 5  # the object is not in a state that allows it
UNCONFIRMED = 6  # not confirmed: no terminal to ask on, or the answer was not yes
AWAY = 69  # Redis does not answer, or cannot serve now
ATTENTION = 75  # something needs attention, or try again
FORBIDDEN = 77  # password, ACL, read-only replica
CONFIGURATION = 78  # a mistake in the environment, the file or the server
TIMED_OUT = 124  # timeout, as of coreutils' timeout
INTERRUPTED = 130  # Ctrl-C
PIPE = 141  # the output was closed: SIGPIPE, as a shell reports it


class Failure(click.ClickException):
    """Ends the program: what happened, what to do about it (two lines at most), and the exit code."""

    def __init__(self, code: int, message: str, *advice: str) -> None:
        super().__init__(message)
        self.exit_code = code  # type: ignore[misc]  # newer click calls it a class variable
        self.advice = advice
