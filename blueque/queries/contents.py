"""What tasks of a list contain, as far as it is small: parameters, results, errors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from blueque.connection.redis import as_fields
from blueque.errors import RedisRefused
from blueque.model import keys
from blueque.model.parts import in_parts
from blueque.model.task import Task
from blueque.text.format import size
from blueque.text.what import is_named

if TYPE_CHECKING:
    from blueque.connection.redis import Redis

MOST_EACH, MOST_AT_ONCE = 16 << 10, 4 << 20  # bytes of texts that are read
TASKS_AT_ONCE = 1000
WHAT = "what"  # instead of a field: the parameters of a task without a name of its own
_ENCODINGS = {"parameters": "parameters_encoding", "result": "result_encoding"}


def with_contents(redis: Redis, tasks: Sequence[Task], names: Sequence[str]) -> list[Task]:
    """See Inspector.with_contents."""
    wanted = [(task.id, name) for task in tasks for name in _fields(task, names)]
    found: dict[str, dict[str, str]] = {}
    for some in in_parts(wanted, TASKS_AT_ONCE):
        try:
            read = _texts(redis, some)
        except RedisRefused:  # this user has no right to ask
            break
        for task_id, fields in read:
            found.setdefault(task_id, {}).update(fields)
    return [Task(task.id, task.fields | found.get(task.id, {})) for task in tasks]


def _fields(task: Task, names: Sequence[str]) -> list[str]:
    unnamed = [] if WHAT not in names or is_named(task) else ["parameters"]
    return [*dict.fromkeys([*unnamed, *(name for name in names if name != WHAT)])]


def _texts(redis: Redis, wanted: Sequence[tuple[str, str]]) -> list[tuple[str, dict[str, str]]]:
    """Return fields of tasks. Instead of a text that is too large: (1.2 MiB)."""
    sizes = redis.read(*[("HSTRLEN", keys.task(task), name) for task, name in wanted])
    room, small, found = MOST_AT_ONCE, [], []
    for (task, name), length in zip(wanted, sizes, strict=True):
        if length > min(MOST_EACH, room):
            found.append((task, {name: f"({size(length)})"}))
        elif length:
            room -= length
            small.append((task, name, _ENCODINGS.get(name, name)))
    asked = [("HMGET", keys.task(task), *names) for task, *names in small]
    for (task, *names), reply in zip(small, redis.read(*asked), strict=True):
        found.append((task, as_fields(names, reply)))
    return found
