"""Describe where a running Python task is in its code, from the log lines that answer `ask_stack`."""

from __future__ import annotations

import linecache
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import dropwhile, takewhile
from typing import TYPE_CHECKING

from blueque.model.log_line import OURS, STACK

if TYPE_CHECKING:
    from blueque.model.task import Task
    from blueque.queries.task_log import LogLine

_FRAME = re.compile(r'  File "(.*)", line (\d+) in (.*)')
# The function that calls the handler. Below it are the frames of the listener that forked the task
# process.
_CALLER = re.compile(r'  File ".*/blueque/(\w+/)*(handlers|work)\.py", line \d+ in work')
# It calls a function with the decorator `blueque.handler` by this method.
_OF_DECORATOR = re.compile(r'  File ".*/blueque/(\w+/)*registered\.py", line \d+ in run')


def answer(lines: Iterable[LogLine], mark: str) -> list[LogLine]:
    """Return the lines of a log that answer the request with this mark, without their first line."""
    ours = (line for line in lines if line.stream == OURS)
    found = [*dropwhile(lambda line: line.text != f"{STACK} {mark}", ours)]
    return [*takewhile(lambda line: not line.text.startswith(STACK), found[1:])]


def as_traceback(lines: Sequence[str], task: Task | None = None) -> Iterator[str]:
    """Yield what faulthandler wrote about each thread, most recent call last, as in Python.

    task: whose source lines are shown, on its host; None: no file is read.
    """
    has_sources = task is not None and _is_here(task)
    thread: list[str] = []
    for line in [*lines, *([""] if lines and lines[-1] else [])]:
        if line.startswith("  "):
            thread.append(line)
            continue
        for frame in reversed(_of_the_handler(thread)):
            yield frame
            yield from _source(frame, task.started) if task and has_sources else ()
        thread.clear()
        yield line.replace("(most recent call first)", "(most recent call last)")


def _of_the_handler(frames: Sequence[str]) -> Sequence[str]:
    """Return the frames from the handler on; all frames of a thread without a handler."""
    found = [n for n, frame in enumerate(frames) if _CALLER.fullmatch(frame)]
    own = frames[: found[-1]] if found else frames
    return own[: -1 if own and _OF_DECORATOR.fullmatch(own[-1]) else None] or frames


def _is_here(task: Task) -> bool:
    """Return whether the task runs on this host."""
    return task.files is not None and os.path.isdir(task.files.partition(":")[2])


def _source(frame: str, started: float | None) -> Iterator[str]:
    """Yield the source line of a frame, unless the file has changed since the task started."""
    match = _FRAME.fullmatch(frame)
    if (
        match is None
        or started is None
        or not os.path.isfile(match[1])
        or os.path.getmtime(match[1]) > started
    ):
        return
    line = linecache.getline(match[1], int(match[2])).strip()
    if line:
        yield f"    {line}"
