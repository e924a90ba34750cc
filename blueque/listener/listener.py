"""Listener: takes tasks from one queue, one at a time."""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable
from typing import overload

from blueque.connection.redis import Connection, Redis
from blueque.listener.listening import wait_for_task
from blueque.listener.peer_wakeup import MOST_WANTED, PeerWakeup, Resources
from blueque.listener.reserver import Reserver
from blueque.listener.stale_holders import StaleHolders
from blueque.model.lines import Needs
from blueque.model.task import Task
from blueque.protocol import membership, placement, reserving
from blueque.protocol.reserving import Popped
from blueque.queries.inspector import Inspector
from blueque.system import process

log = logging.getLogger("blueque")

IN_DEMAND = 60.0  # seconds after a task for which we expect the next one soon


class Listener(Reserver):
    """One listener of one queue, under the node id `[fqdn]_[pid]`.

    Your own programs call `listen`. Such a listener does not beat, and its registration says so.
    `blueque-listener` calls the other methods; they return at once, or when `is_answered` does.

    Here is what waits, chooses a line, claims tasks of dead listeners, and leaves. What pops and
    reserves is in reserver.py, what adopts, hands back and restores attempts in owner.py, and what
    registers and beats in member.py.
    """

    def __init__(self, redis: Redis, queue: str) -> None:
        super().__init__(redis, queue)
        # At the end of the last `idle` no task was in line, scheduled, or in our own list.
        self.is_bare = False
        self._stale_holders = StaleHolders(redis, queue)
        self._peer_wakeup = PeerWakeup(redis, queue)
        self._took_at = float("-inf")  # a task, on the monotonic clock

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
        """Wait until a task is reserved for this listener and return it; `callback`, if given, is
        called with it first.

        timeout: in seconds; None is returned if no task has come by then. 0: look once.
        Source: docs/protocol.md, "pop", "reserve", "wait".
        """
        return wait_for_task(self._redis, self, [self], callback, timeout)

    def claim_orphan(self) -> Task | None:
        """Claim a task of a listener on this host whose process is gone; None when there is none.

        The task keeps the node of the dead listener. A reserved task has not started: run it with a
        Processor. A started task may still be running: wait until the process with its pid has
        ended. Source: docs/protocol/beside-1.0.0.md, "claim".
        """
        inspector = Inspector(self._redis)
        for other in sorted(inspector.listeners(self.queue)):
            pid = other.rpartition("_")[2]
            if other == self.node or not pid.isdecimal() or len(pid) > 9:
                continue
            known = inspector.registration(self.queue, other)
            is_here = process.shares_pids(known) if known else process.is_legacy_here(other)
            if not is_here or process.is_alive(int(pid), known):
                continue
            task_id = membership.claim(
                self._redis, self.queue, self.node, other, known.get("instance")
            )
            if task_id is not None:
                log.info(
                    "claim task=%s queue=%s node=%s dead=%s", task_id, self.queue, self.node, other
                )
                return inspector.task(task_id)
        return None

    def take(self) -> Task | None:
        """Reserve the next task, if there is one now.

        With `may_offer`, a task that needs nothing is only offered: see `offer`.
        Raises NotRegistered; RedisAway, after which the next call looks through our own list first.
        Source: docs/protocol.md, "pop" and "reserve"; docs/protocol/joined.md, "reserve_and_start".
        """
        self.offer = None
        if self._is_unsure:
            self._popped = None
            # A pop that we gave up on may still arrive. It does nothing any more once our
            # registration has changed.
            self.beat()
            task = self.settle(Inspector(self._redis).reserved(self.queue, self.node))
            if task is not None:
                return task
        self._is_unsure = True  # from here on an id may be in our list that we know nothing of
        task, popped = None, Popped(refusal="choose")
        if self.time_left is None:
            task, popped = self._take_next(None)
        self._has_chosen = popped.refusal not in (None, "paused")
        if self._has_chosen:
            task = self._choose()
        self._is_unsure = self.offer is not None
        if task is None:
            self._has_marker = False
        else:
            self._took_at = time.monotonic()
            if self.time_left is not None:
                warn = functools.partial(self.time_left.warn, self._redis, task)
                self._do_for_others(warn)
        return task

    def idle(self, seconds: float, is_answered: Callable[[Connection], bool]) -> bool:
        """Wait for work or an order, and return whether there may be work. Source:
        docs/protocol.md, "wait".
        """
        self.is_bare = False
        self.take_marker(
            reserving.wait(
                self._redis,
                [(self.queue, self.node)],
                seconds,
                is_answered,
                expects_task=time.monotonic() < self._took_at + IN_DEMAND,
            )
        )
        if self._has_marker or self.has_order:
            return True
        # A 1.0.0 producer wakes no listener, so look for ourselves as well; and an order may have been
        # to do that.
        inspector = Inspector(self._redis)
        self.is_bare = not inspector.has_anything([(self.queue, self.node)])
        return not self.is_bare and inspector.has_work(self.queue)

    def decline(self, is_work_left: bool = True) -> None:
        """Take nothing now, and let another listener have the wake-up call if it came to us and
        there is work.
        """
        self.return_popped()
        self._pass_marker_on(is_work_left)

    def leave(self) -> bool:
        """Deregister, and wake another listener if a wake-up came to us in vain. False: we still
        hold a task.

        Source: docs/protocol.md, "deregister" and "wake".
        """
        if self.is_unsure and self.is_registered:
            self._empty_list()
        has_left = membership.deregister(self._redis, self.queue, self.node, self.instance or "")
        if self._has_marker or Inspector(self._redis).has_work(self.queue):
            reserving.wake(self._redis, self.queue)
        if has_left:
            log.info("deregister queue=%s node=%s", self.queue, self.node)
            self.instance = None
        else:
            log.warning("leaving a task behind queue=%s node=%s", self.queue, self.node)
        return has_left

    def _choose(self) -> Task | None:
        """Reserve a task of the first line that has one which can run now, if there is one."""
        inspector, had_marker = Inspector(self._redis), self._has_marker
        room = inspector.room(self.queue)
        if room.is_full:
            self._stale_holders.look(None, room)
            return None
        is_too_long = False  # a task that others may run
        elsewhere: list[Resources] = []  # what another node may have, and ours has not, or not now
        task, popped = None, Popped()
        heads = inspector.heads(self.queue)
        for head in heads:
            needs = head.needs
            if not head.length:
                placement.drop_line(self._redis, self.queue, head.line)
            elif needs is None:  # malformed; written by another program, and named by the doctor
                continue
            elif head.is_locked:
                self._stale_holders.look(needs.lock)
            elif head.first is not None and not self._has_time(head.first):
                is_too_long = True
            else:
                task, popped = self._take_from(head.line, needs)
                if task is not None:
                    break
                # so it is for all lines; the end of that wakes one of us
                if popped.refusal in ("limit", "paused"):
                    return None
                if popped.refusal == "resources" and needs.resources not in ((), *elsewhere):
                    elsewhere.append(needs.resources)
        if task is not None:
            self._do_for_others(
                lambda: self._pass_marker_on(popped.left > 0 or any(head.length for head in heads))
            )
        if is_too_long and had_marker:
            self._do_for_others(self._call_for_time)
        if elsewhere and had_marker:
            self._do_for_others(lambda: self._peer_wakeup.call(elsewhere[:MOST_WANTED], self.node))
        return task

    def _take_from(self, line: str, needs: Needs) -> tuple[Task | None, Popped]:
        """Reserve the next task of a line, if what it needs of our node is free now; return it, and
        the last pop.
        """
        claim = self._claim(needs)
        if claim is False:
            return None, Popped(refusal="resources")
        task: Task | None = None
        try:
            task, popped = self._take_next(line)
        finally:
            if task is not None:
                self.claim = claim
            elif claim:
                claim.close()
        if not popped.left and popped.refusal != "paused":
            self._do_for_others(lambda: placement.drop_line(self._redis, self.queue, line))
        return task, popped

    def _call_for_time(self) -> None:
        if self.time_left is not None:
            self._peer_wakeup.call_for_time(self.time_left.wanted, self.node)
