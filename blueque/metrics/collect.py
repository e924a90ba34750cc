"""Collect the metrics of all queues; docs/monitoring.md, "Metrics", explains their names.

Counters are in Redis, so any number of exporters report the same. Six round trips for any number of
tasks; with schedules two more, and one for each 500 of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from prometheus_client.core import Metric

from blueque.connection.redis import Redis
from blueque.metrics import schedules
from blueque.metrics.families import Labels, Sample, family, histogram_samples
from blueque.metrics.queue_numbers import UNFINISHED, Queue, capped, numbers_of, totals_of
from blueque.queries import schedules as all_schedules
from blueque.queries.listeners import Node
from blueque.queries.overview import overview
from blueque.queries.statistics import Numbers
from blueque.queries.steps import in_step, of_each, read
from blueque.queries.task_log import printed
from blueque.version import __version__

MAX_QUEUES = 500  # that have metrics of their own

NODE_STATES = ("up", "draining", "paused", "silent", "unattended", "1.0.0", "dead", "gone")
_FINISHED = ("complete", "failed", "cancelled")


def collect(redis: Redis, max_queues: int = MAX_QUEUES) -> list[Metric]:
    """Return all metrics except those of the scrape. Raises RedisAway, RedisRefused.

    max_queues: how many queues, and how many schedules, have metrics of their own.
    """
    found = overview(redis)
    names, totals, signs = read(
        redis,
        in_step(
            all_schedules.names(),
            of_each({line.queue: totals_of(line.queue) for line in found.lines}),
            of_each({task.id: printed(task.id, task.attempt) for task in found.running}),
        ),
    )
    queues = numbers_of(found, totals, signs)
    return [
        *_of_queues(capped(queues, max_queues)),
        _of_nodes(found.nodes),
        *_of_groups(found.groups.unended, found.groups.bad),
        *schedules.families(redis, names, found.now, max_queues),
    ]


def about_scrape(seconds: float, is_up: bool) -> list[Metric]:
    """Return the metrics of the scrape itself. is_up: Redis answered."""
    return [
        family(
            "redis_up",
            "gauge",
            "Whether Redis answered; if not, there are no other numbers",
            [Sample({}, is_up)],
        ),
        family(
            "scrape_seconds",
            "gauge",
            "Time to read the numbers from Redis",
            [Sample({}, round(seconds, 6))],
        ),
        family(
            "build_info",
            "gauge",
            "The version of the exporter",
            [Sample({"version": __version__}, 1)],
        ),
    ]


def _of_queues(queues: Mapping[str, Queue]) -> Iterator[Metric]:
    yield family(
        "tasks",
        "gauge",
        "Number of tasks that have not ended",
        _of_states(queues, UNFINISHED, lambda queue: queue.counts),
    )
    finished = _of_states(queues, _FINISHED, lambda queue: queue.numbers.events)
    yield family("tasks_finished_total", "counter", "Number of tasks that have ended", finished)
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
    waited = "Time that tasks were in line, without the time until they were due"
    yield family("task_wait_seconds", "histogram", waited, waits)
    runs = [
        sample
        for queue, values in queues.items()
        for state in _FINISHED
        for sample in _durations({"queue": queue, "state": state}, values.numbers, state)
    ]
    yield family("task_run_seconds", "histogram", "Time that the last attempts of tasks ran", runs)


def _of_nodes(nodes: Sequence[Node]) -> Metric:
    states = [state for _, state in {(node.id, node.state) for node in nodes}]
    counted = [Sample({"state": state}, states.count(state)) for state in NODE_STATES]
    told = "Number of listeners; a listener of several queues counts once"
    return family("nodes", "gauge", told, counted)


def _of_groups(unended: int, bad: int) -> Iterator[Metric]:
    told = "Number of groups that have not ended"
    yield family("groups_unended", "gauge", told, [Sample({}, unended)])
    told = "Number of groups with tasks that failed or were cancelled"
    yield family("groups_bad", "gauge", told, [Sample({}, bad)])


_NUMBERS: list[tuple[str, str, str, Callable[[Queue], float | None]]] = [
    ("tasks_enqueued_total", "counter", "Number of enqueued tasks", lambda queue: queue.made),
    (
        "tasks_lost_total",
        "counter",
        "Number of attempts that were lost",
        lambda queue: queue.numbers.lost,
    ),
    (
        "tasks_adopted_total",
        "counter",
        "Number of times that another listener adopted a running task",
        lambda queue: queue.numbers.events.get("adopted", 0),
    ),
    (
        "tasks_runnable",
        "gauge",
        "Number of pending tasks that could start if listeners were free: not paused, not behind a "
        "full limit or lock, and needing no more than a listener has",
        lambda queue: queue.runnable,
    ),
    (
        "tasks_held",
        "gauge",
        "Number of tasks that cannot go on because a task of the queue failed or was cancelled",
        lambda queue: queue.held,
    ),
    (
        "oldest_pending_seconds",
        "gauge",
        "Time that the oldest of the next tasks in line has waited",
        lambda queue: queue.pending_for,
    ),
    (
        "oldest_overdue_seconds",
        "gauge",
        "Time that the oldest scheduled task has been overdue",
        lambda queue: queue.overdue_for,
    ),
    (
        "longest_running_seconds",
        "gauge",
        "Time that the oldest running task has run",
        lambda queue: queue.running_for,
    ),
    (
        "longest_silent_seconds",
        "gauge",
        "Time since a running task last reported progress or printed something",
        lambda queue: queue.silent_for,
    ),
    ("listeners", "gauge", "Number of live listeners", lambda queue: queue.listeners),
    (
        "slots",
        "gauge",
        "Number of listeners that take tasks, or have one",
        lambda queue: queue.slots,
    ),
    ("slots_busy", "gauge", "Number of listeners with a task", lambda queue: queue.busy),
    ("queue_paused", "gauge", "Whether the queue is paused", lambda queue: queue.is_paused),
    (
        "queue_max_pending",
        "gauge",
        "Maximum number of tasks in line, of a bounded queue",
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
