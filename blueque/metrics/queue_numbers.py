"""The numbers of each queue, from which metrics are made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from blueque.connection.redis import as_hash
from blueque.model import keys
from blueque.model.parts import grouped
from blueque.model.task import Task
from blueque.queries.listeners import Node
from blueque.queries.queue_overview import QueueOverview
from blueque.queries.statistics import Numbers, read_numbers, total

if TYPE_CHECKING:
    from blueque.queries.overview import Overview
    from blueque.queries.steps import Reader

OTHER = "other"  # the name of the sum of all others
UNFINISHED = ("blocked", "scheduled", "pending", "reserved", "started")
_LIVES = {"up", "draining", "paused", "unattended", "1.0.0"}


class Queue(NamedTuple):
    """The numbers of a queue, or of several together. Ages are maxima in seconds; 0: none.

    made: tasks ever made in it. runnable: pending tasks that could start now. held: tasks that
        cannot run because of its failed and cancelled tasks. slots: listeners that take tasks or
        have one.
    """

    counts: Mapping[str, int]
    numbers: Numbers
    made: int
    runnable: int
    held: int
    pending_for: float
    overdue_for: float
    running_for: float
    silent_for: float
    listeners: int
    slots: int
    busy: int
    is_paused: bool
    max_pending: int | None


def numbers_of(
    found: Overview,
    totals: Mapping[str, tuple[Sequence[str], int]],
    printed: Mapping[str, float | None],
) -> dict[str, Queue]:
    """Return the numbers of each queue of an overview.

    totals: what `totals_of` has read, by queue. printed: when each running task last printed.
    """
    nodes = grouped(found.nodes, lambda node: node.queue)
    running = grouped(found.running, lambda task: task.queue or "")
    return {
        line.queue: _numbers(
            line,
            *totals[line.queue],
            nodes.get(line.queue, ()),
            running.get(line.queue, ()),
            printed,
            found.now,
        )
        for line in found.lines
    }


def totals_of(queue: str) -> Reader[tuple[Sequence[str], int]]:
    """Read the counters of a queue, and how many tasks it has: one round trip."""
    # Atomically, or a counter could seem to go backwards.
    *_, (fields, count) = yield [
        ("MULTI",),
        ("HGETALL", keys.totals(queue)),
        ("ZCARD", keys.tasks(queue)),
        ("EXEC",),
    ]
    return fields, count


def _numbers(
    line: QueueOverview,
    fields: Sequence[str],
    count: int,
    nodes: Sequence[Node],
    running: Sequence[Task],
    printed: Mapping[str, float | None],
    now: float,
) -> Queue:
    numbers = read_numbers(as_hash(fields))
    events = numbers.events
    begun = [task.started for task in running if task.started is not None]
    signs = [
        max((at for at in (task.started, task.progress_at, printed[task.id]) if at), default=now)
        for task in running
    ]
    living = [node for node in nodes if node.state in _LIVES]
    return Queue(
        counts={state: getattr(line.counts, state) for state in UNFINISHED},
        numbers=numbers,
        made=max(
            count + events.get("deleted", 0) + events.get("moved_away", 0) - events.get("moved", 0),
            0,
        ),
        runnable=line.waiting.runnable,
        held=sum(holder.held for holder in line.holders),
        pending_for=line.waiting.oldest_for or 0.0,
        overdue_for=line.due.overdue_for or 0.0,
        running_for=max([now - at for at in begun], default=0.0),
        silent_for=max([now - at for at in signs], default=0.0),
        listeners=len(living),
        slots=sum(node.state not in ("draining", "paused") or bool(node.held) for node in living),
        busy=sum(bool(node.held) for node in living),
        is_paused=line.settings.pause is not None,
        max_pending=line.settings.max_pending,
    )


def capped(queues: Mapping[str, Queue], most: int) -> dict[str, Queue]:
    """Return the first queues by name, and the others together. Every exporter returns the same."""
    names = sorted(queues)
    own = {name: queues[name] for name in names[:most]}
    rest = [queues[name] for name in names[most:]]
    if rest:
        own[OTHER] = _together([*rest, *([own[OTHER]] if OTHER in own else [])])
    return own


def _together(some: Sequence[Queue]) -> Queue:
    return Queue(
        counts={state: sum(queue.counts[state] for queue in some) for state in UNFINISHED},
        numbers=total(queue.numbers for queue in some),
        made=sum(queue.made for queue in some),
        runnable=sum(queue.runnable for queue in some),
        held=sum(queue.held for queue in some),
        pending_for=max(queue.pending_for for queue in some),
        overdue_for=max(queue.overdue_for for queue in some),
        running_for=max(queue.running_for for queue in some),
        silent_for=max(queue.silent_for for queue in some),
        listeners=sum(queue.listeners for queue in some),
        slots=sum(queue.slots for queue in some),
        busy=sum(queue.busy for queue in some),
        is_paused=any(queue.is_paused for queue in some),
        max_pending=None,
    )
