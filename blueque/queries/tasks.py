"""Read tasks from Redis, their small contents, and which exist."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from blueque.connection.redis import Redis, as_fields, as_hash
from blueque.errors import NoSuchGroup, NoSuchTask, RedisRefused
from blueque.model import keys
from blueque.model.group import MAKING, group_of
from blueque.model.parts import in_parts
from blueque.model.states import FINISHED
from blueque.model.task import Task
from blueque.text.format import size
from blueque.text.what import is_named

MOST_EACH, MOST_AT_ONCE = 16 << 10, 4 << 20  # bytes of texts that are read
TASKS_AT_ONCE = 1000
WHAT = "what"  # instead of a field: the parameters of a task without a name of its own
_ENCODINGS = {"parameters": "parameters_encoding", "result": "result_encoding"}


def load(redis: Redis, task_id: str, wait: Callable[..., Task] | None = None) -> Task:
    """Return a snapshot of a task. For an unknown id all attributes are None, as in 1.0.0.

    wait: the function that `Task.wait` of the snapshot calls.
    """
    (reply,) = redis.read(("HGETALL", keys.task(task_id)))
    return Task(task_id, as_hash(reply), wait)


def load_many(redis: Redis, ids: Sequence[str]) -> list[Task]:
    """Return snapshots of the existing ones of these tasks, in this order. One round trip."""
    replies = redis.read(*[("HGETALL", keys.task(task_id)) for task_id in ids])
    return [Task(one, as_hash(reply)) for one, reply in zip(ids, replies, strict=True) if reply]


def first_missing(redis: Redis, names: Sequence[str]) -> NoSuchTask | NoSuchGroup | None:
    """Return the error for the first name in conditions that cannot be waited for. One round trip.

    It is no task, no group, or an incomplete workflow. None: all can be waited for.
    """
    groups = [group_of(name) for name in names]
    found = redis.read(
        *[
            ("EXISTS", keys.task(name)) if group is None else ("HGET", keys.group(group), "state")
            for name, group in zip(names, groups, strict=True)
        ]
    )
    for name, group, state in zip(names, groups, found, strict=True):
        if not state or state == MAKING:
            return NoSuchTask(name) if group is None else NoSuchGroup(group, state == MAKING)
    return None


def first_existing(redis: Redis, ids: Sequence[str]) -> str | None:
    """Return the first of these ids that is in use; None: none is. One round trip."""
    exist = redis.read(*[("EXISTS", keys.task(task_id)) for task_id in ids])
    return next((task for task, exists in zip(ids, exist, strict=True) if exists), None)


def are_unused(redis: Redis, ids: Sequence[str], group: str | None = None) -> list[bool]:
    """Return for each id from a key whether a task may be made with it. One round trip.

    There is no such task, and the key of a deleted one no longer counts.
    group: in which the keys count; None: in the queue.
    """
    remembered = (
        ("MGET", *map(keys.key_kept, ids))
        if group is None
        else ("ZMSCORE", keys.members(group), *ids)
    )
    *exist, known = redis.read(*[("EXISTS", keys.task(task)) for task in ids], remembered)
    pairs = zip(exist, known, strict=True)
    return [not exists and was is None for exists, was in pairs]


def state_of(redis: Redis, group: str) -> str | None:
    """Return the state of a group; None: there is no group with this name."""
    state: str | None = redis.read(("HGET", keys.group(group), "state"))[0]
    return state


def ended_among(redis: Redis, ids: Sequence[str]) -> list[str]:
    """Return the ids whose tasks have ended. One round trip."""
    statuses = redis.read(*[("HGET", keys.task(task_id), "status") for task_id in ids])
    return [task for task, status in zip(ids, statuses, strict=True) if status in FINISHED]


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
    whole = (Task(task.id, task.fields | found.get(task.id, {})) for task in tasks)
    return [task.for_people() for task in whole]


def _fields(task: Task, names: Sequence[str]) -> list[str]:
    unnamed = [] if WHAT not in names or is_named(task) else ["parameters"]
    return [*dict.fromkeys([*unnamed, *(name for name in names if name != WHAT)])]


def _texts(redis: Redis, wanted: Sequence[tuple[str, str]]) -> list[tuple[str, dict[str, str]]]:
    """Return fields of tasks. A text that is too large is replaced by its size: (1.2 MiB)."""
    sizes = redis.read(*[("HSTRLEN", keys.task(task), name) for task, name in wanted])
    room, small, found = MOST_AT_ONCE, [], []
    for (task, name), length in zip(wanted, sizes, strict=True):
        if length > min(MOST_EACH, room):
            # This is not what the encoding in the task is about.
            coded = {_ENCODINGS[name]: ""} if name in _ENCODINGS else {}
            found.append((task, {name: f"({size(length)})", **coded}))
        elif length:
            room -= length
            small.append((task, name, _ENCODINGS.get(name, name)))
    asked = [("HMGET", keys.task(task), *names) for task, *names in small]
    for (task, *names), reply in zip(small, redis.read(*asked), strict=True):
        found.append((task, as_fields(names, reply)))
    return found
