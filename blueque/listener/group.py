"""ListenerGroup: one listener of several queues, which takes one task at a time from all of them
together.

It has a Listener for each queue, which registers it there. A step in all queues takes one or two
round trips, for two queues as for a hundred. With a single queue it only calls the Listener.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal, overload

from blueque.connection.redis import Connection, Redis
from blueque.errors import InvalidInput, NotRegistered, RedisRefused
from blueque.listener.beating import beat_at_once, beat_one_by_one
from blueque.listener.listener import Listener
from blueque.listener.listening import wait_for_task
from blueque.model import keys
from blueque.model.selection import Ordered, ReducedLottery, Select, require_select
from blueque.model.task import Task
from blueque.model.wrong_types import unless_wrong_type
from blueque.protocol import reserving
from blueque.protocol.membership import Standing
from blueque.queries.inspector import Inspector
from blueque.queries.ready_queues import ReadyQueues

log = logging.getLogger("blueque")

IN_A_ROW = 2  # tasks without a wait, after which another is expected


class ListenerGroup:
    """The Listeners of several queues; `select` says from which queue to take, see selection.py."""

    def __init__(self, redis: Redis, queues: Sequence[str], select: Select | None = None) -> None:
        if not queues:
            raise InvalidInput("a listener needs at least one queue")
        self.queues = list(dict.fromkeys(queues))
        self._redis, self._select = redis, require_select(select) or Ordered()
        self._inspector = Inspector(redis)
        self._ready_queues = ReadyQueues(redis, self.queues, self._note_refused)
        self._listeners = {queue: Listener(redis, queue) for queue in self.queues}
        self._woken_by = {keys.wake(queue): queue for queue in self.queues}
        self._called: set[str] = set()  # queues whose wake-up calls may have come to us
        self._is_bare = False  # as for a Listener, in all queues
        self._taken = 0  # tasks since the last wait
        self._next: str | None = None  # the queue of which the end of our task may have popped one
        self._gone: set[str] = set()  # queues from which we have deregistered
        # (action, queue) that Redis refuses, logged once each
        self._refused: set[tuple[str, str]] = set()

    def __iter__(self) -> Iterator[Listener]:
        return iter(self._listeners.values())

    def of(self, queue: str | None) -> Listener:
        """Return the Listener of one of the queues. Raises KeyError for any other."""
        return self._listeners[queue or ""]

    def has(self, queue: str | None) -> bool:
        return queue in self._listeners

    @property
    def node(self) -> str:
        """Our node id in the first queue. In another queue it may differ, if another listener uses
        this id there.
        """
        return self._first.node

    @property
    def has_order(self) -> bool:
        """Whether an order for us waits in any of the queues; the next beat reads it."""
        return any(listener.has_order for listener in self)

    @property
    def is_bare(self) -> bool:
        """Whether no task was in line, scheduled or in our own lists at the end of the last `idle`."""
        return self._first.is_bare if len(self.queues) == 1 else self._is_bare

    @overload
    def listen(
        self, callback: Callable[[Task], object] | None = None, timeout: None = None
    ) -> Task: ...

    @overload
    def listen(
        self, callback: Callable[[Task], object] | None = None, *, timeout: float | None
    ) -> Task | None: ...

    def listen(
        self, callback: Callable[[Task], object] | None = None, timeout: float | None = None
    ) -> Task | None:
        """Wait until a task of any of the queues is reserved and return it; as `Listener.listen`."""
        return wait_for_task(self._redis, self, [*self], callback, timeout)

    def lost(self, error: NotRegistered) -> None:
        """Note that we are no longer registered in the queue of the error."""
        self.of(error.queue).lost(error)

    def beat(self, task_id: str | None = None, may_hold: bool = True) -> Standing:
        """Beat in all queues, and read our orders and the state of the task that we watch.

        may_hold: whether to read our own lists.
        Raises NotRegistered for one queue, after it has beaten in the others.
        Source: docs/protocol.md, "beat"; docs/protocol/placement.md, "beat_all".
        """
        if len(self.queues) == 1:
            return self._first.beat(task_id, may_hold)
        listeners = list(self)
        return unless_wrong_type(
            lambda: beat_at_once(self._redis, listeners, task_id, may_hold),
            lambda _: beat_one_by_one(listeners, task_id),
        )

    def take(self) -> Task | None:
        """Reserve the next task of the queue that the selector chooses, if there is one in any of
        them now.

        Raises as `Listener.take`.
        """
        if len(self.queues) == 1:
            return self._first.take()
        ready, task = self._called, self._take_popped()
        if task is None:
            task = self._settle()
        if task is None:
            ready = self._with_work()
            task = self._take_from(ready)
        self._taken += task is not None
        for queue in self._called:  # the calls for which we take nothing
            self._listeners[queue].decline(queue in ready)
        self._called = {queue for queue in self._called if self._listeners[queue].has_marker}
        return task

    def is_next(self, queue: str) -> bool:
        """Tell whether the next task comes from this one of several queues, whatever the selector
        says, because no other has work. Then the end of our task may pop it.

        It takes a round trip, so it does not ask after a wait: the next step is likely to be another.
        """
        if self._taken < IN_A_ROW or any(listener.is_unsure for listener in self):
            return False
        self._next = queue if self._ready_queues.has_only(queue) else None
        return self._next is not None

    def idle(self, seconds: float, is_answered: Callable[[Connection], bool]) -> bool:
        """Wait for work in any of the queues, or an order, and return whether there may be work.

        Source: docs/protocol.md, "wait".
        """
        self._taken = 0
        if len(self.queues) == 1:
            return self._first.idle(seconds, is_answered)
        self._is_bare = False
        if self._wait(seconds, is_answered, is_idle=True):
            return True
        listeners = [(listener.queue, listener.node) for listener in self]
        self._is_bare = not self._inspector.has_anything(listeners)
        return not self._is_bare and self._inspector.has_any_work(self.queues)

    def watch_orders(self, seconds: float, is_answered: Callable[[Connection], bool]) -> None:
        """Wait for an order, busy with a task. Source: docs/protocol.md, "wait"."""
        self._wait(seconds, is_answered, is_idle=False)

    def wake(self, queues: Iterable[str]) -> None:
        """Wake an idle listener of each of these queues. Source: docs/protocol.md, "wake"."""
        for queue in queues:
            reserving.wake(self._redis, queue)

    def decline(self) -> None:
        """Take nothing now, and let others have the wake-up calls that came to us."""
        for listener in self:
            listener.decline()

    def held(self) -> list[Task]:
        """Return the tasks in our own lists that are reserved or started under our node ids."""
        found: list[Task] = []
        lists = self._inspector.held([(listener.queue, listener.node) for listener in self])
        for listener, held in zip(self, lists, strict=True):
            tasks = [self._inspector.task(task_id) for task_id in held]
            ours = (listener.queue, listener.node)
            found += [
                task
                for task in tasks
                if task.status in ("reserved", "started") and (task.queue, task.node) == ours
            ]
        return found

    def weigh(self, queue: str, weight: float) -> None:
        """Give a queue another weight, if a lottery chooses among ours."""
        if isinstance(self._select, ReducedLottery):
            self._select.weigh(queue, weight)

    def announce(
        self, what: Literal["drain", "leave", "pause", "work"], by: str = "a signal"
    ) -> None:
        """Show in all registrations what we do; see `Listener.announce`."""
        for listener in self:
            listener.announce(what, by)

    def leave(self) -> bool:
        """Deregister from all queues. False: we still hold a task."""
        for listener in self:
            if listener.queue not in self._gone and listener.leave():
                self._gone.add(listener.queue)
        return len(self._gone) == len(self.queues)

    @property
    def _first(self) -> Listener:
        return self._listeners[self.queues[0]]

    def _take_popped(self) -> Task | None:
        """Take the task that the end of the last one has popped, if there is one."""
        queue, self._next = self._next, None
        if queue is None or not self._listeners[queue].has_popped:
            return None
        return self._take_of(queue)

    def _take_from(self, ready: set[str]) -> Task | None:
        """Try the queues that have work, in the order of the selector; those that it does not name
        at last.
        """
        if not ready:
            return None
        tried: set[str] = set()
        for queue in self._select(self.queues, ready):
            if queue not in self._listeners:
                raise InvalidInput(f"the selector names a queue that is not listened to: {queue!r}")
            tried.add(queue)
            task = self._take_of(queue)
            if task is not None:
                return task
        for queue in self.queues:
            if queue in ready - tried and (task := self._take_of(queue)) is not None:
                return task
        return None

    def _take_of(self, queue: str) -> Task | None:
        with self._skipping(queue):
            task = self._listeners[queue].take()
            self._refused.discard(("take from", queue))
            return task
        return None

    def _with_work(self) -> set[str]:
        return unless_wrong_type(self._ready_queues.look, lambda _: self._with_work_one_by_one())

    def _with_work_one_by_one(self) -> set[str]:
        found: set[str] = set()
        for queue in self.queues:
            with self._skipping(queue):
                found |= self._inspector.with_work([queue])
        return found

    @contextlib.contextmanager
    def _skipping(self, queue: str, action: str = "take from") -> Iterator[None]:
        """Skip a queue that has a key of a wrong type, and log it once: the other queues go on."""
        try:
            yield
        except RedisRefused as error:
            if error.code != "WRONGTYPE":
                raise
            self._note_refused(queue, error, action)

    def _note_refused(self, queue: str, error: RedisRefused, action: str = "take from") -> None:
        if (action, queue) not in self._refused:
            log.error("cannot %s queue=%s, going on with the others: %s", action, queue, error)
        self._refused.add((action, queue))

    def _settle(self) -> Task | None:
        """Look through our own lists, where that has to be done, and return a task that is found
        there.
        """
        unsure = [listener for listener in self if listener.is_unsure]
        if not unsure:
            return None
        return unless_wrong_type(
            lambda: self._settle_at_once(unsure), lambda _: self._settle_one_by_one(unsure)
        )

    def _settle_at_once(self, unsure: Sequence[Listener]) -> Task | None:
        self.beat()  # a pop that we gave up on does nothing any more when it arrives
        lists = self._inspector.held([(listener.queue, listener.node) for listener in unsure])
        for listener, held in zip(unsure, lists, strict=True):
            with self._skipping(listener.queue):
                task = listener.settle(held)
                if task is not None:
                    return task
        return None

    def _settle_one_by_one(self, unsure: Sequence[Listener]) -> Task | None:
        for listener in unsure:
            with self._skipping(listener.queue):
                listener.beat()
                task = listener.settle(self._inspector.reserved(listener.queue, listener.node))
                if task is not None:
                    return task
        return None

    def _wait(
        self, seconds: float, is_answered: Callable[[Connection], bool], is_idle: bool
    ) -> bool:
        listeners = [(listener.queue, listener.node) for listener in self]

        def wait_for_others(error: RedisRefused) -> str | None:
            heard = self._with_markers(listeners)
            if not heard:
                raise error
            return reserving.wait(self._redis, heard, seconds, is_answered, is_idle)

        marker = unless_wrong_type(
            lambda: reserving.wait(self._redis, listeners, seconds, is_answered, is_idle),
            wait_for_others,
        )
        if marker in self._woken_by:
            self._called.add(self._woken_by[marker])
            self._listeners[self._woken_by[marker]].take_marker(marker)
        elif marker is not None:
            for listener in self:
                listener.take_marker(marker)
        return marker is not None

    def _with_markers(self, listeners: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
        """Return those of our registrations whose markers can be waited for."""
        found = []
        for queue, node in listeners:
            with self._skipping(queue, "wait for"):
                self._inspector.markers(queue, node)
                found.append((queue, node))
        return found
