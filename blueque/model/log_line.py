"""A line of the log of a task, as Redis and the files of an attempt hold it."""

from __future__ import annotations

from typing import NamedTuple

LINES = 1000  # how many of the last lines of an attempt are kept
OURS = "blueque"  # the stream of a line that the task has not printed
STACK = "blueque: stack"  # begins a line above the stacks of a task; behind it is the mark


class Line(NamedTuple):
    """A line that a task has printed.

    number: from 1 in each attempt, in both streams together.
    at: when a listener read it, in Unix seconds; 0: not yet.
    is_head: it is one of the first lines, which are kept. encoding: of the text; None: it is plain.
    """

    number: int
    at: float
    stream: str
    text: str
    is_head: bool = False
    encoding: str | None = None
