"""Show the progress of a task and its estimated remaining time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blueque.system import process
from blueque.text.eta import (
    Progress,
    bar,
    left_words,
    percent,
    read_progress,
    readable,
    roughly,
    seconds_left,
)
from blueque.text.terminal import is_terminal, terminal_width

if TYPE_CHECKING:
    from blueque.model.task import Task
    from blueque.queries.listeners import Node
    from blueque.queries.overview import Overview
    from blueque.queries.statistics import Usual

_BAR, _WIDE = 8, 100


def progress_cell(progress: Progress) -> str:
    """Return the share, on a wide terminal with a bar, and the other words."""
    if progress.share is None:
        return progress.text or "-"
    words = f"  {progress.text}" if progress.text else ""
    if not is_terminal():
        return f"{percent(progress.share)}{words}"
    shown = f" {bar(progress.share, _BAR)}" if terminal_width() >= _WIDE else ""
    return f"{percent(progress.share):>4}{shown}{words}"


def progress_words(task: Task) -> str | None:
    """Return the reported progress with its share: 450/1500 frames, 30 %."""
    told = task.fields.get("progress")
    return None if told is None else with_share(told)


def with_share(told: str) -> str:
    """Return a reported progress, safe for a terminal, with the share if it is not in the words."""
    words, seen = readable(told), read_progress(told)
    if seen.share is None or "%" in words:
        return words
    return f"{seen.text}, {percent(seen.share)}" if seen.text else percent(seen.share)


def left_or_usual(task: Task, seen: Overview) -> str | None:
    """Return the remaining time of a running task, or how long tasks of its queue usually run if it
    reports no share.

    None: neither is known.
    """
    node = next((node for node in seen.nodes if node.id == task.node), None)
    if (left := left_of(task, seen.now, node)[1]) is not None:
        return left
    has_share = read_progress(task.fields.get("progress", "")).share is not None
    return None if has_share else usual_of(seen.usual.get(task.queue or ""))


def usual_of(usual: Usual | None) -> str | None:
    """Return how long tasks of a queue usually run: usual 3 m - 5 m; None: unknown."""
    if usual is None:
        return None
    low, high = roughly(usual.low), roughly(usual.high)
    return f"usual {low}" if low == high else f"usual {low} - {high}"


def may_run(task: Task, listener: Node | None) -> bool:
    """Return whether nothing suggests that a started task has stopped.

    Its listener is heard, and its process is not gone from this host. listener: None: unknown.
    """
    is_gone = task.status == "started" and process.is_gone(task.pid or 0, task.fields)
    return not is_gone and not (listener is not None and listener.is_unheard)


def left_of(
    task: Task, now: float, listener: Node | None = None
) -> tuple[float | None, str | None]:
    """Return the estimated remaining time of a running task, in seconds and in words.

    None: unknown, as for a task that may no longer run. The first report of the attempt shows where
        it began, as after a checkpoint. Before there are two reports, only the first attempt of a
        task is assumed to have begun at zero.
    """
    share = read_progress(task.fields.get("progress", "")).share
    if not may_run(task, listener):
        return None, None
    if task.status != "started" or share is None or task.started is None:
        return None, None
    age, left = now - (task.progress_at or now), None
    if (first := _first_report(task)) is not None:
        before, at = first
        left = seconds_left(share, max(now - at, 0.0), age, before)
    if left is None and (task.attempt or 1) == 1:
        left = seconds_left(share, max(now - task.started, 0.0), age)
    return left, left_words(left)


def _first_report(task: Task) -> tuple[float, float] | None:
    """Return the share that this attempt reported first, and when; None: unknown."""
    at, _, words = (task.progress_first or "").partition(" ")
    share = read_progress(words).share
    try:
        return None if share is None else (share, float(at))
    except ValueError:  # a foreign client wrote it
        return None
