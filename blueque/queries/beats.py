"""The heartbeats of the listeners of many queues, for a judge that checks often."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from itertools import chain

from blueque.connection.redis import Connection, as_scores, raise_refusal
from blueque.connection.tracked import Tracked
from blueque.model import keys
from blueque.model.parts import in_parts
from blueque.protocol.membership import ask_beats, ask_members, write_nothing

QUEUES_AT_ONCE = 500  # queues in one write


class Beats:
    """Checks queues as `membership.observe` does, usually with one command instead of three."""

    def __init__(self, connect: Callable[[], Connection]) -> None:
        self._tracked = Tracked(connect)
        self._seen: dict[str, dict[str, float]] = {}  # the beats of each queue at the last look

    def observe(self, queues: Sequence[str]) -> list[tuple[dict[str, float], Set[str]]]:
        """See `membership.observe`. Raises RedisAway, RedisRefused."""
        return [self._observe(queue) for queue in queues]

    def with_listeners(self, queues: Sequence[str]) -> set[str]:
        """Return which queues have a listener, or a started task, which names one.

        One command for each 500 queues if there is none. Raises RedisAway.
        """
        found: set[str] = set()
        for some in in_parts(queues, QUEUES_AT_ONCE):
            names = [(keys.nodes(each), keys.listeners(each), keys.started(each)) for each in some]
            (anything,) = self._tracked.exchange(("EXISTS", *chain.from_iterable(names)))
            if anything != 0:
                # A queue that Redis refuses to tell of counts as found: its judge says so.
                replies = self._tracked.exchange(*[("EXISTS", *its) for its in names])
                found |= {queue for queue, count in zip(some, replies, strict=True) if count}
        return found

    def forget(self, queue: str) -> None:
        """Forget the observations of a queue."""
        self._seen.pop(queue, None)

    def close(self) -> None:
        self._tracked.close()

    def _observe(self, queue: str) -> tuple[dict[str, float], Set[str]]:
        replies = self._tracked.read(ask_beats(queue), ask_members(queue))
        raise_refusal(replies)
        beats, members = as_scores(replies[0]), set(replies[1])
        # A beat since the last look has shown that Redis takes writes.
        if self._seen.get(queue) in (None, beats):
            raise_refusal(self._tracked.exchange(write_nothing(queue)))
        self._seen[queue] = beats
        return beats, members
