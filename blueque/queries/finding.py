"""Tasks found by the beginning of their ids."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING

from blueque.model import keys
from blueque.model.ids import begins_uuid, is_uuid
from blueque.model.parts import in_parts
from blueque.queries.listing import MAX_FOUND, MIN_PREFIX
from blueque.queries.steps import in_step, of_each, read
from blueque.queries.task_lists import unfinished

if TYPE_CHECKING:
    from blueque.connection.redis import Redis
    from blueque.queries.steps import Reader

NEXT = 100  # next tasks of each line that are read
MAX_IDS = 10_000  # ids of a queue's index that are read
MAX_ENDS = 1000  # ids at one end of a list that are read
QUEUES_AT_ONCE = 20  # searched in one round trip: their ids are all in memory


def find(redis: Redis, prefix: str) -> list[str]:
    """See Inspector.find."""
    exists, names = redis.read(("EXISTS", keys.task(prefix)), ("ZRANGE", keys.QUEUES, 0, -1))
    # "order-1" is a whole id: never "order-10", though it may be gone
    if exists or len(prefix) < MIN_PREFIX or not begins_uuid(prefix):
        return [prefix] if exists else []
    ids: set[str] = set()
    for some in in_parts(names, QUEUES_AT_ONCE):
        pages = read(redis, of_each({queue: _pages(queue) for queue in some})).values()
        ids.update(task for page in chain(*pages) for task in page if task.startswith(prefix))
    # The index and the lists may still name what 1.0.0 has deleted.
    candidates = sorted(filter(is_uuid, ids))[: 10 * MAX_FOUND]
    replies = redis.read(*[("EXISTS", keys.task(task_id)) for task_id in candidates])
    existing = [task_id for task_id, exists in zip(candidates, replies, strict=True) if exists]
    return existing[:MAX_FOUND]


def _pages(queue: str) -> Reader[list[Sequence[str]]]:
    """Read ids of tasks of a queue: two round trips."""
    found, pages = yield from in_step(
        unfinished(queue, ("pending",), lambda line, _: line.first(NEXT)), _ends(queue)
    )
    return [found.held, found.started, *found.lines.values(), *pages]


def _ends(queue: str) -> Reader[list[Sequence[str]]]:
    # The index first; then the lists: a task that 1.0.0 made is not in the index until we touch it.
    return (
        yield [
            ("ZREVRANGE", keys.tasks(queue), 0, MAX_IDS - 1),
            ("LRANGE", keys.pending(queue), -MAX_ENDS, -1),
            ("LRANGE", keys.pending(queue), 0, MAX_ENDS - 1),
            ("ZRANGE", keys.scheduled(queue), 0, MAX_ENDS - 1),
            ("ZRANGE", keys.blocked(queue), 0, MAX_ENDS - 1),
            ("LRANGE", keys.failed(queue), 0, MAX_ENDS - 1),
            ("LRANGE", keys.cancelled(queue), 0, MAX_ENDS - 1),
            ("LRANGE", keys.complete(queue), 0, MAX_ENDS - 1),
        ]
    )
