"""New tasks as they are stored: compressed or encrypted, if the settings of the client say so."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from blueque.connection.redis import Redis
from blueque.errors import InvalidInput
from blueque.model.encoding import is_sealed
from blueque.model.new_task import Fields, NewTask
from blueque.producer.room import ASK_AGAIN
from blueque.protocol.bulk import NewTasks
from blueque.queries.queues import legacy
from blueque.queries.steps import read

if TYPE_CHECKING:
    from blueque.model.payloads import Sealer


def store(redis: Redis, new: NewTask) -> NewTask:
    """Return a new task as it is stored.

    Raises InvalidInput if the keys cannot be read, or a 1.0.0 listener would take it for plain text.
    """
    sealer = _sealer(redis, new.queue)
    if sealer is None:
        return new
    sealed = sealer.new_task(new)
    if sealed != new:
        _require_readable(redis, new.queue)
    return sealed


def store_many(redis: Redis, queue: str, new: NewTasks, options: Fields) -> NewTasks:
    """Return many new tasks of a queue, whose ids are made, as they are stored. Raises InvalidInput.

    options: the fields that all have.
    """
    sealer = _sealer(redis, queue)
    if sealer is None:
        return new
    sealed = new.sealed_by(sealer, options)
    if any(is_sealed(encoding) for encoding, _ in sealed.sealed or ()):
        _require_readable(redis, queue)
    return sealed


def store_template(redis: Redis, schedule: str, new: NewTask) -> NewTask:
    """Return the template of a schedule as it is stored. Raises InvalidInput."""
    payloads = redis.settings.payloads
    return new if payloads is None else payloads.unasked(new, schedule)


def _sealer(redis: Redis, queue: str) -> Sealer | None:
    payloads = redis.settings.payloads
    return None if payloads is None else payloads.sealer(queue)


def _require_readable(redis: Redis, queue: str) -> None:
    now = time.monotonic()
    if redis.readable_until.get(queue, 0.0) > now:
        return
    if nodes := read(redis, legacy(queue)):
        raise InvalidInput(
            f"queue {queue!r} has a listener of 1.0.0, {nodes[0]}, which cannot read compressed or encrypted tasks: stop "
            "it, or have `queues` in [payloads] leave out the queue"
        )
    redis.readable_until[queue] = now + ASK_AGAIN
