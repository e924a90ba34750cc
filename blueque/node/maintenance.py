"""Maintenance: what a listener does for its queues besides beating.

It enqueues due tasks, makes the tasks of schedules, tells tasks when what they wait for has ended,
expires late tasks and deletes old ones. Schedulers do the same and log an outage of Redis. Here,
failures only postpone the work.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import suppress

from blueque.errors import Contended, RedisAway, RedisRefused
from blueque.node.context import NodeContext
from blueque.producer.firing import Firing
from blueque.queries.schedules import clock_of
from blueque.recovery.dependents import Dependents
from blueque.recovery.expiry import Expiry
from blueque.recovery.retention import Retention

log = logging.getLogger("blueque")

MEMBERS_TOGETHER = 0.2  # seconds in which members of groups that end are noted together
BEATS_TO_A_LOOK = 6  # between two looks at what most queues do not have
OFTEN = ("enqueue_due", "fire")  # tried again at the next beat after an error
NEVER = float("inf")
AFTER_TROUBLE = 1.0  # seconds until it is tried again


class Maintenance:
    """The maintenance by one listener. It is planned from `begin` to `end`."""

    def __init__(self, context: NodeContext) -> None:
        self._client, self._defaults = context.client, context.defaults
        self._queues = context.listener.queues
        redis = context.client.connections
        self._dependents, self._expiry = Dependents(redis), Expiry(redis)
        self._firing = Firing(redis, frozenset(self._queues))
        self._retention = Retention(redis, self._defaults.retention(self._queues))
        self._has_ended_member = False  # of a group, which may have ended with it
        self._has_blocked = False  # a queue of ours has blocked tasks, as last seen
        # Each returns in how many seconds it is to be done again.
        self._acts: dict[str, Callable[[], float]] = {
            "enqueue_due": self._enqueue_due,
            "settle": self._settle,
            "recheck": self._recheck,
            "fire": self._fire,
            "expire": self._expire,
            "prune": self._prune,
        }
        self._at = dict.fromkeys(self._acts, NEVER)  # when each is due, on the monotonic clock

    @property
    def next_at(self) -> float:
        """When the first of it is due, on the monotonic clock."""
        return min(self._at.values())

    def begin(self) -> None:
        """Plan all of it."""
        now = time.monotonic()
        self._at |= dict.fromkeys(("enqueue_due", "settle", "recheck", "fire"), now)
        self._at["expire"] = now + self._rest(False)
        self._plan_pruning()

    def end(self) -> None:
        """Plan nothing more."""
        self._at = dict.fromkeys(self._acts, NEVER)

    def do_due(self, horizon: float, nothing_scheduled: bool) -> None:
        """Do what is due until `horizon`, on the monotonic clock.

        nothing_scheduled: a moment ago no task was scheduled.
        """
        for name in self._acts:
            if horizon < self._at[name]:
                continue
            if nothing_scheduled and name == "enqueue_due":
                self._at[name] = time.monotonic() + self._rest(True)
            else:
                self._do(name)

    def settle(self, task: str) -> None:
        """Tell the tasks that wait for a task of ours how it ended."""
        self._dependents.note([task])
        if self._dependents.has_work:  # else the task is left alone
            self._do("settle")

    def note_member(self) -> None:
        """Record that a task of ours has ended that belongs to a group."""
        self._has_ended_member = True
        self._at["settle"] = min(self._at["settle"], time.monotonic() + MEMBERS_TOGETHER)

    def has_unsettled(self) -> bool:
        """Return whether tasks that wait for a task of ours may not have been told of its end."""
        return self._dependents.has_work or self._has_ended_member

    def take_retention(self) -> None:
        """Delete finished tasks by the present settings from now on."""
        self._retention.serve(self._defaults.retention(self._queues))
        self._plan_pruning()

    def _plan_pruning(self) -> None:
        """Plan the pruning, unless it is planned; not at once, because there is other work."""
        if self._retention.is_asked_for and self._at["prune"] == NEVER:
            self._at["prune"] = time.monotonic() + self._rest(False)

    def _do(self, name: str) -> None:
        try:
            rest = self._acts[name]()
        except (RedisAway, RedisRefused, Contended) as error:
            log.debug("%s queues=%s: %s", name, ",".join(self._queues), error)
            is_used = name in OFTEN or (name == "recheck" and self._has_blocked)
            rest = AFTER_TROUBLE if name == "settle" else self._rest(is_used)
        self._at[name] = time.monotonic() + rest

    def _rest(self, is_used: bool) -> float:
        """Return the seconds to the next beat; later for what our queues do not use."""
        return (1 if is_used else BEATS_TO_A_LOOK) * self._defaults.timing.beat

    def _enqueue_due(self) -> float:
        """Put due tasks of our own queues in line, at most a hundred of each at a time."""
        queues, now = self._queues, clock_of(self._client.connections)
        if len(queues) > 1:  # a single one need not be asked beforehand
            with suppress(RedisRefused):  # one key is wrong, perhaps: try each
                queues = self._client.get_inspector().due(queues, now)
        rest = self._rest(True)
        for queue in queues:
            try:
                if self._client.get_queue(queue).enqueue_due_batch(now):
                    rest = 0.0  # there may be more
            except (RedisRefused, Contended) as error:  # other queues must not wait for this one
                log.debug("enqueue_due queue=%s: %s", queue, error)
        return rest

    def _settle(self) -> float:
        """Tell a hundred of the tasks that wait for a task how it ended.

        If we know of none, look for tasks of others first.
        """
        is_to_look = not self._dependents.has_work
        may_be_more = is_to_look and self._dependents.look()
        is_more = self._dependents.step() or may_be_more
        if is_to_look or self._has_ended_member:
            self._has_ended_member = False
            self._has_ended_member = self._dependents.step_of_groups()
        return 0.0 if is_more or self._has_ended_member else self._rest(self._has_blocked)

    def _recheck(self) -> float:
        """Compare blocked tasks of our queues with the tasks that they wait for."""
        had_blocked, self._has_blocked = (self._has_blocked, self._dependents.recheck(self._queues))
        if self._has_blocked and not had_blocked:
            self._at["settle"] = time.monotonic()
        return self._rest(self._has_blocked)

    def _fire(self) -> float:
        """Make the tasks of the schedules of our own queues that are due."""
        wait = self._firing.step()
        return 0.0 if wait == 0.0 else self._rest(wait is not None)  # None: there are no schedules

    def _expire(self) -> float:
        """End tasks of any queue that have not started in time, at most a hundred."""
        return min(self._expiry.step(), self._rest(False))

    def _prune(self) -> float:
        """Delete finished tasks of our own queues that have been kept long enough, some at once."""
        is_more = self._retention.step()
        return self._retention.rest if is_more else self._rest(False)
