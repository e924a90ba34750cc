"""How a task that has not started is cancelled: by a person, for its parent, or out of time."""

from __future__ import annotations

from blueque.connection.redis import Command, Redis
from blueque.model import keys
from blueque.protocol.events import Event, record_event
from blueque.protocol.fields import IDENTITY, OUTCOME, TaskFields, flat
from blueque.protocol.moves import enter, leave

BLUEQUE = "blueque"  # who has cancelled what no person has


def cancelled(
    redis: Redis,
    task: str,
    fields: TaskFields,
    now: float,
    reason: str | None,
    by: str = BLUEQUE,
    parent: str | None = None,
) -> list[Command]:
    """Return the commands that cancel a task.

    reason: why. by: who does it. parent: the parent that causes it, as named in its condition.
    """
    who = {"cancelled_by": by, "cancel_reason": reason or None, "broken_by": parent}
    ended = {"status": "cancelled", **who, "finished": now, "updated": now}
    known = {name: value for name, value in ended.items() if value is not None}
    event = Event("cancelled", by, now, {"reason": reason})
    return [
        *leave(task, fields),
        ("HDEL", keys.task(task), *OUTCOME, *IDENTITY, "cancel"),
        ("HSET", keys.task(task), *flat(known)),
        *enter(task, fields._replace(status="cancelled")),
        *record_event(redis, fields.queue_name, task, fields, event),
    ]
