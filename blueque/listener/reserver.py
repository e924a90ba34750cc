"""Reserver: the part of a Listener that pops tasks and reserves them.

A task comes in two steps: a pop moves its id from a line into our own list, and a reservation makes
it ours. If the answer to one of them is lost, our own list is settled before the next pop.
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
from blueque.errors import NotFree, NotOwner, NotRegistered
from blueque.listener.owner import Owner
from blueque.listener.resources import Claim
from blueque.model.attempt_ref import AttemptRef
from blueque.model.lines import DEFAULT, Needs, needs_of, parse_needs
from blueque.model.start_time import EXPIRED
from blueque.model.task import Task
from blueque.protocol import placement, reserving
from blueque.protocol.reserving import Popped, offered
from blueque.queries.inspector import Inspector
from blueque.queries.schedules import clock_of

log = logging.getLogger("blueque")

MOST_MISPLACED = 100  # tasks that one look puts in the line where they belong


class Reserver(Owner):
    """What one listener has popped and reserved."""

    def __init__(self, redis: Redis, queue: str) -> None:
        super().__init__(redis, queue)
        self.claim: Claim | None = None  # what is set aside for the task that `take` has returned
        # Takes a task id; returns the number of the newest attempt in our spool, by `created` of
        # the task.
        self.newest_attempts: Callable[[str], Mapping[str | None, int]] = lambda task_id: {}
        self.may_offer = False  # `take` may return a task that is not reserved yet; see `offer`
        # The fields in Redis of the task that `take` has returned, if it is still pending:
        # `Processor.take_and_start` reserves and starts it in one EXEC. Then call `note_started`.
        self.offer: dict[str, str] | None = None
        self._tokens: dict[str, str] = {}  # of reservations whose outcome we do not know yet
        self._has_chosen = False  # whether the last task was chosen among several lines
        self._popped: Popped | None = None  # what came of a pop in the EXEC of the last end

    @property
    def is_unsure(self) -> bool:
        """Whether our own list may hold a task that we have not reserved; see `settle`."""
        return self._is_unsure or self._popped is not None

    @property
    def has_popped(self) -> bool:
        """Whether the end of the last task has popped the next one, or found none; see `take`."""
        return self._popped is not None

    def note_started(self) -> None:
        """Note that the task that was offered is started: our list holds none that we do not know."""
        self._is_unsure = False

    def reserve_offered(self, task: Task) -> Task | None:
        """Reserve an offered task that cannot start now. None: it is not available any more."""
        with contextlib.suppress(NotFree):
            taken = self._reserve(task.id)
            self._is_unsure = False
            return taken
        return None

    def return_offered(self, task: Task) -> None:
        """Put a task that was offered back in its line."""
        self._popped = Popped(task.id)
        self.return_popped()

    def expect_pop(self) -> str | None:
        """Return our instance, for an end of an attempt that also pops the next task; None: it may
        not. Then tell what came of it: `note_popped`.
        """
        if self.is_unsure or self._has_chosen or not self.is_registered:
            return None
        self._is_unsure = True
        return self.instance

    def note_popped(self, popped: Popped | None) -> None:
        """Take what came of that pop for that of the next `take`; None: it is not known."""
        self._is_unsure = popped is None
        self._popped = popped if popped is not None and popped.refusal is None else None

    def return_popped(self) -> None:
        """Put back a task that came with the end of the last one, if we take nothing now."""
        popped, self._popped = self._popped, None
        if popped is not None and popped.task is not None:
            self._is_unsure = True
            if self._do_for_others(functools.partial(self._put_back, popped.task)):
                self._is_unsure = False
                self._do_for_others(lambda: reserving.wake(self._redis, self.queue))

    def settle(self, held: Sequence[str]) -> Task | None:
        """Reserve a task that a lost reply has left in our own list. None: there is none any more.

        held: the ids in that list, as read after a beat.
        """
        self._pass_marker_on(True)
        for task_id in reversed(held):
            task = self._reserve_found(task_id)
            if task is not None:
                return task
        self._tokens.clear()  # whatever they were for is not in our list any more
        self._is_unsure = False
        return None

    def _empty_list(self) -> None:
        """Put back what we have popped and not reserved."""
        self._popped, self._is_unsure = None, True
        with contextlib.suppress(NotRegistered):  # we were found dead: others see to it
            self.beat()  # a pop that we gave up on does nothing any more when it arrives
            for task_id in Inspector(self._redis).reserved(self.queue, self.node):
                self._put_back(task_id)
            self._is_unsure = False

    def _take_next(self, line: str | None) -> tuple[Task | None, Popped]:
        """Pop until a task is reserved, the line is empty, or a task has to wait for others; return
        the task, and the last pop.
        """
        misplaced = 0
        now: float | None = None  # by the clock of Redis, once ours has called a task late
        while True:
            popped = self._pop(line)
            if popped.task is None:
                return None, popped
            if not self._has_time(popped.task):  # another listener has taken the one before it
                self._put_back(popped.task)
                return None, popped._replace(refusal="time")
            try:
                task = self._offered(popped.task, line or DEFAULT) if now is None else None
                if task is None:
                    task = self._reserve(popped.task, line=line or DEFAULT, now=now)
            except NotFree as error:
                if error.want == EXPIRED:
                    if now is None:
                        now = clock_of(self._redis)
                        continue
                    placement.expire(self._redis, self.queue, popped.task, now)
                    log.info("expire task=%s queue=%s", popped.task, self.queue)
                    continue
                misplaced += 1
                if misplaced < MOST_MISPLACED and _is_misplaced(error, line or DEFAULT):
                    continue
                return None, popped._replace(refusal=error.want)
            if line is None:
                self._pass_marker_on(popped.left > 0)
            if task is not None:
                return task, popped

    def _pop(self, line: str | None) -> Popped:
        """Pop, unless that was done with the end of the last task."""
        popped, self._popped = self._popped, None
        if popped is not None and line is None:
            return popped._replace(left=1)  # how many are left is not known
        return reserving.pop(self._redis, self.queue, self.node, self.instance or "", line)

    def _offered(self, task_id: str, line: str) -> Task | None:
        """Return the task as it is to be started, if it can be reserved and started in one EXEC."""
        if not self.may_offer or (needs_of(line) or Needs()) != Needs():
            return None
        attempt = AttemptRef(self.queue, task_id, os.urandom(16).hex(), self.node)
        self.offer = offered(self._redis, attempt, time.time(), self.newest_attempts(task_id))
        if self.offer is None:
            return None
        written = {"status": "reserved", "node": self.node, "token": attempt.token or ""}
        now = str(time.time())
        return Task(task_id, self.offer | written | {"attempt": "1", "updated": now})

    def _has_time(self, task_id: str) -> bool:
        """Tell whether the task ends, by its limit, before our node ends it."""
        if self.time_left is None:
            return True
        fields = Inspector(self._redis).time_limit(task_id)
        return self.time_left.is_enough(task_id, fields)

    def _claim(self, needs: Needs) -> Claim | Literal[False] | None:
        """Take what a task needs of our node: a claim, None if it needs nothing, False if it is not
        available now.
        """
        if not needs.resources:
            return None
        claim = self.pool.claim(dict(needs.resources)) if self.pool is not None else None
        return claim if claim is not None else False

    def _reserve_found(self, task_id: str) -> Task | None:
        """Reserve a task that we have popped before, and for which we have claimed nothing yet."""
        needs = parse_needs(Inspector(self._redis).task(task_id).fields.get("needs", "")) or Needs()
        claim = self._claim(needs) if self._has_time(task_id) else False
        task: Task | None = None
        try:
            with contextlib.suppress(NotFree):
                task = self._reserve(task_id, is_met=claim is not False)
        finally:  # Redis may be away
            if claim and task is None:
                claim.close()
        if task is not None and claim is False:
            self._hand_back(task)
            return None
        if task is not None:
            self.claim = claim or None
        return task

    def _hand_back(self, task: Task) -> None:
        """Release a task that we had reserved after all, for another has meanwhile what was set
        aside for it.
        """
        # Keep its token until that is known: with another it would be taken for one of a former
        # life.
        self._tokens[task.id] = task.token or ""
        # NotOwner: we were found dead, and another listener has put it in line
        with contextlib.suppress(NotOwner):
            self.release(task, "needs_taken")
        del self._tokens[task.id]
        text = "release task=%s queue=%s node=%s: what it needs is taken"
        log.info(text, task.id, self.queue, self.node)

    def _reserve(
        self, task_id: str, is_met: bool = True, line: str | None = None, now: float | None = None
    ) -> Task | None:
        # The same token until the outcome is known: it is how a reservation that was made after all
        # is recognised.
        token = self._tokens.setdefault(task_id, os.urandom(16).hex())
        attempt = AttemptRef(self.queue, task_id, token, self.node)
        instance, newest = self.instance or "", self.newest_attempts(task_id)
        try:
            now = time.time() if now is None else now
            fields = reserving.reserve(self._redis, attempt, instance, now, is_met, line, newest)
        except NotFree as error:
            del self._tokens[task_id]
            log.info("reserve queue=%s node=%s: %s", self.queue, self.node, error)
            if error.want == "resources":  # another node may have them free
                self._do_for_others(lambda: reserving.wake(self._redis, self.queue))
            raise
        del self._tokens[task_id]
        named = task_id, self.queue, self.node
        if fields is None:
            log.info("reserve task=%s queue=%s node=%s: not available", *named)
            return None
        log.info("reserve task=%s queue=%s node=%s attempt=%s", *named, fields["attempt"])
        return Task(task_id, fields)


def _is_misplaced(error: NotFree, line: str) -> bool:
    """Tell whether the task that has to wait belongs to another line than this, from which it was
    popped.
    """
    # What this line's tasks need of the node was set aside. Its lock may just have been taken by
    # another.
    return error.want == "resources" or (
        error.want == "lock" and (needs_of(line) or Needs()).lock is None
    )
