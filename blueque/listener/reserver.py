"""Reserver: the part of a Listener that pops tasks and reserves them.

A pop moves the id of a task from a line into our own list; then a reservation makes it ours. If an
answer is lost, our own list is settled before the next pop.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from blueque.connection.redis import Redis
from blueque.errors import NotFree, NotOwner
from blueque.listener.peer_wakeup import MOST_WANTED, PeerWakeup, Resources
from blueque.listener.processor import Processor
from blueque.listener.registration import Registration
from blueque.listener.resources import Claim, Pool
from blueque.listener.stale_holders import StaleHolders
from blueque.model.attempt_ref import AttemptRef
from blueque.model.lines import (
    DEFAULT,
    Needs,
    keys_among,
    needs_of,
    parse_needs,
    with_keys,
    without_keys,
    write_needs,
)
from blueque.model.start_time import EXPIRED
from blueque.model.task import Task
from blueque.protocol import alignment, placement, reserving
from blueque.protocol.reserving import Popped
from blueque.queries.inspector import Inspector
from blueque.queries.queues import running_limit_of
from blueque.queries.schedules import clock_of
from blueque.queries.steps import read

log = logging.getLogger("blueque")

MOST_MISPLACED = 100  # tasks that one look puts in the line where they belong


class Reserver:
    """The tasks that a listener has popped and reserved, and the resources of its node."""

    def __init__(self, redis: Redis) -> None:
        self._redis, self._inspector = redis, Inspector(redis)
        self._stale_holders = StaleHolders(redis)
        self._peer_wakeup = PeerWakeup(redis)
        self.pool: Pool | None = None  # what our node has for tasks that need some of it
        self.claim: Claim | None = None  # what is set aside for the task that `take` has returned
        # Takes a task id; returns the number of the newest attempt in our spool, by `created` of
        # the task.
        self.newest_attempts: Callable[[str], Mapping[str | None, int]] = lambda task_id: {}

    def offered(self) -> str | None:
        """Return what our node offers tasks, as its registration says; None: nothing."""
        payloads = self._redis.settings.payloads
        keys = frozenset[str]() if payloads is None else payloads.offered()
        if self.pool is None and not keys:
            return None
        return write_needs(with_keys({} if self.pool is None else self.pool.totals, keys))

    def take(self, ours: Registration) -> Task | None:
        """Reserve the next task of a queue, if there is one now. Our own list is settled already.

        Raises NotRegistered, RedisAway. Source: docs/protocol.md, "pop" and "reserve".
        """
        ours.is_list_unsure = True  # from here on it may hold an id that we know nothing of
        task, popped = None, Popped(refusal="choose")
        if ours.time_left is None:
            task, popped = self._take_next(ours, None)
        if popped.refusal not in (None, "paused"):
            task = self._choose(ours)
        ours.is_list_unsure = False
        if task is None:
            ours.has_marker = False
        elif ours.time_left is not None:
            ours.do_for_others(functools.partial(ours.time_left.warn, self._redis, task))
        return task

    def settle(self, ours: Registration, held: Sequence[str]) -> Task | None:
        """Reserve a task that a lost reply has left in our own list. None: there is none.

        held: the ids in that list, as read after a beat.
        """
        ours.pass_marker_on(True)
        for task_id in reversed(held):
            task = self._reserve_found(ours, task_id)
            if task is not None:
                return task
        ours.tokens.clear()  # whatever they were for is not in our list any more
        ours.is_list_unsure = False
        return None

    def _choose(self, ours: Registration) -> Task | None:
        """Reserve a task of the first line that has one which can run now."""
        had_marker = ours.has_marker
        running = read(self._redis, running_limit_of(ours.queue))
        if running.is_full:
            self._stale_holders.look(ours.queue, None, running)
            return None
        elsewhere: list[Resources] = []  # what another node may have, and ours has not, or not now
        task, popped = None, Popped()
        heads = self._inspector.heads(ours.queue)
        for head in heads:
            needs = head.needs
            if not head.length:
                alignment.align_line(self._redis, ours.queue, head.line)
            elif needs is None:  # malformed; written by another program, and named by the doctor
                continue
            elif head.is_locked:
                self._stale_holders.look(ours.queue, needs.lock)
            elif head.first is None or self._has_time(ours, head.first):
                task, popped = self._take_from(ours, head.line, needs)
                if task is not None:
                    break
                # so it is for all lines; the end of that wakes one of us
                if popped.refusal in ("limit", "paused"):
                    return None
                if popped.refusal == "resources" and needs.resources not in ((), *elsewhere):
                    elsewhere.append(needs.resources)
        if task is not None:
            ours.do_for_others(
                lambda: ours.pass_marker_on(popped.left > 0 or any(head.length for head in heads))
            )
        if elsewhere and had_marker:
            wanted = elsewhere[:MOST_WANTED]
            ours.do_for_others(lambda: self._peer_wakeup.call(ours.queue, wanted, ours.node))
        return task

    def _take_from(self, ours: Registration, line: str, needs: Needs) -> tuple[Task | None, Popped]:
        """Reserve the next task of a line if its needs are free. Return it and the last pop."""
        claim = self._claim(needs)
        if claim is False:
            return None, Popped(refusal="resources")
        task: Task | None = None
        try:
            task, popped = self._take_next(ours, line)
        finally:
            if task is not None:
                self.claim = claim
            elif claim:
                claim.close()
        if not popped.left and popped.refusal != "paused":
            ours.do_for_others(lambda: alignment.align_line(self._redis, ours.queue, line))
        return task, popped

    def _take_next(self, ours: Registration, line: str | None) -> tuple[Task | None, Popped]:
        """Pop until a task is reserved, none is left, or one has to wait. Return it and the last pop."""
        misplaced = 0
        now: float | None = None  # by the clock of Redis, once ours has called a task late
        while True:
            popped = reserving.pop(self._redis, ours.queue, ours.node, ours.instance or "", line)
            if popped.task is None:
                return None, popped
            if not self._has_time(ours, popped.task):  # another has taken the one before it
                ours.put_back(popped.task)
                return None, popped._replace(refusal="time")
            try:
                task = self._reserve(ours, popped.task, line=line or DEFAULT, now=now)
            except NotFree as error:
                if error.want == EXPIRED:
                    if now is None:
                        now = clock_of(self._redis)
                        continue
                    placement.expire(self._redis, ours.queue, popped.task, now)
                    log.info("expire task=%s queue=%s", popped.task, ours.queue)
                    continue
                misplaced += 1
                if misplaced < MOST_MISPLACED and _is_misplaced(error, line or DEFAULT):
                    continue
                return None, popped._replace(refusal=error.want)
            if line is None:
                ours.pass_marker_on(popped.left > 0)
            if task is not None:
                return task, popped

    def _has_time(self, ours: Registration, task_id: str) -> bool:
        """Return whether the task ends, by its limit, before our node ends it."""
        if ours.time_left is None:
            return True
        return ours.time_left.is_enough(task_id, self._inspector.time_limit(task_id))

    def _claim(self, needs: Needs) -> Claim | Literal[False] | None:
        """Take what a task needs of our node. None: it needs nothing. False: it is not available now."""
        if not needs.resources:
            return None
        wanted = dict(needs.resources)
        if keys := keys_among(needs.resources):
            payloads = self._redis.settings.payloads
            if payloads is None or not payloads.offered().issuperset(keys):
                return False
            wanted = without_keys(wanted)
            if not wanted:
                return None
        claim = self.pool.claim(wanted) if self.pool is not None else None
        return claim if claim is not None else False

    def _reserve_found(self, ours: Registration, task_id: str) -> Task | None:
        """Reserve a task that we have popped before, without a claim yet."""
        needs = parse_needs(self._inspector.task(task_id).fields.get("needs", "")) or Needs()
        claim = self._claim(needs) if self._has_time(ours, task_id) else False
        task: Task | None = None
        try:
            with contextlib.suppress(NotFree):
                task = self._reserve(ours, task_id, is_met=claim is not False)
        finally:  # Redis may be away
            if claim and task is None:
                claim.close()
        if task is not None and claim is False:
            self._hand_back(ours, task)
            return None
        if task is not None:
            self.claim = claim or None
        return task

    def _hand_back(self, ours: Registration, task: Task) -> None:
        """Release a reserved task, because its resources were taken meanwhile."""
        # Keep its token until that is known: with another it would be taken for one of a former
        # life.
        ours.tokens[task.id] = task.token or ""
        # NotOwner: we were found dead, and another listener has put it in line
        with contextlib.suppress(NotOwner):
            Processor(self._redis, task).release("needs_taken")
        del ours.tokens[task.id]

    def _reserve(
        self,
        ours: Registration,
        task_id: str,
        is_met: bool = True,
        line: str | None = None,
        now: float | None = None,
    ) -> Task | None:
        # The same token until the outcome is known: it is how a reservation that was made after all
        # is recognised.
        token = ours.tokens.setdefault(task_id, os.urandom(16).hex())
        attempt = AttemptRef(ours.queue, task_id, token, ours.node)
        instance, newest = ours.instance or "", self.newest_attempts(task_id)
        try:
            now = time.time() if now is None else now
            fields = reserving.reserve(self._redis, attempt, instance, now, is_met, line, newest)
        except NotFree as error:
            del ours.tokens[task_id]
            log.info("reserve queue=%s node=%s: %s", ours.queue, ours.node, error)
            if error.want == "resources":  # another node may have them free
                ours.do_for_others(ours.wake)
            raise
        del ours.tokens[task_id]
        named = task_id, ours.queue, ours.node
        if fields is None:
            log.info("reserve task=%s queue=%s node=%s: not available", *named)
            return None
        log.info("reserve task=%s queue=%s node=%s attempt=%s", *named, fields["attempt"])
        return Task(task_id, fields)


def _is_misplaced(error: NotFree, line: str) -> bool:
    """Return whether the waiting task belongs to another line than the one from which it was popped."""
    # What this line's tasks need of the node was set aside. Its lock may just have been taken by
    # another.
    return error.want == "resources" or (
        error.want == "lock" and (needs_of(line) or Needs()).lock is None
    )
