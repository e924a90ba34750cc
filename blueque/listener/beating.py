"""Beats of a listener in its queues."""

from __future__ import annotations

import time
from collections.abc import Sequence

from blueque.connection.redis import Redis
from blueque.errors import NotRegistered, RedisRefused
from blueque.listener.registration import Registration
from blueque.model.parts import in_parts
from blueque.model.wrong_types import all_or_each
from blueque.protocol import membership
from blueque.protocol.membership import BeatReply, order_of

BEATS_AT_ONCE = 50  # queues in one transaction: a listener that comes to one disturbs it


class Beat:
    """One beat in all queues of a listener.

    task: the id of the task that the listener watches, if there is one.
    may_hold: whether to read our own lists.
    refused: why Redis refused the beat, by the queue in which it has changed nothing.
    """

    def __init__(
        self, redis: Redis, task: str | None, may_hold: bool, obeys_settings: bool
    ) -> None:
        self._redis, self._task, self._may_hold = redis, task, may_hold
        self._obeys_settings = obeys_settings
        self._standing = BeatReply()
        self._lost: list[Registration] = []  # where we are no longer registered
        self.refused: dict[str, RedisRefused] = {}

    def beat(self, registrations: Sequence[Registration]) -> BeatReply:
        """Beat in all of these queues, in one transaction for 50 of them.

        Raises, after beating in the others, NotRegistered for the first queue in which we are no
        longer registered, or one of `refused`; a missing right comes first.
        """
        for some in in_parts(registrations, BEATS_AT_ONCE):
            # In a queue without such a key we must not be taken for dead.
            all_or_each(some, self._beat, self._note_refusal)
        for registration in self._lost:
            registration.instance = None
        if self._lost:
            raise NotRegistered(self._lost[0].node, self._lost[0].queue)
        if self.refused:
            # Without the right a listener may have to leave; a key of a wrong type costs its queue.
            raise min(self.refused.values(), key=lambda refusal: refusal.is_wrong_type)
        return self._standing

    def _beat(self, some: Sequence[Registration]) -> None:
        heartbeats = [each.heartbeat(self._obeys_settings) for each in some]
        beaten, missing = membership.beat(
            self._redis, heartbeats, time.time(), self._task, self._may_hold
        )
        for each, heartbeat in zip(some, heartbeats, strict=True):
            if each.queue in missing:
                self._lost.append(each)
            else:
                each.note_beaten(heartbeat.facts)
        self._standing = _joined(self._standing, beaten)

    def _note_refusal(self, registration: Registration, error: RedisRefused) -> None:
        self.refused[registration.queue] = error


def _joined(standing: BeatReply, beaten: BeatReply) -> BeatReply:
    """Return the later standing of our task, with what both replies say of our queues."""
    return beaten._replace(
        order=order_of((standing.order, beaten.order)),
        held=(*standing.held, *beaten.held),
        members={**standing.members, **beaten.members},
        settings={**standing.settings, **beaten.settings},
    )
