"""Statistics of some tasks, from their fields. Redis counts only all tasks of a queue, whatever
their tags.
"""

from __future__ import annotations

from collections.abc import Iterable

from blueque.model import histogram
from blueque.model.encoding import day_of
from blueque.model.start_time import EXPIRED
from blueque.model.states import FINISHED
from blueque.model.task import Task
from blueque.protocol.events import waited
from blueque.queries.statistics import DAY, Numbers, Statistics, read_numbers, total


def of_tasks(tasks: Iterable[Task], days: int, now: float) -> list[Statistics]:
    """Return the numbers of the tasks that ended in the last `days` days, with today, by queue.

    Each task counts on the day of its end.
    """
    names = [day_of(now - ago * DAY) for ago in range(days - 1, -1, -1)]
    found: dict[str, dict[str, list[Numbers]]] = {}
    for task in tasks:
        day = day_of(task.finished or 0.0)
        if task.status in FINISHED and day in names:
            by_day = found.setdefault(task.queue or "", {name: [] for name in names})
            by_day[day].append(_numbers(task))
    return [
        Statistics(
            queue, sums := {day: total(its) for day, its in by_day.items()}, total(sums.values())
        )
        for queue, by_day in sorted(found.items())
    ]


def _numbers(task: Task) -> Numbers:
    """Return what the task adds to the numbers of its queue, as its events would."""
    fields = {str(task.status): "1", "retried": str(task.failures or 0)}
    if task.cancel_reason == EXPIRED:
        fields[EXPIRED] = "1"
    if task.status == "failed":
        fields[f"error:{task.error_type or 'error'}"] = "1"
    if task.started is not None:
        created, eta, queued = map(task.fields.get, ("created", "eta", "queued"))
        fields |= _durations("reserved", waited(created, eta, queued, task.started))
        ran = max((task.finished or task.started) - task.started, 0.0)
        fields |= _durations("complete", ran) if task.status == "complete" else {}
    return read_numbers(fields)


def _durations(event: str, took: float) -> dict[str, str]:
    return {
        f"{event}_{histogram.NAMES[histogram.bucket(took)]}": "1",
        f"{event}_seconds": str(took),
        f"{event}_squares": str(took * took),
    }
