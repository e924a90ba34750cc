"""Beats of one listener in several queues."""

from __future__ import annotations

import time
from collections.abc import Sequence

from blueque.connection.redis import Redis
from blueque.errors import NotRegistered, RedisRefused
from blueque.listener.member import Member
from blueque.model.parts import in_parts
from blueque.protocol import many_queues
from blueque.protocol.membership import Standing, order_of

BEATS_AT_ONCE = 50  # queues in one transaction: a listener that comes to one disturbs it


def beat_at_once(
    redis: Redis, listeners: Sequence[Member], task_id: str | None, may_hold: bool
) -> Standing:
    """Beat in all queues, in one transaction for 50 of them. Raises NotRegistered for the first
    queue in which we are no longer registered.
    """
    now, standing, lost = time.time(), Standing(), list[Member]()
    for some in in_parts(listeners, BEATS_AT_ONCE):
        pulses = [listener.pulse() for listener in some]
        beaten, missing = many_queues.beat_all(redis, pulses, now, task_id, may_hold)
        for listener, pulse in zip(some, pulses, strict=True):
            if listener.queue in missing:
                lost.append(listener)
            else:
                listener.note_beaten(pulse.facts)
        standing = _joined(standing, beaten)
    if not lost:
        return standing
    error = NotRegistered(lost[0].node, lost[0].queue)
    for listener in lost:
        listener.lost(error)
    raise error


def beat_one_by_one(listeners: Sequence[Member], task_id: str | None) -> Standing:
    """Beat in each queue by itself: a key of one has a wrong type, and in the others we must not be
    taken for dead.
    """
    refusal: Exception | None = None
    standing = Standing()
    for listener in listeners:
        try:
            standing = _joined(standing, listener.beat(task_id))
        except NotRegistered as error:
            listener.lost(error)
            refusal = error
        except RedisRefused as error:
            refusal = refusal or error
    if refusal is not None:
        raise refusal
    return standing


def _joined(standing: Standing, beaten: Standing) -> Standing:
    """Return the later standing of our task, with what both say of our queues."""
    return beaten._replace(
        order=order_of((standing.order, beaten.order)),
        held=(*standing.held, *beaten.held),
        members={**standing.members, **beaten.members},
        settings={**standing.settings, **beaten.settings},
    )
