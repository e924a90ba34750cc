"""Metrics: what a monitoring system wants to know of all queues, by names that docs/monitoring.md,
"Metrics", explains.

Counters are those in Redis, so any number of exporters tell the same. Six round trips, whatever the
number of tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

from blueque.connection.redis import Command, Redis, as_hash
from blueque.metrics.prometheus_text import Family, Labels, Sample, histogram_samples
from blueque.model import keys
from blueque.model.task import Task
from blueque.queries.listeners import Node
from blueque.queries.overview import Line, overview
from blueque.queries.statistics import Numbers, read_numbers, total
from blueque.queries.task_log import ask_printed, printed_at
from blueque.version import __version__

Owned = TypeVar("Owned", Node, Task)

MAX_QUEUES = 500  # that have numbers of their own
OTHER = "other"  # the name under which those of all the rest are told together

NODE_STATES = ("up", "draining", "paused", "silent", "unattended", "1.0.0", "dead", "gone")
_LIVES = {"up", "draining", "paused", "unattended", "1.0.0"}
_UNFINISHED = ("scheduled", "pending", "reserved", "started")
_FINISHED = ("complete", "failed", "cancelled")


class Queue(NamedTuple):
    """What is told of a queue, or of several together. Ages in seconds, the greatest each; 0: there
    is none.

    made: how many tasks were ever made in it. runnable: how many of the pending could start now.
    slots: its listeners that take tasks, or have one.
    """

    counts: Mapping[str, int]
    numbers: Numbers
    made: int
    runnable: int
    pending_for: float
    overdue_for: float
    running_for: float
    silent_for: float
    listeners: int
    slots: int
    busy: int
    is_paused: bool


def collect(redis: Redis, max_queues: int = MAX_QUEUES) -> list[Family]:
    """Return all metrics but those of the scrape itself. Raises RedisAway, RedisRefused."""
    its = overview(redis)
    totals: list[Command] = []
    for line in its.lines:  # in one piece, or a counter could seem to go backwards
        totals += [
            ("MULTI",),
            ("HGETALL", keys.totals(line.queue)),
            ("ZCARD", keys.tasks(line.queue)),
            ("EXEC",),
        ]
    printed: list[Command] = [ask_printed(task.id) for task in its.running]
    replies = redis.read(*totals, *printed) if totals else []
    signs = {
        task.id: printed_at(found, task.attempt)
        for task, found in zip(its.running, replies[len(totals) :], strict=True)
    }
    nodes, running = _by_queue(its.nodes), _by_queue(its.running)
    queues = {
        line.queue: _queue(
            line,
            fields,
            count,
            nodes.get(line.queue, ()),
            running.get(line.queue, ()),
            signs,
            its.now,
        )
        for line, (fields, count) in zip(its.lines, replies[3 : len(totals) : 4], strict=True)
    }
    return list(_families(_capped(queues, max_queues), its.nodes))


def about_scrape(seconds: float, is_up: bool) -> list[Family]:
    """Return the metrics of the scrape itself. is_up: Redis answered."""
    return [
        Family(
            "redis_up",
            "gauge",
            "Whether Redis answered; without it there are no other numbers",
            [Sample({}, is_up)],
        ),
        Family(
            "scrape_seconds",
            "gauge",
            "How long it took to ask Redis",
            [Sample({}, round(seconds, 6))],
        ),
        Family(
            "build_info",
            "gauge",
            "The version of the exporter",
            [Sample({"version": __version__}, 1)],
        ),
    ]


def _by_queue(things: Iterable[Owned]) -> dict[str, list[Owned]]:
    found: dict[str, list[Owned]] = {}
    for thing in things:
        found.setdefault(thing.queue or "", []).append(thing)
    return found


def _queue(
    line: Line,
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
        counts={state: getattr(line, state) for state in _UNFINISHED},
        numbers=numbers,
        made=max(
            count + events.get("deleted", 0) + events.get("moved_away", 0) - events.get("moved", 0),
            0,
        ),
        runnable=line.runnable,
        pending_for=line.oldest or 0.0,
        overdue_for=line.overdue_for or 0.0,
        running_for=max([now - at for at in begun], default=0.0),
        silent_for=max([now - at for at in signs], default=0.0),
        listeners=len(living),
        slots=sum(node.state not in ("draining", "paused") or bool(node.held) for node in living),
        busy=sum(bool(node.held) for node in living),
        is_paused=line.pause is not None,
    )


def _capped(queues: Mapping[str, Queue], most: int) -> dict[str, Queue]:
    """Return the first so many by name, and the others together: the same for every exporter."""
    names = sorted(queues)
    own = {name: queues[name] for name in names[:most]}
    rest = [queues[name] for name in names[most:]]
    if rest:
        own[OTHER] = _together([*rest, *([own[OTHER]] if OTHER in own else [])])
    return own


def _together(some: Sequence[Queue]) -> Queue:
    return Queue(
        counts={state: sum(its.counts[state] for its in some) for state in _UNFINISHED},
        numbers=total(its.numbers for its in some),
        made=sum(its.made for its in some),
        runnable=sum(its.runnable for its in some),
        pending_for=max(its.pending_for for its in some),
        overdue_for=max(its.overdue_for for its in some),
        running_for=max(its.running_for for its in some),
        silent_for=max(its.silent_for for its in some),
        listeners=sum(its.listeners for its in some),
        slots=sum(its.slots for its in some),
        busy=sum(its.busy for its in some),
        is_paused=any(its.is_paused for its in some),
    )


def _families(queues: Mapping[str, Queue], nodes: Sequence[Node]) -> Iterator[Family]:
    yield Family(
        "tasks",
        "gauge",
        "How many tasks have not ended",
        _of_states(queues, _UNFINISHED, lambda its: its.counts),
    )
    finished = _of_states(queues, _FINISHED, lambda its: its.numbers.events)
    yield Family("tasks_finished_total", "counter", "How many tasks have ended", finished)
    for name, kind, told, number in _NUMBERS:
        yield Family(
            name,
            kind,
            told,
            [Sample({"queue": queue}, round(number(its), 3)) for queue, its in queues.items()],
        )
    waits = [
        sample
        for queue, its in queues.items()
        for sample in _durations({"queue": queue}, its.numbers, "reserved")
    ]
    waited = "How long tasks were in line, without the time until they were due"
    yield Family("task_wait_seconds", "histogram", waited, waits)
    runs = [
        sample
        for queue, its in queues.items()
        for state in _FINISHED
        for sample in _durations({"queue": queue, "state": state}, its.numbers, state)
    ]
    yield Family("task_run_seconds", "histogram", "How long attempts ran that ended a task", runs)
    states = [state for _, state in {(node.id, node.state) for node in nodes}]
    counted = [Sample({"state": state}, states.count(state)) for state in NODE_STATES]
    yield Family(
        "nodes", "gauge", "How many listeners there are, one of several queues once", counted
    )


_NUMBERS: list[tuple[str, str, str, Callable[[Queue], float]]] = [
    ("tasks_enqueued_total", "counter", "How many tasks were made", lambda its: its.made),
    (
        "tasks_lost_total",
        "counter",
        "How many attempts nobody was left to end",
        lambda its: its.numbers.lost,
    ),
    (
        "tasks_adopted_total",
        "counter",
        "How often another listener took over a running task",
        lambda its: its.numbers.events.get("adopted", 0),
    ),
    (
        "tasks_runnable",
        "gauge",
        "How many pending tasks could start now if listeners were free: not paused, not behind a "
        "full limit or lock, and needing no more than a listener has",
        lambda its: its.runnable,
    ),
    (
        "oldest_pending_seconds",
        "gauge",
        "How long the oldest of the next tasks in line has been waiting",
        lambda its: its.pending_for,
    ),
    (
        "oldest_overdue_seconds",
        "gauge",
        "For how long a scheduled task should have been in line",
        lambda its: its.overdue_for,
    ),
    (
        "longest_running_seconds",
        "gauge",
        "How long the oldest running task has run",
        lambda its: its.running_for,
    ),
    (
        "longest_silent_seconds",
        "gauge",
        "For how long a running task has told no progress and printed nothing",
        lambda its: its.silent_for,
    ),
    ("listeners", "gauge", "How many listeners live", lambda its: its.listeners),
    ("slots", "gauge", "How many listeners take tasks, or have one", lambda its: its.slots),
    ("slots_busy", "gauge", "How many listeners have a task", lambda its: its.busy),
    ("queue_paused", "gauge", "Whether the queue is paused", lambda its: its.is_paused),
]


def _of_states(
    queues: Mapping[str, Queue], states: Sequence[str], counts: Callable[[Queue], Mapping[str, int]]
) -> list[Sample]:
    return [
        Sample({"queue": queue, "state": state}, counts(its).get(state, 0))
        for queue, its in queues.items()
        for state in states
    ]


def _durations(labels: Labels, numbers: Numbers, event: str) -> list[Sample]:
    return histogram_samples(
        labels, numbers.buckets.get(event, {}), numbers.seconds.get(event, 0.0)
    )
