"""How a handler chooses its outcome: Fail, RetryLater and HandBack to raise, Outcome to return.

They are not BluequeErrors, so that `except BluequeError` in a handler does not catch them.
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
    """Fail the task for good: it is not retried, whatever its policy says."""

    error_type_module = _MODULE


class RetryLater(Exception):
    """Run the task again after this many seconds, because it cannot be done yet.

    This does not count as a failure, and the task needs no retry policy.
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
    """Hand the task back after a request to stop. It is next in line again, with its checkpoint.

    This does not count as a failure or an interruption, and the task needs no retry policy. Without
    a request to stop (`task.should_stop`) it is an ordinary failure.
    """

    error_type_module = _MODULE


class Outcome(ABC):
    """A return value of a handler that has more than a result, see `new.Then`.

    result: the result of the task.
    """

    result: Any

    @abstractmethod
    def records(self, task: str) -> Sequence[Sequence[Any]]:
        """Return what is written for the tasks that are made at the end, see `new_task.NewTask`.

        task: the id of the running task. Raises InvalidInput.
        """
