"""What a handler raises, or returns, to choose its outcome: Fail, RetryLater, HandBack; Outcome.

The exceptions are not BluequeErrors: a handler that catches the errors of its own calls with `except
BluequeError` must not catch its own outcome with them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from blueque.model.encoding import require_number

# The name of these classes in Redis, which must not change with our modules. See
# `retry.class_name`.
_MODULE = "blueque.model.outcomes"


class Fail(Exception):
    """The task has failed for good: it is not retried, whatever its policy says."""

    error_type_module = _MODULE


class RetryLater(Exception):
    """The task cannot be done yet: run it again after so many seconds.

    That does not count as a failure, and the task needs no retry policy.
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
    """The task was asked to stop and hands itself back: it is the next in line again, with its
    checkpoint.

    That does not count as a failure or an interruption, and the task needs no retry policy. Without
    a request to stop (`task.should_stop`) it is a failure like any other.
    """

    error_type_module = _MODULE


class Outcome(ABC):
    """What a handler returns if it is more than a result: see `new.Then`.

    result: the result of the task.
    """

    result: Any

    @abstractmethod
    def records(self, task: str) -> Sequence[Sequence[Any]]:
        """Return what is written for the tasks that are made with the end, see `new_task.NewTask`.

        task: the id of the running task. Raises InvalidInput.
        """
