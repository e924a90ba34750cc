"""The beats of the listeners of many queues, for a judge that looks often.

It looks over its own connection with CLIENT TRACKING. No call waits on that connection, because
beats change all the time.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence, Set
from itertools import chain

from blueque.connection.redis import Connection, exchange, raise_refusal
from blueque.connection.tracking import Tracking
from blueque.model import keys
from blueque.model.parts import in_parts
from blueque.protocol.membership import ask_beats, ask_members, scores, write_nothing

AT_ONCE = 500  # queues in one write
TRUSTED = 60.0  # seconds until all is read again: a few changes are not reported, such as SWAPDB


class Beats:
    """Looks at queues as `protocol.observe` does, mostly with one command in place of three."""

    def __init__(self, connect: Callable[[], Connection]) -> None:
        self._tracking = Tracking(connect)
        self._members: dict[str, Set[str]] = {}  # by the key of the listeners of a queue
        self._unchanged: set[str] = set()  # keys of beats that are as they were at the last look
        self._known: set[str] = set()  # keys of beats that were read
        self._forget_at = -math.inf  # on the monotonic clock

    def observe(self, queues: Sequence[str]) -> list[tuple[dict[str, float], Set[str]]]:
        """See `membership.observe`. Raises RedisAway, RedisRefused."""
        try:
            return [self._observe(queue) for queue in queues]
        except BaseException:
            self.close()
            raise

    def with_listeners(self, queues: Sequence[str]) -> set[str]:
        """Return which queues have a listener, or a started task, which names one.

        One command for each 500 queues while none has. Raises RedisAway.
        """
        found: set[str] = set()
        try:
            for some in in_parts(queues, AT_ONCE):
                found |= self._with_listeners(some)
        except BaseException:
            self.close()
            raise
        return found

    def close(self) -> None:
        self._tracking.close()

    def _with_listeners(self, queues: Sequence[str]) -> set[str]:
        connection = self._open()
        names = [(keys.nodes(each), keys.listeners(each), keys.started(each)) for each in queues]
        (anything,) = exchange(connection, [("EXISTS", *chain.from_iterable(names))])
        if anything == 0:
            return set()
        # A queue that Redis refuses to tell of counts as found: its judge says so.
        replies = exchange(connection, [("EXISTS", *its) for its in names])
        return {queue for queue, count in zip(queues, replies, strict=True) if count}

    def _observe(self, queue: str) -> tuple[dict[str, float], Set[str]]:
        connection = self._open()
        nodes, listeners = keys.nodes(queue), keys.listeners(queue)
        # A beat since the last look has shown that Redis takes writes.
        is_writing = nodes in self._unchanged or nodes not in self._known
        members = self._members.get(listeners)
        commands = [write_nothing(queue)] * is_writing + [ask_beats(queue)]
        replies = exchange(connection, commands + [ask_members(queue)] * (members is None))
        raise_refusal(replies)
        self._known.add(nodes)
        self._unchanged.add(nodes)
        self._members[listeners] = found = set(replies[-1]) if members is None else members
        return scores(replies[1 if is_writing else 0]), found

    def _open(self) -> Connection:
        """Return the connection, and forget what has changed."""
        connection, is_new = self._tracking.open()
        changed = connection.take_invalidated() if self._tracking.is_tracking else None
        if is_new or changed is None or time.monotonic() >= self._forget_at:
            self._members.clear()
            self._known.clear()
            self._forget_at = time.monotonic() + TRUSTED
            return connection
        self._unchanged -= changed
        for key in changed:
            self._members.pop(key, None)
        return connection
