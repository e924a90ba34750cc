"""Describe which tasks hold up another one, and when they end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from blueque.model.states import HELD
from blueque.queries.listing import entered
from blueque.queries.why_facts import Inquiry
from blueque.sentences.pace import left_of, may_run
from blueque.sentences.reason import MOST_NAMES
from blueque.text.eta import roughly
from blueque.text.format import span
from blueque.text.redaction import reveal
from blueque.text.terminal import short_id, short_node
from blueque.text.what import is_named, what


def first_end(inquiry: Inquiry, ids: Iterable[str]) -> float | None:
    """Return in how many seconds the first of these tasks ends; None: unknown."""
    ends = [time_to_end(inquiry, task_id) for task_id in ids]
    return min((end for end in ends if end is not None), default=None)


def time_to_end(inquiry: Inquiry, task_id: str) -> float | None:
    """Return in how many seconds a task ends: by its progress, or as tasks of the queue usually do."""
    task = inquiry.tasks.get(task_id)
    if task is None or task.status != "started":
        return None
    listener = next((one for one in (*inquiry.nodes, *inquiry.others) if one.id == task.node), None)
    if not may_run(task, listener):
        return None
    left = left_of(task, inquiry.now)[0]
    if left is None and task.queue == inquiry.task.queue and task.started and inquiry.usual:
        middle = (inquiry.usual.low + inquiry.usual.high) / 2
        left = max(middle - (inquiry.now - task.started), 0.0)
    return left


def about(free: float | None, count: int) -> str:
    if free is None:
        return ""
    return f", in ~{roughly(free)}" if count == 1 else f", the first in ~{roughly(free)}"


def list_of(inquiry: Inquiry, ids: Sequence[str]) -> str:
    """Return `: A on N for 3 m, B on M for 1 h and 2 more`; empty if there are no ids."""
    names = [_of_one(inquiry, task_id) for task_id in sorted(ids)[:MOST_NAMES]]
    more = len(ids) - len(names)
    return f": {', '.join(names)}{f' and {more:,} more' if more > 0 else ''}" if names else ""


def _of_one(inquiry: Inquiry, task_id: str) -> str:
    task = inquiry.tasks.get(task_id)
    if task is None or task.status not in HELD:
        return f"{short_id(task_id)}, which no longer runs"
    since = entered(task)
    lasts = "" if since is None else f" for {span(max(inquiry.now - since, 0.0))}"
    other = f" of queue {task.queue}" if task.queue != inquiry.task.queue else ""
    name = f" ({what(task, reveal)})" if is_named(task) else ""
    return f"{short_id(task_id)}{name}{other} on {short_node(task.node or '?')}{lasts}"
