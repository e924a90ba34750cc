"""Listener: takes tasks from one or more queues, one at a time."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Literal, overload

from blueque.connection.redis import Connection, Patience, Redis
from blueque.errors import InvalidInput, NotRegistered, RedisAway, RedisRefused
from blueque.listener.beating import Beat
from blueque.listener.deadline import Deadline
from blueque.listener.registration import Facts, Registration
from blueque.listener.reserver import Reserver
from blueque.model.queue_order import Ordered, ReducedLottery, Select, require_select
from blueque.model.retry import Retry
from blueque.model.task import Task
from blueque.model.units import Timing
from blueque.model.wrong_types import unless_wrong_type
from blueque.protocol import reserving
from blueque.protocol.membership import BeatReply
from blueque.queries.inspector import Inspector
from blueque.system import process
from blueque.version import __version__

log = logging.getLogger("blueque")


class Listener:
    """A listener with the node id `[fqdn]_[pid]`. It takes one task at a time from all its queues.

    Your own programs call `listen`. Such a listener sends no heartbeats, and its registration says
    so. `blueque-listener` calls the other methods, which return at once, or when `is_answered` does.

    Each queue has a Registration, which also adopts, hands back and restores attempts there.
    `reserver` pops and reserves tasks.
    """

    def __init__(self, redis: Redis, queues: Sequence[str], select: Select | None = None) -> None:
        """Listen to these queues.

        select: which queue to try first, see queue_order.py.
        """
        if not queues:
            raise InvalidInput("a listener needs at least one queue")
        self.queues = list(dict.fromkeys(queues))
        self._redis, self._select = redis, require_select(select) or Ordered()
        self._inspector = Inspector(redis)
        self._registrations = {queue: Registration(redis, queue) for queue in self.queues}
        self.reserver = Reserver(redis)
        self.obeys_settings = False  # read those of the queues with each beat
        # At the end of the last `idle` no task was in line, scheduled, or in our own lists.
        self.has_nothing = False
        self._gone: set[str] = set()  # queues from which we have deregistered
        # (action, queue) that Redis refuses, logged once each
        self._refused: set[tuple[str, str]] = set()

    def __iter__(self) -> Iterator[Registration]:
        return iter(self._registrations.values())

    def of(self, queue: str | None) -> Registration:
        """Return the registration in one of the queues. Raises KeyError for any other."""
        return self._registrations[queue or ""]

    def has(self, queue: str | None) -> bool:
        return queue in self._registrations

    @property
    def node(self) -> str:
        """Our node id in the first queue. In another queue it differs if another listener uses it there."""
        return self.of(self.queues[0]).node

    @property
    def has_order(self) -> bool:
        """Whether an order for us waits in any of the queues; the next beat reads it."""
        return any(each.has_order for each in self)

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
        """Wait until a task is reserved for this listener, and return it.

        callback: called with the task before it is returned.
        timeout: in seconds; return None if no task has come by then. 0: look once. None: no limit.
        Raises RedisAway when Redis does not answer within the patience of the client; RedisRefused.
        Source: docs/protocol.md, "pop", "reserve", "wait".
        """
        patience, deadline = Patience(self._redis.patience), Deadline(timeout)
        while True:
            try:
                for each in self:
                    if not each.is_registered:
                        self.register(None, queue=each.queue)
                task = self.take()
                if task is not None:
                    break
                if deadline.is_over:
                    return None
                self.idle(deadline.seconds, deadline.is_answered)
                patience = Patience(self._redis.patience)
            except NotRegistered as error:
                self.lost(error)
            except (RedisAway, RedisRefused) as error:
                self._redis.close()
                if not patience.may_reconnect(error):
                    patience.pause_or_raise(error)
        if callback is not None:
            callback(task)
        return task

    def claim_orphan(self) -> Task | None:
        """Claim a task of a listener on this host whose process is gone; None if there is none.

        The task keeps the node of the dead listener. A reserved task has not started: run it with a
        Processor. A started task may still be running: wait until the process with its pid has ended.
        Source: docs/protocol/beside-1.0.0.md, "claim".
        """
        found = (each.claim_orphan() for each in self)
        return next((task for task in found if task is not None), None)

    def register(
        self,
        timing: Timing | None,
        spool: str | None = None,
        retry: Retry | None = None,
        queue: str | None = None,
    ) -> None:
        """Register this listener in all its queues, or in this one.

        timing: how others may judge whether it is alive; None: it sends no heartbeats.
        spool: the directory for the files of its attempts.
        retry: the policy of tasks that have none.
        Source: docs/protocol.md, "register".
        """
        facts: Facts = {"beat_every": 0}
        if timing is not None:
            facts = {"beat_every": timing.beat, "lease": timing.lease}
            facts |= {"lost_after": timing.lost_after}
        facts |= {"pid": os.getpid(), "version": __version__, **process.identity(os.getpid())}
        facts |= {} if spool is None else {"spool": spool}
        facts |= {} if retry is None else {"retry": retry.to_text()}
        offered = self.reserver.offered()
        facts |= {} if offered is None else {"resources": offered}
        for each in self if queue is None else [self.of(queue)]:
            each.register(facts)

    def lost(self, error: NotRegistered) -> None:
        """Record that we are no longer registered in the queue of the error."""
        self.of(error.queue).instance = None

    def beat(self, task_id: str | None = None, may_hold: bool = True) -> BeatReply:
        """Beat in all queues; read our orders and the state of the task that we watch.

        may_hold: whether to read our own lists.
        Raises NotRegistered or RedisRefused for one queue, after beating in the others. Refusals in
            further queues are logged.
        Source: docs/protocol.md, "beat".
        """
        if self._redis.settings.payloads is not None:
            for each in self:
                each.offer(self.reserver.offered() or "")
        beat = Beat(self._redis, task_id, may_hold, self.obeys_settings)
        try:
            standing = beat.beat([*self])
        except RedisRefused as raised:
            for queue, error in beat.refused.items():
                if error is not raised:
                    self._note_refused(queue, error, "beat in")
            raise
        self._refused -= {("beat in", queue) for queue in self.queues}
        return standing

    def take(self) -> Task | None:
        """Reserve the next task, from the queue that the selector chooses. None: no queue has one now.

        Raises NotRegistered; RedisAway, after which the next call looks through our own lists first.
        Source: docs/protocol.md, "pop" and "reserve".
        """
        called = [each for each in self if each.has_marker]
        ready = {each.queue for each in called}
        task = self._settle()
        if task is None:
            ready = {each for each in self._with_work() if not self.of(each).is_list_unsure}
            task = self._take_from(ready)
        for each in called:  # pass on the calls that we do not answer
            if each.has_marker:
                self._decline(each, each.queue in ready)
        return task

    def idle(self, seconds: float, is_answered: Callable[[Connection], bool]) -> bool:
        """Wait for work in any of the queues, or for an order; return whether there may be work.

        Source: docs/protocol.md, "wait".
        """
        self.has_nothing = False
        if self._wait(seconds, is_answered, is_idle=True):
            return True
        # A 1.0.0 producer wakes no listener, so look for ourselves as well; and an order may have
        # been to do that.
        self.has_nothing = not self._inspector.has_anything(self._names())
        return not self.has_nothing and self._inspector.has_any_work(self.queues)

    def watch_orders(self, seconds: float, is_answered: Callable[[Connection], bool]) -> None:
        """Wait for an order while a task runs. Source: docs/protocol.md, "wait"."""
        self._wait(seconds, is_answered, is_idle=False)

    def wake(self, queues: Iterable[str]) -> None:
        """Wake an idle listener of each of these queues. Source: docs/protocol.md, "wake"."""
        for queue in queues:
            reserving.wake(self._redis, queue)

    def decline(self) -> None:
        """Take no task now, and pass the wake-up calls that came to us on to other listeners."""
        for each in self:
            self._decline(each, True)

    def _decline(self, ours: Registration, is_work_left: bool) -> None:
        ours.pass_marker_on(is_work_left)

    def held(self) -> list[Task]:
        """Return the tasks in our own lists that are reserved or started under our node ids."""
        lists = self._inspector.held(self._names())
        return [
            task
            for (queue, node), held in zip(self._names(), lists, strict=True)
            for task in map(self._inspector.task, held)
            if task.status in ("reserved", "started") and (task.queue, task.node) == (queue, node)
        ]

    def weigh(self, queue: str, weight: float) -> None:
        """Give a queue another weight if a lottery chooses. Raises InvalidInput, InvalidType."""
        if isinstance(self._select, ReducedLottery):
            self._select.weigh(queue, weight)

    def announce(
        self, what: Literal["drain", "leave", "pause", "work"], by: str = "a signal"
    ) -> None:
        """Write into our registrations what we do.

        what: "drain": take no more tasks, ask ours to stop, then exit. "leave": the same without
            asking. "pause": take no tasks, but do not exit. "work": take tasks again.
        by: the cause.
        Source: docs/protocol/operator.md, "order".
        """
        for each in self:
            each.announce(what, by)

    def leave(self) -> bool:
        """Deregister from all queues. Return False if we still hold a task."""
        for each in self:
            if each.queue in self._gone:
                continue
            if each.is_list_unsure and each.is_registered:
                self._empty_list(each)
            if each.leave():
                self._gone.add(each.queue)
        return len(self._gone) == len(self.queues)

    def _empty_list(self, ours: Registration) -> None:
        """Put back tasks that we have popped and not reserved."""
        instance = ours.instance
        try:
            # A pop that we gave up on does nothing any more when it arrives.
            Beat(self._redis, None, True, self.obeys_settings).beat([ours])
            for task_id in self._inspector.reserved(ours.queue, ours.node):
                ours.put_back(task_id)
            ours.is_list_unsure = False
        except NotRegistered:  # we were found dead: others see to our list
            ours.instance = instance  # the registration is ours still, to deregister

    def _settle(self) -> Task | None:
        """Look through our unsure lists and return a task that is found there.

        A list that cannot be read stays unsure.
        """
        unsure = [each for each in self if each.is_list_unsure]
        if not unsure:
            return None
        # A pop that we gave up on may still arrive. It does nothing any more once our registration
        # has changed. A queue with a key of a wrong type must not stop the others.
        beat = Beat(self._redis, None, True, self.obeys_settings)
        unless_wrong_type(lambda: beat.beat([*self]), lambda error: None)
        for each in unsure:
            with self._skipping(each.queue):
                if each.queue in beat.refused:  # our registration is as it was
                    raise beat.refused[each.queue]
                held = self._inspector.reserved(each.queue, each.node)
                task = self.reserver.settle(each, held)
                if task is not None:
                    return task
        return None

    def _with_work(self) -> set[str]:
        """Return the queues that have work. A single queue is not asked, because the pop tells as well."""
        if len(self.queues) == 1:
            return {*self.queues}
        return self._inspector.with_work(self.queues, self._note_refused)

    def _take_from(self, ready: set[str]) -> Task | None:
        """Try the queues that have work, in the order of the selector, then those that it left out."""
        if not ready:
            return None
        tried: set[str] = set()
        left = (queue for queue in self.queues if queue in ready - tried)
        for queue in chain(self._select(self.queues, ready), left):
            if not self.has(queue):
                raise InvalidInput(f"the selector names a queue that is not listened to: {queue!r}")
            tried.add(queue)
            with self._skipping(queue):
                task = self.reserver.take(self.of(queue))
                self._refused.discard(("take from", queue))
                if task is not None:
                    return task
        return None

    @contextlib.contextmanager
    def _skipping(self, queue: str, action: str = "take from") -> Iterator[None]:
        """Skip a queue that has a key of a wrong type, and log it once."""
        try:
            yield
        except RedisRefused as error:
            if not error.is_wrong_type or len(self.queues) == 1:
                raise
            self._note_refused(queue, error, action)

    def _note_refused(self, queue: str, error: RedisRefused, action: str = "take from") -> None:
        if (action, queue) not in self._refused:
            log.error("cannot %s queue=%s, going on with the others: %s", action, queue, error)
        self._refused.add((action, queue))

    def _names(self) -> list[tuple[str, str]]:
        return [(each.queue, each.node) for each in self]

    def _wait(
        self, seconds: float, is_answered: Callable[[Connection], bool], is_idle: bool
    ) -> bool:
        def wait(listeners: Sequence[tuple[str, str]]) -> str | None:
            return reserving.wait(self._redis, listeners, seconds, is_answered, is_idle)

        def wait_for_others(error: RedisRefused) -> str | None:
            heard = self._with_markers()
            if not heard:
                raise error
            return wait(heard)

        marker = unless_wrong_type(lambda: wait(self._names()), wait_for_others)
        for each in self:
            if marker is not None:
                each.take_marker(marker)
        return marker is not None

    def _with_markers(self) -> list[tuple[str, str]]:
        """Return those of our registrations whose markers can be waited for."""
        found = []
        for queue, node in self._names():
            with self._skipping(queue, "wait for"):
                self._inspector.markers(queue, node)
                found.append((queue, node))
        return found
