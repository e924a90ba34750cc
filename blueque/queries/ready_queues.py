"""Knows which of some queues have work, and reads only those that have changed.

It reads over its own connection with CLIENT TRACKING: Redis reports when a key that was read has
changed, and until then the reply holds. Redis sends such reports before the reply to a later
command. So after one round trip every earlier change is known, by any client.

Without tracking (TLS through redis-py, a proxy, an ACL without +hello +client|tracking), or while
this connection fails, each look reads all queues, over the connection of the caller.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Sequence
from typing import Any

from blueque.connection.redis import Command, Connection, Redis, exchange, raise_refusal
from blueque.errors import RedisAway, RedisRefused
from blueque.model import keys
from blueque.queries.inspector import Inspector, ask_work, take_work, work_keys

log = logging.getLogger("blueque")

ROUNDS = 2  # of a look: what changes during the second is for the next look
AFTER_FAILURE = 10.0  # seconds until another connection is opened
AFTER_REFUSAL = 3600.0
# Seconds for which one connection is used. A firewall may silently drop an unused one; and
# a few changes are not reported, such as SWAPDB.
TRUSTED = 60.0


class ReadyQueues:
    """Which of the queues have tasks in line and are not paused.

    on_refusal: called for a queue that has a key of a wrong type. It counts as one without work.
    """

    def __init__(
        self,
        redis: Redis,
        queues: Sequence[str],
        on_refusal: Callable[[str, RedisRefused], object] = lambda queue, error: None,
    ) -> None:
        self._redis, self._queues, self._on_refusal = redis, queues, on_refusal
        self._inspector = Inspector(redis)
        self._queue_of = {key: queue for queue in queues for key in work_keys(queue)}
        self._connection: Connection | None = None
        self._ready: set[str] = set()
        self._changed: set[str] = set()
        self._open_at = self._renew_at = -math.inf  # on the monotonic clock
        self._has_logged = False

    def look(self) -> set[str]:
        """Return the queues that have work: one round trip, or two if one has changed meanwhile.

        Raises RedisAway, RedisRefused.
        """
        ready = self._reported()
        return self._inspector.with_work(self._queues) if ready is None else ready

    def has_only(self, queue: str) -> bool:
        """Tell whether this queue has work and no other has. False without a round trip if another
        had some at the last look, or if Redis reports nothing now.
        """
        return self._ready <= {queue} and self._reported() == {queue}

    def _reported(self) -> set[str] | None:
        """Return the queues that have work by what Redis reports; None: it reports nothing now."""
        try:
            connection = self._tracking()
            if connection is not None:
                return self._look(connection)
        except (RedisAway, RedisRefused) as error:
            log.debug("reading all queues: %s", error)
            self._close()
            self._open_at = time.monotonic() + AFTER_FAILURE
        except BaseException:
            self._close()
            raise
        return None

    def _tracking(self) -> Connection | None:
        """Return the connection of our own; None: there is none now."""
        now = time.monotonic()
        if now < self._open_at:
            return None
        if now > self._renew_at:
            self._close()
        connection = self._redis.tracking(self)
        if connection is None:
            if not self._has_logged:
                log.info("Redis does not report changes to this user: each choice reads all queues")
            self._has_logged, self._open_at = True, now + AFTER_REFUSAL
        elif connection is not self._connection:
            self._ready, self._changed = set(), set(self._queues)
            self._renew_at = now + TRUSTED
        self._connection = connection
        return connection

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def _look(self, connection: Connection) -> set[str]:
        for _ in range(ROUNDS):
            changed = connection.take_invalidated()
            if changed is None:
                self._changed = set(self._queues)
            else:
                self._changed |= {self._queue_of[key] for key in changed if key in self._queue_of}
            self._read(connection)
            if not connection.has_invalidated():
                break
        return set(self._ready)

    def _read(self, connection: Connection) -> None:
        """Read what has changed; nothing has: wait for an answer nevertheless, to know that."""
        queues = list(self._changed)
        commands: list[Command] = [command for queue in queues for command in ask_work(queue)]
        # A user may lack the right to PING, and a server that cannot save refuses it.
        replies = exchange(connection, commands or [("EXISTS", keys.pending(self._queues[0]))])
        if not commands:
            return
        if RedisRefused in map(type, replies):
            replies = self._without_wrong_types(queues, replies)
        raise_refusal(replies)
        self._ready -= self._changed
        self._ready |= take_work(queues, replies)
        self._changed = set()

    def _without_wrong_types(self, queues: Sequence[str], replies: Sequence[Any]) -> list[Any]:
        """Return the replies, for each queue that has such a key those of one without work."""
        taken, size = list(replies), len(replies) // max(len(queues), 1)
        for place, queue in enumerate(queues):
            own = slice(place * size, (place + 1) * size)
            for reply in replies[own]:
                if isinstance(reply, RedisRefused) and reply.code == "WRONGTYPE":
                    self._on_refusal(queue, reply)
                    taken[own] = [0] * size
                    break
        return taken
