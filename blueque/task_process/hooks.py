"""Hooks: methods of a user's class that run around each task, see `[listener] hooks` or
    BLUEQUE_HOOKS.

An exception of a hook is printed to the log of the task and changes nothing.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

from blueque.errors import InvalidInput
from blueque.model.encoding import decode
from blueque.spool.attempt import Attempt
from blueque.spool.outcome_record import Record
from blueque.task_process.handlers import Work
from blueque.task_process.running_task import RunningTask

BEFORE, AFTER = METHODS = ("before_start", "after_end")


class Ended(NamedTuple):
    """How an attempt has ended; the argument of `after_end`.

    status: complete, failed or handed_back. result: of a complete one, as the task has it.
    error, error_type: of the others, as in `blueque show`.
    """

    status: str
    result: Any = None
    error: str | None = None
    error_type: str | None = None

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Ended:
        """Return the end in an exit record."""
        if record["status"] == "complete":
            return cls("complete", decode(record["result"], record.get("result_encoding")))
        status = "handed_back" if record.get("handed_back") else "failed"
        return cls(status, None, record.get("error"), record.get("error_type"))


def load(name: str) -> Any:
    """Return a new object of the class that `package.module:Class` names.

    Raises InvalidInput, and whatever the import raises.
    """
    module, _, path = name.partition(":")
    found: Any = importlib.import_module(module)
    for part in path.split("."):
        if not hasattr(found, part):
            raise InvalidInput(f"{module} has no {path!r}")
        found = getattr(found, part)
    return found()


class Hooks:
    """The hooks of this process. At the first use, the class is imported and one object created."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._object: Any = None

    def call(self, method: str, *arguments: object) -> None:
        """Call a hook, if the class has it. Never raises."""
        try:
            if self._object is None:
                self._object = load(self._name)
            hook = getattr(self._object, method, None)
            if hook is not None:
                hook(*arguments)
        except BaseException as error:  # a hook that calls sys.exit does not end the task either
            _print(method, error)


@functools.cache
def hooks_of(name: str) -> Hooks:
    """Return the hooks of this process."""
    return Hooks(name)


def hooked(work: Work, name: str) -> Work:
    """Return the work with its hooks before and after it."""
    hooks = hooks_of(name)

    def prepare() -> None:
        hooks.call("")  # import them
        if work.prepare is not None:
            work.prepare()

    def run(task: RunningTask, attempt: Attempt) -> Record:
        hooks.call(BEFORE, task)
        return work.run(task, attempt)

    def after(task: RunningTask, record: Record) -> None:
        hooks.call(AFTER, task, Ended.of(record))

    return Work(run, None if work.prepare is None else prepare, after)


def _print(method: str, error: BaseException) -> None:
    import traceback  # here: most hooks raise nothing

    what = f"the hook {method}" if method else "the import of the hooks"
    try:
        lines = "".join(traceback.format_exception(error))
        print(f"{lines}-- blueque: {what} raised {type(error).__name__} --", file=sys.stderr)
    except Exception:  # the task has closed it, or the error cannot be shown
        pass
