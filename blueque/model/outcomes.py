"""What a handler may raise to say what its end means: Fail, RetryLater, HandBack.

They are not BluequeErrors. Those are what Blueque says to a program; these are what a program says
to Blueque. A handler that catches the errors of its own calls of Blueque, with `except
BluequeError`, must not catch its verdicts with them.
"""

from __future__ import annotations

from blueque.model.encoding import require_number

# What Redis calls the type of such an error: names in Redis outlive those of our modules. See
# `retry.class_name`.
_MODULE = "blueque.model.outcomes"


class Fail(Exception):
    """The task has failed, and to run it again would not help: it is not retried, whatever its
    policy says.
    """

    error_type_module = _MODULE


class RetryLater(Exception):
    """The task cannot be done yet: run it again after so many seconds.

    That is no failure and is not counted as one. No policy is needed either: to raise it is the
    handler's consent.
    """

    error_type_module = _MODULE

    def __init__(self, seconds: float, message: str = "") -> None:
        self.seconds = require_number(seconds, "seconds")
        # both, or it could not be pickled on its way out of a child
        super().__init__(seconds, message)
        self.message = message

    def __str__(self) -> str:
        return self.message or f"to be run again in {self.seconds:g} s"


class HandBack(Exception):
    """The task was asked to stop, and gives itself back: it is the next in line again, at no cost,
    with its checkpoint.

    That is no failure and no interruption, and no policy is needed. If nobody had asked it to stop,
    as `task.should_stop` says, it is a failure like any other.
    """

    error_type_module = _MODULE
