"""assert_enqueued: check which tasks the code under test has enqueued."""

from __future__ import annotations

from typing import Any

from blueque.client import Client
from blueque.model.task import Task
from blueque.queries.listing import STATUSES
from blueque.text.format import count

MOST = 10_000  # tasks of a queue that are read
_MOST_SHOWN = 10
ANY = object()


def assert_enqueued(
    client: Client,
    queue: str,
    parameters: Any = ANY,
    *,
    times: int | None = None,
    **attributes: Any,
) -> list[Task]:
    """Assert that the queue has a task with these parameters and attributes.

    Return all such tasks in any status, oldest first.
    parameters: as they come back from Redis: a tuple as a list. Default: any.
    times: exactly how many such tasks, 0 for none; None: at least one.
    attributes: of `blueque.Task`, such as key="42", priority=5, status="scheduled".
    Raises AssertionError, which shows the tasks of the queue; AttributeError for an unknown attribute.
    """
    listing = client.get_inspector().listing([queue], STATUSES, MOST)
    tasks = [client.get_task(task.id) for task in listing.tasks]
    tasks.sort(key=lambda task: task.created or 0.0)
    found = [
        task
        for task in tasks
        if (parameters is ANY or task.parameters == parameters)
        and all(getattr(task, name) == value for name, value in attributes.items())
    ]
    if len(found) == times or (times is None and found):
        return found
    wanted = [] if parameters is ANY else [f"parameters {parameters!r}"]
    wanted += [f"{name} {value!r}" for name, value in attributes.items()]
    like = f" with {' and '.join(wanted)}" if wanted else ""
    expected = "at least 1" if times is None else f"{times}"
    lines = [_line(task, [*attributes]) for task in tasks[:_MOST_SHOWN]]
    more = [f"  and {len(tasks) - _MOST_SHOWN} more"] if len(tasks) > _MOST_SHOWN else []
    has = f"it has {count(len(tasks), 'task')}{':' if tasks else ''}"
    raise AssertionError(
        "\n".join(
            [
                f"queue {queue!r}: {count(len(found), 'task')}{like}, not {expected}; {has}",
                *lines,
                *more,
            ]
        )
    )


def _line(task: Task, names: list[str]) -> str:
    others = "".join(f", {name} {getattr(task, name)!r}" for name in names if name != "status")
    return f"  {task.id}: {task.status}, parameters {task.parameters!r:.200}{others}"
