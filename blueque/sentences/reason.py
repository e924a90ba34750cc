"""A reason why a task does not run."""

from __future__ import annotations

from typing import NamedTuple

MOST_NAMES = 3  # of tasks or listeners in one sentence


class Reason(NamedTuple):
    """A thing that keeps a task from running, or explains why it does not wait.

    code: the kind of the reason. command: what to do about it.
    free_in_seconds: when the first task that holds it up is estimated to end; None: unknown.
    """

    code: str
    sentence: str
    command: str | None = None
    free_in_seconds: float | None = None


def by(name: str | None) -> str:
    """Return ` by NAME`; empty if there is none."""
    return f" by {name}" if name else ""
