"""Waiting: the only place where a slot waits.

Each wait obeys signals, notices the death of the master, and does duties that are due, such as
beats. It ends when a descriptor is ready. There is no beat while the connection itself waits for an
answer; such a wait has a limit. A test forbids other modules of this package to wait.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Collection, Iterable
from typing import TypeVar

from blueque.connection.address import REPLY_TIMEOUT, SILENCE
from blueque.connection.redis import Connection
from blueque.errors import Contended, NotRegistered, NotReplicated, RedisAway, RedisRefused
from blueque.node.context import NodeContext
from blueque.node.control import Order, OrderCame
from blueque.node.duties import Duties
from blueque.system import process

T = TypeVar("T")

PROMPT = 0.005  # seconds within which most answers come; an order may wait for so long
LAST_ANSWER = 1.0  # seconds for which an answer is waited for once an order has come
ANSWER_SOON = 1.0  # seconds; for what matters less than a beat, or than an order
LATE = 5.0  # seconds after which Redis should have answered that no work has come
LATE_BUSY = 1.0  # the same while a task runs


class Waiting:
    """How one listener waits.

    on_child: called when a child has ended, or has been forked for us.
    descriptors: those that report forked children; the list is the caller's.
    """

    def __init__(
        self,
        context: NodeContext,
        duties: Duties,
        on_child: Callable[[], object] = lambda: None,
        descriptors: Collection[int] = (),
    ) -> None:
        self._on_child, self._descriptors = on_child, descriptors
        self._orders, self._duties = context.orders, duties
        self._listener, self._outage = context.listener, context.outage

    def wait(self, seconds: float, descriptors: Collection[int] = ()) -> set[int]:
        """Wait for a descriptor, a signal, the next duty or the end of the time, and do what is due.

        Return the descriptors that are ready.
        """
        ready = self._poll(min(seconds, self._seconds_left()), descriptors)
        if self._orders.has_news or time.monotonic() >= self._duties.next_at:
            self._duties.do_due()
        return ready

    def ready(self, descriptors: Collection[int]) -> set[int]:
        """Return the descriptors for which a wait would end at once."""
        return process.wait_readable(descriptors, 0)

    def wait_for_work(self) -> bool:
        """Wait for work in any queue, an order, or the next duty, and do what is due.

        Return whether there may be work. Raises RedisAway, RedisRefused, NotRegistered.
        """
        may_take = self._listener.idle(self._seconds_left(), self._is_answered)
        self._duties.do_due(self._listener.has_nothing)
        return may_take

    def wait_for_order(self) -> None:
        """Paused: do the same, but not for work."""
        self._listener.watch_orders(self._seconds_left(), self._is_answered)
        self._duties.do_due()

    def wait_for_order_or(
        self, descriptors: Collection[int], until: float, meanwhile: Callable[[], float]
    ) -> set[int]:
        """Busy: wait for an order in Redis, a descriptor, a signal, the next duty or `until`, and
            do what is due.

        Return the descriptors that are ready.
        until: on the monotonic clock. meanwhile: called now and then; it returns when to call it
            again, and uses another connection.
        Raises RedisAway, RedisRefused.
        """
        seconds = min(self._seconds_left(), max(until - time.monotonic(), 0.01))
        deadline, before = time.monotonic() + seconds + LATE_BUSY, self._orders.now
        ready: set[int] = set()

        def is_answered(connection: Connection) -> bool:
            nonlocal ready
            while (left := deadline - time.monotonic()) > 0:
                if connection.wait(0):
                    return True
                again = min(until, meanwhile()) - time.monotonic()
                ready = self._poll(min(left, again), [*descriptors, connection.fileno()])
                if connection.fileno() in ready:
                    return True
                has_changed = self._orders.now is not before
                if ready or has_changed or time.monotonic() >= until:
                    return False
            return False

        self._listener.watch_orders(seconds, is_answered)
        self._duties.do_due()
        return ready.intersection(descriptors)

    def retry_until_order(
        self, action: Callable[[], T], until: Order = Order.STOP, fatal: Iterable[str] = ()
    ) -> T:
        """Call until it works. Raises OrderCame for `until`, and a `fatal` refusal unchanged."""
        may_try_again = True  # once more after the order: what broke may have been its doing
        while True:
            try:
                value = action()
            except (RedisAway, RedisRefused, Contended) as error:
                if isinstance(error, RedisRefused) and error.code in fatal:
                    raise
                self._outage.note(error, "waiting")
                # The listener that replaces us may ask for fewer replicas, and adopts the task.
                if isinstance(error, NotReplicated) and self._orders.is_replaced:
                    until = Order.DRAIN
                if self._orders.now >= until:
                    if not may_try_again:
                        raise OrderCame(str(error)) from error
                    may_try_again = False
                    continue
            else:
                self._outage.note(None)
                return value
            self.wait(self._outage.pause())

    def retry_registered(self, action: Callable[[], T]) -> T:
        """Do the same until an order to drain, and register again if needed."""
        while True:
            try:
                return self.retry_until_order(action, Order.DRAIN)
            except NotRegistered as error:
                self.register_again(error)

    def register(self, fatal: Iterable[str] = ()) -> None:
        """Register in all queues, however long it takes. Raises what is `fatal`, and OrderCame."""
        self.retry_until_order(self._duties.register, Order.DRAIN, fatal)

    def register_again(self, error: NotRegistered) -> None:
        """Register where we are no longer registered."""
        self._listener.lost(error)
        self.register()

    def _seconds_left(self) -> float:
        """Return the seconds until the next duty."""
        return max(self._duties.next_at - time.monotonic(), 0.01)

    def _poll(self, seconds: float, descriptors: Collection[int]) -> set[int]:
        """Wait for descriptors, a signal or the time, and obey. Return the ready descriptors."""
        of_children = tuple(self._descriptors)
        own = (*self._orders.descriptors, *of_children)
        ready = process.wait_readable((*own, *descriptors), seconds)
        if ready.isdisjoint(own):
            return ready
        if self._orders.lifeline in ready:
            self._orders.lose_master()
        if not ready.isdisjoint(of_children):
            self._on_child()
        for number in self._orders.signals.take() if self._orders.signals is not None else ():
            if number == signal.SIGCHLD:
                self._on_child()
            else:
                self._orders.obey(number)
        return ready.difference(own)

    def has_answer(self, connection: Connection) -> bool:
        """Return whether an answer comes; after an order, wait only briefly: Redis may hang."""
        if connection.wait(PROMPT):
            return True
        before, descriptor = self._orders.now, connection.fileno()
        deadline = time.monotonic() + (LAST_ANSWER if before is Order.STOP else REPLY_TIMEOUT)
        is_current = connection.is_current
        while (seconds := deadline - time.monotonic()) > 0:
            if self._poll(seconds if is_current is None else min(seconds, SILENCE), [descriptor]):
                return True
            if is_current is not None and not is_current(SILENCE):
                return False
            if self._orders.now is not before:
                # The answer to a pop is worth a moment: without it the task stays in the list of a
                # listener that leaves.
                before, deadline = self._orders.now, min(deadline, time.monotonic() + LAST_ANSWER)
        return connection.wait(0)

    def has_answer_soon(self, connection: Connection) -> bool:
        """Return whether an answer comes that matters less than a beat or an order."""
        deadline, before = time.monotonic() + ANSWER_SOON, self._orders.now
        while (left := deadline - time.monotonic()) > 0 and self._orders.now is before:
            if self._poll(left, [connection.fileno()]):
                return True
        return connection.wait(0)

    def _is_answered(self, connection: Connection) -> bool:
        """Wait for an answer, an order, or a time by which an answer should have come."""
        deadline = time.monotonic() + self._seconds_left() + LATE
        was_paused = self._orders.is_paused
        while self._orders.now is Order.WORK and self._orders.is_paused is was_paused:
            left = deadline - time.monotonic()
            if connection.wait(0) or self._poll(left, [connection.fileno()]):
                return True
            if left <= 0:
                return False
        return False
