"""Upkeep: what a listener does from time to time, idle or busy: beat, look after others, put due
tasks in line.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from blueque.client import Client
from blueque.errors import Contended, NotRegistered, RedisAway, RedisRefused
from blueque.listener.group import ListenerGroup
from blueque.model.task import Task
from blueque.node.control import Order, Orders
from blueque.node.options import Defaults
from blueque.protocol.membership import Standing
from blueque.spool.spool import Spool
from blueque.system import process
from blueque.system.outage import Trouble

log = logging.getLogger("blueque")

T = TypeVar("T")
PAUSE: Final = "pause"  # an order to take nothing
WORK: Final = "work"  # an order to take tasks again
TOGETHER = 0.2  # of the time between two beats: so early a duty may be done
BEATS_TO_A_LOOK = 6  # at what is old enough to go: it is in no hurry
AFTER_TROUBLE = 1.0  # seconds until it is tried again


class Upkeep:
    """The regular duties of one listener, in all its queues. None of them waits, but for an answer
    from Redis.
    """

    def __init__(
        self,
        client: Client,
        listeners: ListenerGroup,
        defaults: Defaults,
        spool: Spool,
        orders: Orders,
        trouble: Trouble,
        on_beat: Callable[[], object] = lambda: None,
    ) -> None:
        self._client = client
        self._listeners = listeners
        self._defaults = defaults
        self._spool = spool
        self._orders, self._trouble, self._on_beat = orders, trouble, on_beat
        self._recovery = client.get_recoveries(listeners.queues)
        self._retention = client.get_retention(
            {queue: defaults.of(queue).retention for queue in listeners.queues}
        )
        self._next_beat = self._next_look = self._next_promotion = 0.0
        # Nobody waits for it, so it does not come at the start, when there is other work.
        first = time.monotonic() + BEATS_TO_A_LOOK * defaults.timing.beat
        self._next_deletion = first if self._retention.is_asked_for else float("inf")
        self._orphans: list[Task] = []
        self._is_leaving_known = False
        self._known_pause: str = WORK  # what our registrations say of it, as last written or read
        self._held: tuple[tuple[str, str], ...] = ()  # what our own lists had at the last beat
        self.is_drained = False  # somebody has left us the order to drain
        self.oom_kills = 0  # of this machine, as counted at our last beat

    def register(self, fatal: Iterable[str] = ()) -> None:
        """Register where we are not registered, however long it takes. Raises what is `fatal`, and
        OrderCame.
        """
        self._orders.insist(self._register, self._trouble, until=Order.DRAIN, fatal=fatal)
        self._on_beat()
        self._next_beat = time.monotonic() + self._defaults.timing.beat
        self.oom_kills = process.out_of_memory_kills()

    def seconds_left(self) -> float:
        """Return for how many seconds there is nothing to do here."""
        return max(self._next_duty - time.monotonic(), 0.01)

    @property
    def _next_duty(self) -> float:
        return min(self._next_beat, self._next_look, self._next_promotion, self._next_deletion)

    def keep_up(self, watched: str | None = None) -> Standing | None:
        """Do what is due. Return how the task that we watch stands, if Redis has told."""
        standing = None
        if self._orders.now is not Order.WORK and not self._is_leaving_known:
            self._announce()
        elif self._orders.now is Order.WORK and self._orders.is_paused is not (
            self._known_pause == PAUSE
        ):
            self._announce_pause()
        now = time.monotonic()
        # What is nearly due is done along with what is due: an idle listener then wakes up once for
        # all of it.
        horizon = now + TOGETHER * self._defaults.timing.beat if self._next_duty <= now else now
        if horizon >= self._next_beat or self._listeners.has_order:
            standing = self.beat(watched)
        # there is more urgent than to wait for Redis on behalf of others
        if self._orders.now is Order.STOP:
            return standing
        if horizon >= self._next_look:
            self.look_after_others()
        if horizon >= self._next_promotion:
            self._promote()
        if horizon >= self._next_deletion:
            self._delete_old()
        return standing

    @property
    def has_orphans(self) -> bool:
        return bool(self._orphans)

    def take_orphans(self) -> list[Task]:
        """Return the tasks of this host that were last seen to be watched by nobody."""
        orphans, self._orphans = self._orphans, []
        return orphans

    def has_unwatched(self, watched: str | None = None) -> bool:
        """Tell whether our own lists had another task than this one at the last beat."""
        return bool(self._unwatched(watched))

    def take_unwatched(self, watched: str | None = None) -> list[tuple[str, str]]:
        """Return the tasks of our own lists besides this one, as the last beat saw them, each as
        (queue, id).
        """
        unwatched, self._held = self._unwatched(watched), ()
        return unwatched

    def _unwatched(self, watched: str | None) -> list[tuple[str, str]]:
        # Idle, one that is unsure looks through its list by itself, and knows the tokens that it
        # has used. Busy, it does not come to that, perhaps for days. No call that it gave up on can
        # arrive any more: it has beaten since.
        return [
            (queue, task)
            for queue, task in self._held
            if task != watched and (watched is not None or not self._listeners.of(queue).is_unsure)
        ]

    def look_after_others(self) -> None:
        """See which other listeners have died, and to what they left."""
        try:
            self._orphans = self._recovery.step()
        except (RedisAway, RedisRefused, Contended) as error:
            self._trouble.tell(error, "waiting", duty="look")
            self._next_look = time.monotonic() + AFTER_TROUBLE
        else:
            self._trouble.tell(None, duty="look")
            self._next_look = time.monotonic() + self._recovery.rest

    def insist(self, action: Callable[[], T]) -> T:
        """Call until Redis does it, registering again if need be. Raises OrderCame."""
        while True:
            try:
                return self._orders.insist(action, self._trouble, until=Order.DRAIN)
            except NotRegistered as error:
                self.register_again(error)

    def register_again(self, error: NotRegistered) -> None:
        """Register as `register` does, knowing where we are not registered any more."""
        self._listeners.lost(error)
        self.register()

    def beat(self, watched: str | None) -> Standing | None:
        """Beat, having registered again if need be. Return how the task that we watch stands, None
        if Redis has not told.
        """
        self.oom_kills = process.out_of_memory_kills()
        for listener in self._listeners:
            listener.has_order = False
        try:
            try:
                standing = self._listeners.beat(watched)
            except NotRegistered as error:
                self._listeners.lost(error)
                self._register()
                standing = self._listeners.beat(watched)
            self._trouble.tell(None, duty="beat")
        except (RedisAway, RedisRefused, Contended, NotRegistered) as error:
            self._trouble.tell(error, "waiting", duty="beat")
            self._next_beat = time.monotonic() + min(AFTER_TROUBLE, self._defaults.timing.beat)
            return None
        self._on_beat()
        self._held = standing.held
        self._next_beat = time.monotonic() + self._defaults.timing.beat
        self._orders.wants_end = self._orders.wants_end or standing.order == "drain"
        if standing.order == "drain" and self._orders.now is Order.WORK:
            log.warning("told to drain: taking nothing new, leaving after the task")
            self.is_drained = True
            self._orders.now = max(self._orders.now, Order.DRAIN)
        if standing.order in (PAUSE, WORK) and standing.order != self._known_pause:
            self._obey_pause(standing.order)
        return standing

    def _register(self) -> None:
        for listener in self._listeners:
            if listener.instance is None:
                listener.register(
                    self._defaults.timing, self._spool.root, self._defaults.of(listener.queue).retry
                )
                self._recovery.own(listener.queue, listener.node)
                self._known_pause = WORK  # an order goes with the registration
                if self._orders.now is Order.WORK and (by := self._orders.pause.by):
                    listener.announce(PAUSE, by)
                    self._known_pause = PAUSE

    def _announce(self) -> None:
        """Say once that we take nothing new: who looks at us should not wait for us."""
        self._is_leaving_known = True
        for listener in self._listeners:
            if listener.pool is not None:
                listener.pool.withdraw()
        try:
            self._listeners.announce("drain" if self._orders.wants_end else "leave")
        except (RedisAway, RedisRefused, Contended) as error:
            log.debug("cannot announce that we leave: %s", error)

    def _announce_pause(self) -> None:
        """Let everybody see whether we take anything; tried again at the next look if Redis is
        away.
        """
        by = self._orders.pause.by
        try:
            self._listeners.announce(PAUSE if by else WORK, by or "a signal")
            self._known_pause = PAUSE if by else WORK
            if by:  # a call may have been lost when our waiting was cut short
                self._listeners.wake(self._listeners.queues)
        except (RedisAway, RedisRefused, Contended) as error:
            log.debug("cannot announce that we pause or go on: %s", error)

    def _obey_pause(self, order: str) -> None:
        """Obey an order to take nothing or to take tasks again, with all listeners of our master."""
        is_wanted = order == PAUSE
        self._known_pause = order
        # else another listener of our master was faster
        if self._orders.is_paused is not is_wanted:
            self._orders.pause.by = "an order" if is_wanted else None
            log.warning(
                "told to %s",
                "pause: taking nothing new; what runs, runs on"
                if is_wanted
                else "resume: taking tasks again",
            )

    def _promote(self) -> None:
        """Put due tasks of our own queues in line, a hundred at most of each: there may be a
        million, and we have other duties.
        """
        self._next_promotion = time.monotonic() + self._defaults.timing.beat
        try:
            for queue in self._due():
                if self._client.get_queue(queue).enqueue_due_batch():
                    self._next_promotion = 0.0  # there may be more
        except (RedisAway, RedisRefused, Contended) as error:
            # Said by whoever is hindered by it; a scheduler may do it, and other queues are no
            # worse for it.
            log.debug("enqueue_due queues=%s: %s", ",".join(self._listeners.queues), error)

    def _delete_old(self) -> None:
        """Delete finished tasks of our own queues that have been kept long enough, a few at a time."""
        self._next_deletion = time.monotonic() + BEATS_TO_A_LOOK * self._defaults.timing.beat
        try:
            if self._retention.step():
                self._next_deletion = time.monotonic() + self._retention.rest  # there may be more
        except (RedisAway, RedisRefused, Contended) as error:
            log.debug("prune queues=%s: %s", ",".join(self._listeners.queues), error)

    def _due(self) -> list[str]:
        """Return the queues which may have due tasks; a single one need not be asked beforehand."""
        queues = self._listeners.queues
        return queues if len(queues) == 1 else self._client.get_inspector().due(queues, time.time())
