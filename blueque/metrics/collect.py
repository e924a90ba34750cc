"""Collect the metrics of all queues; docs/monitoring.md, "Metrics", explains their names.

Counters are in Redis, so any number of exporters report the same. Six round trips, whatever the
number of tasks; with schedules two more, and one for each 500 of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from prometheus_client.core import Metric

from blueque.connection.redis import Redis, as_hash
from blueque.metrics import schedules
from blueque.metrics.families import Labels, Sample, family, histogram_samples
from blueque.model import keys
from blueque.model.parts import grouped
from blueque.model.task import Task
from blueque.queries import schedules as all_schedules
from blueque.queries.listeners import Node
from blueque.queries.overview import overview
from blueque.queries.queue_overview import QueueOverview
from blueque.queries.statistics import Numbers, read_numbers, total
from blueque.queries.steps import in_step, of_each, read
from blueque.queries.task_log import printed
from blueque.version import __version__

if TYPE_CHECKING:
    from blueque.queries.steps import Reader

MAX_QUEUES = 500  # that have metrics of their own
OTHER = "other"  # the name of the sum of all others

NODE_STATES = ("up", "draining", "paused", "silent", "unattended", "1.0.0", "dead", "gone")
_LIVES = {"up", "draining", "paused", "unattended", "1.0.0"}
_UNFINISHED = ("blocked", "scheduled", "pending", "reserved", "started")
_FINISHED = ("complete", "failed", "cancelled")


class Queue(NamedTuple):
    """The numbers of a queue, or of several together. Ages are maxima in seconds; 0: none.

    made: tasks ever made in it. runnable: pending tasks that could start now. held: tasks that
    cannot go on because of its failed and cancelled tasks. slots: listeners that take tasks or have
    one.
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


def collect(redis: Redis, max_queues: int = MAX_QUEUES) -> list[Metric]:
    """Return all metrics but those of the scrape itself. Raises RedisAway, RedisRefused.

    max_queues: so many queues, and so many schedules, have metrics of their own.
    """
    found = overview(redis)
    names, totals, signs = read(
        redis,
        in_step(
            all_schedules.names(),
            of_each({line.queue: _totals(line.queue) for line in found.lines}),
            of_each({task.id: printed(task.id, task.attempt) for task in found.running}),
        ),
    )
    nodes, running = (
        grouped(found.nodes, lambda node: node.queue),
        grouped(found.running, lambda task: task.queue or ""),
    )
    queues = {
        line.queue: _queue(
            line,
            *totals[line.queue],
            nodes.get(line.queue, ()),
            running.get(line.queue, ()),
            signs,
            found.now,
        )
        for line in found.lines
    }
    return [
        *_families(_capped(queues, max_queues), found.nodes),
        family(
            "groups_unended",
            "gauge",
            "How many groups have not ended",
            [Sample({}, found.groups.unended)],
        ),
        family(
            "groups_bad",
            "gauge",
            "How many groups have tasks that failed or were cancelled",
            [Sample({}, found.groups.bad)],
        ),
        *schedules.families(redis, names, found.now, max_queues),
    ]


def _totals(queue: str) -> Reader[tuple[Sequence[str], int]]:
    """Read the counters of a queue, and how many tasks it has: one round trip."""
    # Atomically, or a counter could seem to go backwards.
    *_, (fields, count) = yield [
        ("MULTI",),
        ("HGETALL", keys.totals(queue)),
        ("ZCARD", keys.tasks(queue)),
        ("EXEC",),
    ]
    return fields, count


def about_scrape(seconds: float, is_up: bool) -> list[Metric]:
    """Return the metrics of the scrape itself. is_up: Redis answered."""
    return [
        family(
            "redis_up",
            "gauge",
            "Whether Redis answered; without it there are no other numbers",
            [Sample({}, is_up)],
        ),
        family(
            "scrape_seconds",
            "gauge",
            "How long it took to ask Redis",
            [Sample({}, round(seconds, 6))],
        ),
        family(
            "build_info",
            "gauge",
            "The version of the exporter",
            [Sample({"version": __version__}, 1)],
        ),
    ]


def _queue(
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
        counts={state: getattr(line.counts, state) for state in _UNFINISHED},
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


def _capped(queues: Mapping[str, Queue], most: int) -> dict[str, Queue]:
    """Return the first queues by name, and the others together: the same for every exporter."""
    names = sorted(queues)
    own = {name: queues[name] for name in names[:most]}
    rest = [queues[name] for name in names[most:]]
    if rest:
        own[OTHER] = _together([*rest, *([own[OTHER]] if OTHER in own else [])])
    return own


def _together(some: Sequence[Queue]) -> Queue:
    return Queue(
        counts={state: sum(queue.counts[state] for queue in some) for state in _UNFINISHED},
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


def _families(queues: Mapping[str, Queue], nodes: Sequence[Node]) -> Iterator[Metric]:
    yield family(
        "tasks",
        "gauge",
        "How many tasks have not ended",
        _of_states(queues, _UNFINISHED, lambda queue: queue.counts),
    )
    finished = _of_states(queues, _FINISHED, lambda queue: queue.numbers.events)
    yield family("tasks_finished_total", "counter", "How many tasks have ended", finished)
    for name, kind, told, number in _NUMBERS:
        yield family(
            name,
            kind,
            told,
            [
                Sample({"queue": queue}, round(value, 3))
                for queue, values in queues.items()
                if (value := number(values)) is not None
            ],
        )
    waits = [
        sample
        for queue, values in queues.items()
        for sample in _durations({"queue": queue}, values.numbers, "reserved")
    ]
    waited = "How long tasks were in line, without the time until they were due"
    yield family("task_wait_seconds", "histogram", waited, waits)
    runs = [
        sample
        for queue, values in queues.items()
        for state in _FINISHED
        for sample in _durations({"queue": queue, "state": state}, values.numbers, state)
    ]
    yield family("task_run_seconds", "histogram", "How long attempts ran that ended a task", runs)
    states = [state for _, state in {(node.id, node.state) for node in nodes}]
    counted = [Sample({"state": state}, states.count(state)) for state in NODE_STATES]
    yield family(
        "nodes", "gauge", "How many listeners there are, one of several queues once", counted
    )


_NUMBERS: list[tuple[str, str, str, Callable[[Queue], float | None]]] = [
    ("tasks_enqueued_total", "counter", "How many tasks were made", lambda queue: queue.made),
    (
        "tasks_lost_total",
        "counter",
        "How many attempts nobody was left to end",
        lambda queue: queue.numbers.lost,
    ),
    (
        "tasks_adopted_total",
        "counter",
        "How often another listener took over a running task",
        lambda queue: queue.numbers.events.get("adopted", 0),
    ),
    (
        "tasks_runnable",
        "gauge",
        "How many pending tasks could start now if listeners were free: not paused, not behind a "
        "full limit or lock, and needing no more than a listener has",
        lambda queue: queue.runnable,
    ),
    (
        "tasks_held",
        "gauge",
        "How many tasks cannot go on because a task of the queue has failed or was cancelled",
        lambda queue: queue.held,
    ),
    (
        "oldest_pending_seconds",
        "gauge",
        "How long the oldest of the next tasks in line has been waiting",
        lambda queue: queue.pending_for,
    ),
    (
        "oldest_overdue_seconds",
        "gauge",
        "For how long a scheduled task should have been in line",
        lambda queue: queue.overdue_for,
    ),
    (
        "longest_running_seconds",
        "gauge",
        "How long the oldest running task has run",
        lambda queue: queue.running_for,
    ),
    (
        "longest_silent_seconds",
        "gauge",
        "For how long a running task has told no progress and printed nothing",
        lambda queue: queue.silent_for,
    ),
    ("listeners", "gauge", "How many listeners live", lambda queue: queue.listeners),
    ("slots", "gauge", "How many listeners take tasks, or have one", lambda queue: queue.slots),
    ("slots_busy", "gauge", "How many listeners have a task", lambda queue: queue.busy),
    ("queue_paused", "gauge", "Whether the queue is paused", lambda queue: queue.is_paused),
    (
        "queue_max_pending",
        "gauge",
        "How many tasks may be in line, of a queue that is bounded",
        lambda queue: queue.max_pending,
    ),
]


def _of_states(
    queues: Mapping[str, Queue], states: Sequence[str], counts: Callable[[Queue], Mapping[str, int]]
) -> list[Sample]:
    return [
        Sample({"queue": queue, "state": state}, counts(values).get(state, 0))
        for queue, values in queues.items()
        for state in states
    ]


def _durations(labels: Labels, numbers: Numbers, event: str) -> list[Sample]:
    return histogram_samples(
        labels, numbers.buckets.get(event, {}), numbers.seconds.get(event, 0.0)
    )
