"""What `blueque status` and the first page read, and the running tasks that both list."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, NamedTuple

from blueque.queries.listing import entered
from blueque.sentences.attention import stands_still
from blueque.sentences.pace import left_or_usual
from blueque.text.eta import Progress, read_progress
from blueque.text.what import what

if TYPE_CHECKING:
    from blueque.model.task import Task
    from blueque.queries.inspector import Inspector
    from blueque.queries.overview import Overview
    from blueque.text.redaction import Hide


class RunningTask(NamedTuple):
    """A running task as a row.

    what: its title, key or the beginning of its parameters. since: when it started. sign: when it
        last reported or printed; both in Unix seconds. left: how long it still takes, in words.
    is_unheard: its listener is not heard. is_still: there is no sign of it, or no progress for long.
    """

    task: Task
    what: str | None
    since: float | None
    progress: Progress
    left: str | None
    sign: float | None
    is_unheard: bool
    is_still: bool


def load(
    inspector: Inspector, queues: Collection[str] | None = None, most: int | None = None
) -> Overview:
    """Read an overview, with the contents of the first running tasks, which give their names.

    queues: the only ones to read. most: how many tasks; None: all.
    """
    return with_names(inspector, inspector.overview(queues), most)


def with_names(inspector: Inspector, seen: Overview, most: int | None = None) -> Overview:
    """Return an overview with the contents of its first running tasks."""
    number = len(seen.running) if most is None else most
    named = inspector.with_contents(seen.running[:number])
    return seen._replace(running=[*named, *seen.running[number:]])


def running_task(task: Task, seen: Overview, hide: Hide) -> RunningTask:
    """Return a running task of an overview as a row."""
    is_unheard = any(node.id == task.node and node.is_unheard for node in seen.nodes)
    signs = [at for at in (task.progress_at, seen.printed.get(task.id)) if at is not None]
    return RunningTask(
        task,
        what(task, hide),
        entered(task),
        read_progress(task.fields.get("progress", "")),
        left_or_usual(task, seen),
        max(signs, default=None),
        is_unheard,
        is_unheard or stands_still(task, seen.now),
    )
