"""The exit codes of every program, and the exception that ends one with a sentence."""

from __future__ import annotations

import click

BUG = 1  # unexpected: please report
USAGE = 2  # wrong usage, ambiguous id
MISSING = 3  # no such task, queue, node
NOT_COMPLETE = 4  # what was waited for has failed, was cancelled, or lost
REFUSED = 5  # the object is not in a state that allows it
UNCONFIRMED = 6  # it needs a yes: there is no terminal to ask on, or the answer was no
AWAY = 69  # Redis does not answer, or cannot serve now
ATTENTION = 75  # works, but somebody should look, or try again
FORBIDDEN = 77  # password, ACL, read-only replica
CONFIGURATION = 78  # environment or server set up wrongly
TIMED_OUT = 124  # what was waited for has not come, as coreutils' timeout says it
INTERRUPTED = 130  # Ctrl-C
PIPE = 141  # nobody reads our output any more, as the shell counts SIGPIPE


class Failure(click.ClickException):
    """Ends the program: what happened, what to do about it (two lines at most), and the exit code."""

    def __init__(self, code: int, message: str, *advice: str) -> None:
        super().__init__(message)
        self.exit_code = code  # type: ignore[misc]  # newer click calls it a class variable
        self.advice = advice
