"""The costs of an order, in words: a person reads them before confirming."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from blueque.model.states import FINISHED, LOST
from blueque.text.format import count, span
from blueque.text.terminal import short_id

if TYPE_CHECKING:
    from blueque.model.task import Task


def sentence(words: str) -> str:
    """Return words of this module with a capital and a full stop."""
    return f"{words[:1].upper()}{words[1:]}."


def running_of(tasks: Iterable[Task]) -> list[Task]:
    """Return the tasks that run and were not told to end."""
    return [task for task in tasks if task.status == "started" and task.cancel is None]


def of_cancel(tasks: Sequence[Task], now: float) -> str:
    """Return what is lost if these tasks are cancelled: a sentence without capital and full stop."""
    running = running_of(tasks)
    if not running:
        return f"{count(len(tasks), 'task')} would be cancelled, none of which has started"
    work = sum(max(now - task.started, 0.0) for task in running if task.started is not None)
    which = f"task {short_id(tasks[0].id)} is"
    if len(tasks) > 1:
        which = f"{len(running):,} of {len(tasks):,} tasks {'is' if len(running) == 1 else 'are'}"
    return f"{which} running, and {span(work)} of work would be lost"


def of_requeue(tasks: Sequence[Task]) -> str:
    """Return what happens if these tasks are put in line again."""
    lost = [task for task in tasks if task.error_type in LOST and task.status == "failed"]
    also = f"; {len(lost):,} of them were lost, so old processes may still run" if lost else ""
    again = sum(bool(task.attempt or task.started) for task in tasks)
    if not again:
        return f"{count(len(tasks), 'task')} would be in line again, none of which has started"
    which = f", {again:,} of them" if again < len(tasks) else ""
    return f"{count(len(tasks), 'task')} would start{which} a second time{also}"


def cannot_run_again(gone: int, group: str) -> str:
    """Return the remark about failed or cancelled members of a group that are gone."""
    tasks, are, they = ("task", "is", "it") if gone == 1 else ("tasks", "are", "they")
    return f"{gone:,} failed or cancelled {tasks} of group {group} {are} archived or deleted: {they} cannot run again."


def of_interrupt(tasks: Sequence[Task]) -> str | None:
    """Return what happens if these tasks are interrupted; None: nothing that must be confirmed.

    tasks: with all fields.
    """
    single = unpolicied(tasks)
    if not single:
        return None
    which = f"task {short_id(tasks[0].id)} has"
    if len(tasks) > 1:
        which = f"{len(single):,} of {len(tasks):,} tasks {'has' if len(single) == 1 else 'have'}"
    return f"{which} no retry policy, and would start a second time"


def unpolicied(tasks: Iterable[Task]) -> list[Task]:
    """Return the running tasks without a retry policy that were not told to hand back."""
    running = [task for task in tasks if task.status == "started" and not task.is_interrupted]
    return [task for task in running if task.retry is None]


def of_delete(tasks: Sequence[Task], uncollected: Collection[str] = ()) -> str:
    """Return what is lost if these finished tasks are deleted.

    uncollected: the groups whose results are kept until they are collected.
    """
    found = Counter[str | None](task.status for task in tasks)
    states = ", ".join(f"{found[status]:,} {status}" for status in FINISHED if found[status])
    kept = sum(task.group in uncollected for task in tasks)
    also = f"; the results of {kept:,} have not been collected" if kept else ""
    return f"{of_prune(len(tasks))}: {states}{also}"


def of_prune(number: int) -> str:
    """Return what is lost if so many finished tasks are deleted."""
    return f"{count(number, 'task')} would be deleted for good, with results, errors and logs"
