"""Room in bounded queues: check it before new tasks are put in line.

See docs/protocol/placement.md, "Room".
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress

from blueque.connection.redis import Redis
from blueque.errors import QueueFull, WrongQueue, WrongState
from blueque.model.queue_settings import DISCARDED
from blueque.producer.dependents import tell_of_end
from blueque.protocol import operator
from blueque.protocol.bulk import Batch
from blueque.protocol.cancelling import BLUEQUE
from blueque.protocol.parents import require_open
from blueque.queries import groups
from blueque.queries.line_order import oldest_pending
from blueque.queries.queues import Bound, bound_of
from blueque.queries.steps import of_each, read
from blueque.queries.tasks import are_unused

log = logging.getLogger("blueque")

DISCARDED_AT_ONCE = 500  # tasks that are looked up and discarded in one go
ASK_AGAIN = (
    10.0  # seconds after which a queue without a bound is asked again, as settings by listeners
)

Joining = Mapping[str, int]  # how many new tasks are to be put in line, by queue


def ask_for_room(
    redis: Redis,
    joining: Joining,
    only_new: Callable[[], Joining] | None = None,
    joined: Collection[str] = (),
) -> None:
    """Check that new tasks have room in their queues. If a queue discards its oldest tasks, make room.

    A queue without a bound is not checked again for ASK_AGAIN seconds: a check for each task would
    take a third of the time of `Queue.enqueue`.
    only_new: returns `joining` without existing tasks; called only if there is no room for all.
    joined: the groups that new tasks join. If one takes no tasks, nothing is discarded for them.
    Raises QueueFull, NoSuchGroup, WrongGroup.
    """
    now = time.monotonic()
    for queue in joining:
        if redis.unbounded_until.get(queue, 0.0) <= now:
            break
    else:  # the usual case: half a microsecond is a hundredth of an enqueue
        return
    while (full := _first_full(redis, joining, now)) is not None:
        if only_new is not None:
            joining, only_new = only_new(), None
            continue
        if full.excess is None:
            raise full
        _require_open(redis, joined)
        # A bound may be far below what is in line.
        if not _discard(redis, full.queue, min(full.excess, DISCARDED_AT_ONCE)):
            raise full


def only_new_of(redis: Redis, queue: str, ids: Sequence[str]) -> Callable[[], Joining]:
    """Return the `only_new` of tasks of one queue that join the line if their keys are new."""
    return lambda: {queue: sum(are_unused(redis, ids))}


def ask_for_room_of(redis: Redis, batch: Batch, group: str | None = None) -> None:
    """Check for room for many tasks of one queue; with keys, for the new ones.

    group: that they join, and in which their keys count. Raises as `ask_for_room`.
    """

    def only_new() -> Joining:
        found = are_unused(redis, [task.decode() for task in batch.ids], group)
        return batch.joins([number for number, is_new in enumerate(found) if is_new])

    joined = () if group is None else (group,)
    ask_for_room(redis, batch.joins(), only_new if batch.is_keyed else None, joined)


def _first_full(redis: Redis, joining: Joining, now: float) -> QueueFull | None:
    """Return why the tasks do not fit; None: they do.

    A queue that can discard nothing is named first, so that nothing is discarded in others in vain.
    """
    bounds = read(redis, of_each({queue: bound_of(queue) for queue in joining}))
    full = [
        QueueFull(queue, bound.most, bound.pending, joining[queue], bound.discards)
        for queue, bound in bounds.items()
        if bound.most is not None and joining[queue] and bound.pending + joining[queue] > bound.most
    ]
    _remember(redis, bounds, now)
    return min(full, key=lambda refusal: refusal.excess is not None, default=None)


def _remember(redis: Redis, bounds: Mapping[str, Bound], now: float) -> None:
    for queue, bound in bounds.items():
        redis.unbounded_until[queue] = now + ASK_AGAIN if bound.most is None else 0.0


def _require_open(redis: Redis, joined: Collection[str]) -> None:
    for group in joined:
        seen = groups.load(redis, group)
        record = {} if seen is None else seen.record
        require_open(group, record.get("state"), record.get("cancel"))


def _discard(redis: Redis, queue: str, count: int) -> int:
    """Cancel so many of the oldest pending tasks; return how many there were."""
    oldest = oldest_pending(redis, queue, count)
    for task in oldest:
        now = time.time()
        # A listener may have taken it, or a person has moved it: that makes room, too.
        with suppress(WrongState, WrongQueue):
            operator.cancel(redis, queue, task, BLUEQUE, DISCARDED, now, ("pending",))
            log.info("discard task=%s queue=%s: the queue is full", task, queue)
            tell_of_end(redis, task, now)
    return len(oldest)
