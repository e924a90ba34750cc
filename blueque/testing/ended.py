"""Ended: how one attempt ended that a test ran."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple

from blueque.model.task_id import R_co
from blueque.spool.progress_file import Told


class Progress(NamedTuple):
    """One call of `task.progress`, as a listener would read it. done, total: None if unknown."""

    done: float | None
    total: float | None
    unit: str
    text: str

    def __str__(self) -> str:
        """The text that people see: 450/1500 frames encoding."""
        return str(Told(0, *self))


class Spawned(NamedTuple):
    """A task that the handler created, with `task.spawn` or as `blueque.Then`.

    options: the further fields of the task, as in Redis, such as `priority`.
    """

    id: str
    queue: str
    parameters: Any
    options: Mapping[str, Any]


@dataclass(frozen=True)
class Ended(Generic[R_co]):
    """How one attempt ended. R: the type of the result.

    outcome: `complete`; `failed`; `retried`: it runs again after `retry_in` seconds; `released`: it
        handed itself back.
    error, error_type: as `Task.error` and `Task.error_type`.
    exception: what the handler raised.
    progress: every call of `task.progress`.
    notes: every `task.note`.
    checkpoint, files: what the next attempt would find: the value, and the content of each file in
        `checkpoint_dir` by its path there.
    spawned: the tasks that it created; with `drain`, only those of `blueque.Then`.
    failures: how many attempts of the task failed and were retried.
    """

    id: str
    queue: str
    outcome: str
    value: Any = None
    error: str | None = None
    error_type: str | None = None
    exception: BaseException | None = field(default=None, repr=False)
    retry_in: float | None = None
    progress: Sequence[Progress] = ()
    checkpoint: Any = None
    files: Mapping[str, bytes] = field(default_factory=dict)
    spawned: Sequence[Spawned] = ()
    attempt: int = 1
    failures: int = 0
    notes: Sequence[str] = ()

    @property
    def result(self) -> R_co:
        """What the handler returned, as `Client.wait` would return it.

        A tuple is a list, unless the annotation of a `blueque.handler` says otherwise. If the task
        is not complete, raises what the handler raised, or AssertionError.
        """
        if self.outcome == "complete":
            value: R_co = self.value
            return value
        if self.exception is not None:
            raise self.exception
        raise AssertionError(f"the task is not complete but {self.outcome}: {self.error}")
