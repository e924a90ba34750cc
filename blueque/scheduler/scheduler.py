"""One step of a scheduler: `Scheduler.step` names its duties in their order."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from blueque.client import Client
from blueque.errors import Contended, RedisRefused
from blueque.producer.firing import Firing
from blueque.producer.queue import Queue
from blueque.queries.queue_changes import Lookout
from blueque.queries.schedules import clock_of
from blueque.recovery.expiry import Expiry
from blueque.recovery.retention import Retention
from blueque.scheduler.judging import Judging
from blueque.scheduler.refused import RefusedQueues
from blueque.scheduler.unsettled_ends import LOOK_AT_ALL, Settling

POLL = 1.0  # seconds between two looks where Redis does not tell of changes; else LOOK_AT_ALL
COALESCE = 0.05  # changes that come closer than this are looked at together
RECHECK_EVERY = 1.0  # between two looks at blocked tasks
PRUNE_EVERY = 60.0  # between two looks at what has been kept long enough

log = logging.getLogger("blueque")


class Scheduler:
    """Serves every queue in `blueque_queues`.

    show_life: called before each queue, because a step may be long.
    """

    def __init__(self, client: Client, show_life: Callable[[], None] = lambda: None) -> None:
        self._client = client
        self._lookout = Lookout(client.connections.connect)
        # A call that is tried again by itself would hide that Redis was away, so these have no
        # patience.
        self._impatient = client.with_patience(0)
        redis = self._impatient.connections
        self._refused = RefusedQueues(client, show_life)
        self._judging = Judging(self._impatient, self._lookout, self._refused)
        self._settling = Settling(redis, self._lookout)
        self._firing, self._expiry, self._retention = (
            Firing(redis),
            Expiry(redis),
            Retention(redis, {}),
        )
        # When each duty is due, on the monotonic clock. At the start there is other work than to prune.
        self._look_at_all = self._recheck_at = self._fire_at = self._expire_at = 0.0
        self._prune_at = time.monotonic() + PRUNE_EVERY
        self._clock = 0.0  # what the clock of Redis shows when the monotonic clock is at 0

    @property
    def queues(self) -> int:
        """How many queues it serves."""
        return len(self._lookout.views)

    def fileno(self) -> int | None:
        """Return a descriptor that becomes readable after a change; None: Redis does not report changes."""
        return self._lookout.fileno()

    def step(self) -> float:
        """Do what is due now; return for how many seconds there is nothing to do if nothing changes.

        Raises RedisAway.
        """
        self._look()
        self._judging.step()
        is_due = self._enqueue_due()
        self._recheck()
        is_firing = self._fire()
        if is_due or self._settling.step() or is_firing:
            return 0.0  # see what comes next
        self._expire()
        self._prune()
        if self._lookout.has_news():
            return COALESCE
        return max(0.0, min(self._rests()))

    def reconnect(self) -> None:
        """Close the connections that have probably broken along with another one."""
        self._impatient.close()
        self._judging.close()

    def close(self) -> None:
        """Close the connections of our own."""
        self._lookout.close()
        self.reconnect()

    def _look(self) -> None:
        """Read what has changed, or everything, and wake listeners for what 1.0.0 has enqueued."""
        is_whole = time.monotonic() >= self._look_at_all
        looked_at = self._lookout.refresh(is_whole)
        if is_whole:
            rest = LOOK_AT_ALL if self._lookout.is_tracking else POLL
            self._look_at_all = time.monotonic() + rest
            self._look_at_clock()
        self._refused.forget_gone(self._lookout.views)
        for name in sorted(looked_at):
            view = self._lookout.views[name]
            # A queue that is left alone is read, but its listeners are not woken.
            if view.is_pending and name not in self._refused:
                self._refused.attempt(name, "look", lambda queue: queue.wake_listener())
            elif not view.is_pending:
                self._refused.note(name, "look", view.refusal)

    def _enqueue_due(self) -> bool:
        """Put scheduled tasks in line, the longest due first. Return whether there were any."""
        etas = self._etas()
        if self._now() >= min(etas.values(), default=float("inf")):
            self._look_at_clock()  # it may have been wrong for a moment
        now = self._now()
        due = sorted((name for name, eta in etas.items() if eta <= now), key=etas.__getitem__)
        self._attempt("enqueue_due", due, lambda queue: queue.enqueue_due_tasks(now))
        return bool(due)

    def _recheck(self) -> None:
        """Compare blocked tasks that are due with those that they wait for."""
        if time.monotonic() < self._recheck_at:
            return
        now = self._now()
        due = [name for name, at in self._rechecks().items() if at <= now]
        self._attempt("recheck", due, lambda queue: self._settling.recheck(queue.name))
        if due:
            self._recheck_at = time.monotonic() + RECHECK_EVERY

    def _attempt(self, duty: str, due: Sequence[str], action: Callable[[Queue], object]) -> None:
        """Do a duty for the queues where it is due, and read them again."""
        self._refused.end(duty, due)
        for name in due:
            self._refused.attempt(name, duty, action)
            self._lookout.look_again_at(name)

    def _fire(self) -> bool:
        """Make the tasks of a hundred schedules that are due. Return whether there may be more."""
        if not self._lookout.is_replanned and time.monotonic() < self._fire_at:
            return False
        try:
            wait = self._lookout.next_occurrence()
            self._firing.note(None)
            if wait is not None and wait <= 0:
                wait = self._firing.step()
        except Contended as error:  # others do the same
            log.debug("fire: %s", error)
            wait = 0.0
        except RedisRefused as error:
            if not self._firing.note(error):
                raise
            wait = LOOK_AT_ALL
        # The clock of Redis may be set, and is looked at each minute.
        self._fire_at = time.monotonic() + min(LOOK_AT_ALL if wait is None else wait, LOOK_AT_ALL)
        return wait == 0.0

    def _expire(self) -> None:
        """End tasks that have not started in time."""
        if time.monotonic() >= self._expire_at:
            self._expire_at = time.monotonic() + self._expiry.step()

    def _prune(self) -> None:
        """Delete some of what has been kept long enough."""
        if time.monotonic() < self._prune_at:
            return
        self._prune_at = time.monotonic() + PRUNE_EVERY
        names = [name for name, view in self._lookout.views.items() if view.refusal is None]
        self._retention.serve(self._client.retention_rules(names))
        try:
            if self._retention.step():
                self._prune_at = time.monotonic() + self._retention.rest
        except Contended as error:  # others do the same
            log.debug("prune: %s", error)

    def _rests(self) -> Iterator[float]:
        """Yield for how many seconds each duty has nothing to do."""
        now, monotonic = self._now(), time.monotonic()
        yield from (eta - now for eta in self._etas().values())
        until_recheck = self._recheck_at - monotonic
        yield from (max(at - now, until_recheck) for at in self._rechecks().values())
        yield self._settling.rest()
        own = (self._look_at_all, self._fire_at, self._expire_at, self._prune_at)
        for at in (*own, *self._judging.times(), *self._refused.retry_times()):
            yield at - monotonic

    def _etas(self) -> dict[str, float]:
        """Return when the next scheduled task of each queue is due, by the clock of Redis."""
        etas = {name: view.next_eta for name, view in self._lookout.views.items()}
        return self._served(etas)

    def _rechecks(self) -> dict[str, float]:
        """Return when to recheck blocked tasks of each queue, by the clock of Redis."""
        times = {name: view.next_recheck for name, view in self._lookout.views.items()}
        return self._served(times)

    def _served(self, times: Mapping[str, float | None]) -> dict[str, float]:
        """Leave out queues without a time, and those that are left alone."""
        return {
            name: at for name, at in times.items() if at is not None and name not in self._refused
        }

    def _now(self) -> float:
        """Return the time of Redis: ours may be an hour ahead."""
        return self._clock + time.monotonic()

    def _look_at_clock(self) -> None:
        self._clock = clock_of(self._impatient.connections) - time.monotonic()
