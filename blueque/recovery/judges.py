"""Recoveries: the judges of several queues, which look at all queues at once."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence, Set

from blueque.connection.redis import Redis
from blueque.errors import RedisRefused
from blueque.model.task import Task
from blueque.model.wrong_types import unless_wrong_type
from blueque.protocol import many_queues
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
        # Queues whose keys Redis refused to read, and that were logged.
        self._refused: set[str] = set()
        self._is_at_once = True  # whether one look reads all queues

    def own(self, queue: str, node: str) -> None:
        """Note the node id of the judge in this queue: a listener does not judge itself."""
        self._judges[queue].own_node = node

    @property
    def rest(self) -> float:
        """Seconds until the next look."""
        return min(judge.rest for judge in self._judges.values())

    def step(self, members: Mapping[str, Set[str]] | None = None) -> list[Task]:
        """Do what `Recovery.step` does, for all queues. While nothing happens that takes one round
        trip, or up to three.

        members: of all queues, as for `Recovery.step`.
        """
        if members is not None and not members.keys() >= self._judges.keys():
            members = None
        if len(self._judges) == 1:
            (judge,) = self._judges.values()
            return judge.step(None if members is None else members[judge.queue])
        if not self._is_at_once:
            return self._look_one_by_one()
        return unless_wrong_type(
            lambda: self._look_at_all(members), lambda _: self._look_one_by_one()
        )

    def _look_at_all(self, members: Mapping[str, Set[str]] | None) -> list[Task]:
        judges = [
            judge
            for judge in self._judges.values()
            if members is None or not judge.is_still_alone(members[judge.queue])
        ]
        if not judges:
            return []
        for judge in judges:
            judge.begin()
        queues = [judge.queue for judge in judges]
        observed = many_queues.observe_all(self._redis, queues, members)
        now = time.monotonic()
        for judge, (beats, found) in zip(judges, observed, strict=True):
            judge.note_beats(beats, found, now)
        late = [judge for judge in judges if judge.looks_at_started(now)]
        started = self._inspector.nodes_of_started([judge.queue for judge in late]) if late else []
        for judge, nodes in zip(late, started, strict=True):
            judge.note_started(nodes, now)
        unread = [listener for judge in judges for listener in judge.unread()]
        registrations = dict(zip(unread, self._inspector.registrations(unread), strict=True))
        for judge in judges:
            judge.note_registrations(registrations)
        return [task for judge in judges for task in judge.judge(now)]

    def _look_one_by_one(self) -> list[Task]:
        """Look at each queue by itself, because a key of one queue has a wrong type."""
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
