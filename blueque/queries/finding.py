"""Tasks found by the beginning of their ids."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING

from blueque.model import keys
from blueque.model.ids import begins_uuid, is_uuid
from blueque.model.parts import in_parts
from blueque.queries.listeners import Members, ask_members, read_groups, read_held_and
from blueque.queries.listing import MAX_FOUND, MIN_PREFIX
from blueque.queries.waiting_lines import MAX_HEADS, ask_ids, ask_names

if TYPE_CHECKING:
    from blueque.connection.redis import Command, Redis

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
        ids |= _ids_starting(redis, prefix, some)
    # The index and the lists may still name what 1.0.0 has deleted.
    candidates = sorted(ids)[: 10 * MAX_FOUND]
    replies = redis.read(*[("EXISTS", keys.task(task_id)) for task_id in candidates])
    existing = [task_id for task_id, exists in zip(candidates, replies, strict=True) if exists]
    return existing[:MAX_FOUND]


def _ids_starting(redis: Redis, prefix: str, queues: Sequence[str]) -> set[str]:
    groups = [
        [*ask_members(queue), ask_names(queue, MAX_HEADS), *_ask_ids(queue)] for queue in queues
    ]
    replies = dict(zip(queues, read_groups(redis, groups), strict=True))
    members = {queue: Members(*reply[:3]) for queue, reply in replies.items()}
    names = {queue: reply[3] for queue, reply in replies.items()}
    held, started, next_ids = read_held_and(redis, members, ask_ids(names, MAX_HEADS))
    pages = chain(
        [held, started], next_ids, chain.from_iterable(reply[4:] for reply in replies.values())
    )
    found = (task_id for page in pages for task_id in page if task_id.startswith(prefix))
    return set(filter(is_uuid, found))


def _ask_ids(queue: str) -> list[Command]:
    # The index first; then the lists: a task that 1.0.0 made is not in the index until we touch it.
    return [
        ("ZREVRANGE", keys.tasks(queue), 0, MAX_IDS - 1),
        ("LRANGE", keys.pending(queue), -MAX_ENDS, -1),
        ("LRANGE", keys.pending(queue), 0, MAX_ENDS - 1),
        ("ZRANGE", keys.scheduled(queue), 0, MAX_ENDS - 1),
        ("ZRANGE", keys.blocked(queue), 0, MAX_ENDS - 1),
        ("LRANGE", keys.failed(queue), 0, MAX_ENDS - 1),
        ("LRANGE", keys.cancelled(queue), 0, MAX_ENDS - 1),
        ("LRANGE", keys.complete(queue), 0, MAX_ENDS - 1),
    ]
