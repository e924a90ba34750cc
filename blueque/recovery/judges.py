"""Recoveries: one judge for several queues. It looks at all of them at once, as often as any of
them needs it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from blueque import protocol
from blueque.connection.redis import Redis
from blueque.errors import RedisRefused
from blueque.model.task import Task
from blueque.queries.inspector import Inspector
from blueque.recovery.judge import Recovery

log = logging.getLogger("blueque")


class Recoveries:
    """The judges of the listeners of some queues.

    redis: without patience, see Recovery.
    """

    def __init__(self, redis: Redis, queues: Sequence[str]) -> None:
        self._redis, self._inspector = redis, Inspector(redis)
        self._judges = {queue: Recovery(redis, queue) for queue in queues}
        # queues that Redis would not show us, and that we have named
        self._refused: set[str] = set()
        self._is_at_once = True  # whether all can be looked at together

    def own(self, queue: str, node: str) -> None:
        """Know the listener on whose behalf we judge: its own registration is not judged."""
        self._judges[queue].own_node = node

    @property
    def rest(self) -> float:
        """For how many seconds there is nothing to do after a look."""
        return min(judge.rest for judge in self._judges.values())

    def step(self) -> list[Task]:
        """Do what `Recovery.step` does, for all queues: three round trips while nothing happens,
        mostly one.
        """
        if len(self._judges) == 1:
            (judge,) = self._judges.values()
            return judge.step()
        if self._is_at_once:
            try:
                return self._look_at_all()
            except RedisRefused as error:
                if error.code != "WRONGTYPE":
                    raise
        return self._look_one_by_one()

    def _look_at_all(self) -> list[Task]:
        judges = list(self._judges.values())
        for judge in judges:
            judge.begin()
        observed = protocol.observe_all(self._redis, list(self._judges))
        now = time.monotonic()
        for judge, (beats, members) in zip(judges, observed, strict=True):
            judge.take_notice(beats, members, now)
        late = [judge for judge in judges if judge.looks_at_started(now)]
        found = self._inspector.nodes_of_started([judge.queue for judge in late]) if late else []
        for judge, nodes in zip(late, found, strict=True):
            judge.take_notice_of_started(nodes, now)
        unread = [listener for judge in judges for listener in judge.unread()]
        registrations = dict(zip(unread, self._inspector.registrations(unread), strict=True))
        for judge in judges:
            judge.take_registrations(registrations)
        return [task for judge in judges for task in judge.judge(now)]

    def _look_one_by_one(self) -> list[Task]:
        """Look at each queue by itself: a key of one is not what it should be, and the others are
        not to blame.
        """
        orphans: list[Task] = []
        self._is_at_once = True
        for queue, judge in self._judges.items():
            try:
                orphans += judge.step()
            except RedisRefused as error:
                self._is_at_once = False
                if queue not in self._refused:
                    log.warning("cannot judge the listeners of queue=%s: %s", queue, error)
                    self._refused.add(queue)
        return orphans
