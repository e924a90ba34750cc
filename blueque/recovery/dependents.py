"""Dependents: makes sure that tasks learn of the ends that they wait for."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Sequence

from blueque.connection.redis import Redis
from blueque.errors import Contended, RedisRefused
from blueque.protocol import rechecking, settling
from blueque.protocol.settling import Settled
from blueque.queries.due import tasks_to_recheck, unsettled_tasks, with_blocked_tasks
from blueque.recovery.group_settling import GroupsLeftAlone, settle_groups_step
from blueque.recovery.left_alone import LeftAlone

log = logging.getLogger("blueque")

GRACE = 2.0  # seconds in which a listener settles the end of its own task
ENDS_AT_ONCE = 100  # ends of others that one look finds
RECHECKED = 100  # blocked tasks of a queue that one look compares


class Dependents:
    """Settles the ends of tasks that others wait for, and rechecks blocked tasks.

    Any number may do so at the same time. A task with a key of a wrong type is left alone for a
    minute, so that others need not wait for it.
    """

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._ended: dict[str, None] = {}  # in order
        self._refused, self._groups = LeftAlone(), GroupsLeftAlone()

    @property
    def has_work(self) -> bool:
        """Return whether `step` knows of ends that may not be settled."""
        return bool(self._ended)

    @property
    def limit(self) -> int:
        """How many ends to ask for, so that some of them are not left alone."""
        return ENDS_AT_ONCE + len(self._refused.names())

    def note(self, tasks: Iterable[str]) -> None:
        """Have `step` settle these tasks."""
        refused = self._refused.names()
        self._ended |= dict.fromkeys(task for task in tasks if task not in refused)

    def look(self) -> bool:
        """Find ends that their own listeners have not settled. Return whether there may be more.

        Raises what Redis raises.
        """
        found = unsettled_tasks(self._redis, time.time() - GRACE, self.limit)
        self.note(found)
        return len(found) >= ENDS_AT_ONCE and self.has_work

    def step(self) -> bool:
        """Tell up to a hundred dependents of one task how it ended. Return whether there is more to do.

        Raises what Redis raises.
        """
        if self._ended:
            task = next(iter(self._ended))
            try:
                settled = settling.settle(self._redis, task, time.time())
            except RedisRefused as error:
                self._leave_alone(task, error)
                settled = Settled()
            del self._ended[task]
            self.note(settled.ended)
            if not settled.is_over:
                self.note([task])
            elif settled.refused:
                self._refused.add([task])
            for each, refusal in settled.refused.items():
                self._leave_alone(each, refusal)
        return self.has_work

    def step_of_groups(self) -> bool:
        """Do the same for ended members of groups, and for groups. Return whether there is more to do.

        Raises what Redis raises.
        """
        return settle_groups_step(self._redis, time.time(), self._groups)

    def recheck(self, queues: Sequence[str]) -> bool:
        """Compare the blocked tasks of these queues that are due, at most a hundred of each, with
        their parents.

        Return whether a queue has any. Raises what Redis raises.
        """
        blocked = with_blocked_tasks(self._redis, queues)
        now = time.time()
        for queue in blocked:
            refused = self._refused.names()
            limit = RECHECKED + len(refused)
            for task in tasks_to_recheck(self._redis, queue, now, limit):
                if task not in refused:
                    self._recheck(queue, task, now)
        return bool(blocked)

    def _recheck(self, queue: str, task: str, now: float) -> None:
        try:
            rechecking.recheck(self._redis, queue, task, now)
        except RedisRefused as error:
            self._leave_alone(task, error)
        except Contended as error:  # others do the same
            log.debug("recheck task=%s: %s", task, error)

    def _leave_alone(self, task: str, error: RedisRefused) -> None:
        """Remember a task with a key of a wrong type; raise any other error."""
        if not error.is_wrong_type:
            raise error
        log.warning("skipping task=%s and the tasks that wait for it: %s", task, error)
        self._refused.add([task])
