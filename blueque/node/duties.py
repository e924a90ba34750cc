"""Duties: what a listener does regularly, idle or busy: beat, obey, judge other listeners, and
maintain its queues.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping, Set
from typing import Final

from blueque.errors import Contended, NotRegistered, RedisAway, RedisRefused
from blueque.model.task import Task
from blueque.node.context import NodeContext
from blueque.node.control import Order
from blueque.node.maintenance import AFTER_TROUBLE, NEVER, Maintenance
from blueque.node.memory_kills import MemoryKills
from blueque.protocol.membership import BeatReply
from blueque.recovery.judge import Recovery

log = logging.getLogger("blueque")

PAUSE: Final = "pause"  # an order to take nothing
WORK: Final = "work"  # an order to take tasks again
_ACCESS_ERRORS = ("NOAUTH", "WRONGPASS", "NOPERM")  # of Redis: an old password, or no rights
TOGETHER = 0.2  # of the time between two beats: a duty may be done so much earlier


class Duties:
    """The regular duties of one listener, in all its queues.

    They begin with `register`. A duty waits only for answers from Redis.
    """

    def __init__(self, context: NodeContext, on_beat: Callable[[], object] = lambda: None) -> None:
        self._client, self._listener = context.client, context.listener
        self._defaults, self._spool = context.defaults, context.spool
        self._orders, self._outage = context.orders, context.outage
        self._on_beat = on_beat
        self._recovery = Recovery(context.client.connections)
        self._maintenance = Maintenance(context)
        self._next_beat = self._next_look = NEVER
        self.next_at = NEVER  # when something is due, on the monotonic clock
        self.orphans: list[Task] = []  # of this host, that no listener watches
        self.watched: str | None = None  # the id of the task that the supervisor watches
        # How that task stands, as the last beat saw it; the supervisor takes it.
        self.standing: BeatReply | None = None
        self._is_leaving_known = False
        self._has_announced_drain = False  # so a drain in our registrations need not be an order
        self._known_pause: str = WORK  # what our registrations say of it, as last written or read
        self._held: tuple[tuple[str, str], ...] = ()  # what our own lists had at the last beat
        self.is_drained = False  # an order in Redis has told us to drain
        self._refused_at = NEVER  # since when Redis has refused us, on the monotonic clock
        self.memory_kills = MemoryKills()

    def register(self) -> None:
        """Register where we are not registered, and begin. Raises what Redis raises."""
        if self._next_look == NEVER:
            self._take_settings(self._client.get_inspector().settings(self._listener.queues))
        self._register()
        self._on_beat()
        now = time.monotonic()
        self._next_beat = now + self._defaults.timing.beat
        if self._next_look == NEVER:
            self._next_look = now
            self._maintenance.begin()
        self.memory_kills.note()
        self._plan()

    def end(self) -> None:
        """Plan no more duties: the listener is about to deregister."""
        self._next_beat = self._next_look = NEVER
        self._maintenance.end()
        self._plan()

    def _plan(self) -> None:
        # While stopping, only a beat is urgent enough to wait for Redis.
        is_stopping = self._orders.now is Order.STOP
        others = () if is_stopping else (self._next_look, self._maintenance.next_at)
        self.next_at = min((self._next_beat, *others))

    def do_due(self, has_nothing: bool = False) -> None:
        """Do what is due.

        has_nothing: a moment ago no task was in line, scheduled, or in our own lists.
        """
        if self._next_beat == NEVER:
            return
        self._orders.has_news = False
        if self._orders.now is not Order.WORK:
            if not self._is_leaving_known:
                self._announce()
        elif self._orders.is_paused is not (self._known_pause == PAUSE):
            self._announce_pause()
        now = time.monotonic()
        # What is nearly due is done along with what is due: an idle listener then wakes up once for
        # all of it.
        horizon = now + TOGETHER * self._defaults.timing.beat if self.next_at <= now else now
        standing: BeatReply | None = None
        if horizon >= self._next_beat or self._listener.has_order:
            standing = self.beat(self.watched, may_hold=not has_nothing)
            self.standing = standing if self.watched is not None else None
        if self._orders.now is not Order.STOP:
            if horizon >= self._next_look:
                self.look_after_others(None if standing is None else standing.members)
            self._maintenance.do_due(horizon, has_nothing)
        self._plan()

    def watch_nothing(self) -> None:
        """Forget what the last beat saw, because the listener no longer watches a task."""
        self.watched, self.standing, self._held = None, None, ()

    def take_orphans(self) -> list[Task]:
        """Return, once, the tasks of this host that no listener watched at the last check."""
        orphans, self.orphans = self.orphans, []
        return orphans

    def has_unwatched(self) -> bool:
        """Return whether the last beat saw a task in our own lists that we do not watch."""
        return bool(self._unwatched())

    def take_unwatched(self) -> list[tuple[str, str]]:
        """Return the tasks of our own lists that we do not watch, as the last beat saw them."""
        unwatched, self._held = self._unwatched(), ()
        return unwatched

    def _unwatched(self) -> list[tuple[str, str]]:
        # An idle listener that is unsure looks through its list by itself, and knows the tokens
        # that it has used. A busy one may not do so for days. No call that it gave up on can arrive
        # any more: it has beaten since.
        return [
            (queue, task)
            for queue, task in self._held
            if task != self.watched
            and (self.watched is not None or not self._listener.of(queue).is_list_unsure)
        ]

    def look_after_others(self, members: Mapping[str, Set[str]] | None = None) -> None:
        """Find other listeners that have died, and do what their tasks need.

        members: the listeners of our queues, as our beat has just read them.
        """
        try:
            self.orphans = self._recovery.step(self._listener.queues, members)
        except (RedisAway, RedisRefused, Contended) as error:
            self._outage.note(error, "waiting", duty="look")
            self._next_look = time.monotonic() + AFTER_TROUBLE
        else:
            self._outage.note(None, duty="look")
            self._next_look = time.monotonic() + self._recovery.rest(self._listener.queues)

    def beat(self, watched: str | None, may_hold: bool = True) -> BeatReply | None:
        """Beat, and register again if needed. Return the state of that task; None: Redis did not answer.

        may_hold: whether to read our own lists.
        """
        self.memory_kills.note()
        for ours in self._listener:
            ours.has_order = False
        try:
            try:
                standing = self._listener.beat(watched, may_hold)
            except NotRegistered as error:
                self._listener.lost(error)
                self._register()
                standing = self._listener.beat(watched)
            self._outage.note(None, duty="beat")
        except (RedisAway, RedisRefused, Contended, NotRegistered) as error:
            self._outage.note(error, "waiting", duty="beat")
            self._next_beat = time.monotonic() + min(AFTER_TROUBLE, self._defaults.timing.beat)
            if isinstance(error, RedisRefused) and error.code in _ACCESS_ERRORS:
                self._leave_if_refused()
            return None
        self._refused_at = NEVER
        self._on_beat()
        self._held = standing.held
        self._next_beat = time.monotonic() + self._defaults.timing.beat
        if self._take_settings(standing.settings):
            self._next_beat = 0.0  # others judge us by the policy in our registration
        self._orders.wants_end = self._orders.wants_end or standing.order == "drain"
        if standing.order == "drain" and not self.is_drained and not self._has_announced_drain:
            log.warning("told to drain: taking nothing new, leaving after the task")
            self.is_drained = True
            self._orders.now, self._orders.has_news = max(self._orders.now, Order.DRAIN), True
        if standing.order in (PAUSE, WORK) and standing.order != self._known_pause:
            self._obey_pause(standing.order)
        return standing

    def _leave_if_refused(self) -> None:
        """Exit at once, as if killed, if our master replaces us and Redis has refused us for a lease.

        The task continues. The listener that replaces us may have a newer password, and adopts it.
        """
        now = time.monotonic()
        self._refused_at = min(self._refused_at, now)
        seconds = now - self._refused_at
        is_replaced = self._orders.is_replaced and not self._orders.wants_end
        if is_replaced and seconds >= self._defaults.timing.lease:
            log.warning(
                "refused by Redis for %.0f s: leaving the task to the next listener", seconds
            )
            os._exit(0)

    def _take_settings(self, settings: Mapping[str, Mapping[str, str]]) -> bool:
        """Take over the settings of our queues in Redis. Return whether any has changed.

        They apply to attempts that start from now on; a retry policy also to running ones.
        """
        changed = self._defaults.take(settings)
        for queue in changed:
            held = self._defaults.of(queue)
            self._listener.of(queue).change(held.retry, held.limits.time)
            self._listener.weigh(queue, held.weight)
            log.info("settings queue=%s: %s", queue, self._defaults.shown(queue))
        if changed:
            self._maintenance.take_retention()
        return bool(changed)

    def _register(self) -> None:
        for ours in self._listener:
            if ours.instance is None:
                retry = self._defaults.of(ours.queue).retry
                self._listener.register(self._defaults.timing, self._spool.root, retry, ours.queue)
                self._recovery.own(ours.queue, ours.node)
                self._known_pause = WORK  # an order goes with the registration
                if self._orders.now is Order.WORK and (by := self._orders.pause.by):
                    ours.announce(PAUSE, by)
                    self._known_pause = PAUSE

    def _announce(self) -> None:
        """Show once in our registrations that we take no more tasks."""
        self._is_leaving_known = True
        self._has_announced_drain = self._orders.wants_end and not self.is_drained
        if self._listener.reserver.pool is not None:
            self._listener.reserver.pool.withdraw()
        try:
            self._listener.announce("drain" if self._orders.wants_end else "leave")
            if not self._orders.wants_end:
                # An order to drain may have come before: have a beat read it.
                self._listener.of(self._listener.queues[0]).has_order = True
        except (RedisAway, RedisRefused, Contended) as error:
            log.debug("cannot tell Redis that this listener exits: %s", error)

    def _announce_pause(self) -> None:
        """Show in our registrations whether we are paused. The next duty repeats this if Redis is away."""
        by = self._orders.pause.by
        try:
            self._listener.announce(PAUSE if by else WORK, by or "a signal")
            self._known_pause = PAUSE if by else WORK
            if by:  # a call may have been lost when our waiting was cut short
                self._listener.wake(self._listener.queues)
        except (RedisAway, RedisRefused, Contended) as error:
            log.debug("cannot tell Redis that this listener pauses or resumes: %s", error)

    def _obey_pause(self, order: str) -> None:
        """Pause or resume, with all listeners of our master."""
        is_wanted = order == PAUSE
        self._known_pause = order
        # otherwise another listener of our master was faster
        if self._orders.is_paused is not is_wanted:
            self._orders.pause.by = "an order" if is_wanted else None
            log.warning(
                "told to %s",
                "pause: taking nothing new; what runs, runs on"
                if is_wanted
                else "resume: taking tasks again",
            )

    def settle(self, task: str) -> None:
        """Tell the tasks that wait for a task of ours how it ended."""
        self._maintenance.settle(task)
        self._plan()

    def note_member(self) -> None:
        """Record that a task of ours has ended that belongs to a group."""
        self._maintenance.note_member()
        self._plan()

    def has_unsettled(self) -> bool:
        """Return whether tasks that wait for a task of ours may not have been told of its end."""
        return self._maintenance.has_unsettled()
