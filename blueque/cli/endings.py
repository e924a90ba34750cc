"""Print how a task ended, and what continues after Ctrl-C."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from blueque.cli import printing
from blueque.cli.task_columns import name_of
from blueque.documents.contents import value_of

if TYPE_CHECKING:
    from blueque.model.task import Task

MOST_OF_RESULT = 240  # columns of the line that ends with a result, without a terminal


def tell_ending(task: Task, *, has_result: bool = False) -> None:
    """Print how a task ended; an error of several lines is indented.

    has_result: also show the beginning of the result in a line; blueque show has all of it.
    """
    first, *others = _ending(task).split("\n")
    printing.talk(_with_result(first, task) if has_result else first)
    for line in others:
        printing.talk(f"  {line}".rstrip())


def _with_result(ending: str, task: Task) -> str:
    """Add the result of a complete task, cut to one line. A result of None adds nothing."""
    task = task.for_people()
    if task.status != "complete" or task.result is None:
        return ending
    result = value_of(task, "result")
    text = result if isinstance(result, str) else json.dumps(result, ensure_ascii=False)
    before = f"{ending}: "
    room = printing.terminal_width() if sys.stderr.isatty() else MOST_OF_RESULT
    return before + printing.cut(printing.clean(text), room - printing.width(before))


def _ending(task: Task) -> str:
    began, ended = task.started, task.finished
    after = "" if began is None or ended is None else f" after {printing.span(ended - began)}"
    why = task.error if task.status == "failed" else None
    if (
        task.status == "failed"
        and task.error_type
        and not (why or "").removeprefix("the ").startswith(task.error_type.rpartition(".")[2])
    ):
        why = f"{task.error_type}: {why}" if why else task.error_type
    if task.status == "cancelled" and task.broken_by is not None:
        after = f" because of {name_of(task.broken_by)}"
    elif task.status == "cancelled":
        why = f"by {task.cancelled_by or 'unknown'}{f', {task.cancel_reason}' if task.cancel_reason else ''}"
    text = f"{printing.short_id(task.id)} {task.status}{after}{f': {why}' if why else ''}"
    if task.status == "cancelled" and task.broken_by is not None:
        text += f"\nSee: blueque why {printing.short_id(task.id)}"
    return text


def detached(ids: Sequence[str]) -> str:
    """Return the remark after Ctrl-C."""
    one, *others = map(printing.short_id, ids)
    if others:
        return f"No longer waiting; {len(ids):,} tasks go on, such as {one}: blueque show ID"
    return f"No longer waiting; the task goes on: blueque logs -f {one}; to end it: blueque cancel {one}"
