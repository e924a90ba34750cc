"""Listener: takes tasks from one queue, one at a time."""

from __future__ import annotations

import contextlib
import functools
import logging
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, overload

from blueque import protocol
from blueque.connection.redis import Connection, Patience, Redis
from blueque.errors import (
    Contended,
    InvalidInput,
    NodeTaken,
    NotFree,
    NotOwner,
    NotRegistered,
    RedisAway,
    RedisRefused,
)
from blueque.listener.peer_wakeup import MOST_WANTED, PeerWakeup, Resources
from blueque.listener.resources import Claim, Pool
from blueque.listener.stale_holders import StaleHolders
from blueque.model import keys, units
from blueque.model.attempt_ref import AttemptRef
from blueque.model.lines import DEFAULT, Needs, needs_of, parse_needs, write_needs
from blueque.model.retry import Retry
from blueque.model.start_time import EXPIRED
from blueque.model.task import Task
from blueque.model.units import Timing
from blueque.protocol.many_queues import Pulse
from blueque.protocol.membership import News, Standing
from blueque.protocol.reserving import Popped, offered
from blueque.queries.inspector import Inspector
from blueque.system import hosts, process
from blueque.version import __version__

if TYPE_CHECKING:
    from blueque.listener.time_left import TimeLeft

log = logging.getLogger("blueque")

IN_DEMAND = 60.0  # seconds after a task for which we expect the next one soon
MOST_MISPLACED = 100  # tasks that one look puts in the line where they belong


class Listener:
    """One listener of one queue, under the node id `[fqdn]_[pid]`.

    Your own programs call `listen`. Such a listener does not beat, and its registration says so.
    `blueque-listener` calls the other methods; they return at once, or when `is_answered` does.
    """

    def __init__(self, redis: Redis, queue: str) -> None:
        self.queue = queue
        self.instance: str | None = None  # set while we believe to be registered
        self._redis = redis
        self._node: str | None = None  # under which we are, or were, registered
        self._pid = 0
        self._beat = 0
        self._is_unsure = True  # our own list may hold an id that we never reserved
        self._has_marker = False
        self.has_order = False  # there is an order for us: beat, to see which
        # At the end of the last `idle` no task was in line, scheduled, or in our own list.
        self.is_bare = False
        self.pool: Pool | None = None  # what our node has for tasks that need some of it
        # until when tasks may run here; None: that is not known
        self.time_left: TimeLeft | None = None
        self.claim: Claim | None = None  # what is set aside for the task that `take` has returned
        # Takes a task id; returns the number of the newest attempt in our spool, by `created` of
        # the task.
        self.newest_attempts: Callable[[str], Mapping[str, int]] = lambda task_id: {}
        self.may_offer = False  # `take` may return a task that is not reserved yet; see `offer`
        # The fields in Redis of the task that `take` has returned, if it is still pending:
        # `Processor.take_and_start` reserves and starts it in one EXEC. Then call `note_started`.
        self.offer: dict[str, str] | None = None
        self._stale_holders, self._peer_wakeup = (
            StaleHolders(redis, queue),
            PeerWakeup(redis, queue),
        )
        self._tokens: dict[str, str] = {}  # of reservations whose outcome we do not know yet
        self._took_at = float("-inf")  # a task, on the monotonic clock
        self._has_chosen = False  # whether the last task was chosen among several lines
        self._popped: Popped | None = None  # what came of a pop in the EXEC of the last end
        self.obeys_settings = False  # read those of the queue with each beat
        self._news: dict[str, str | float] = {}  # fields of our registration to write with the beat

    @property
    def node(self) -> str:
        """The id of this listener, `[fqdn]_[pid]`. If another listener uses that id,
        `[fqdn]-[random]_[pid]`.
        """
        return (
            self._node if self._node is not None and self._pid == os.getpid() else process.node_id()
        )

    @property
    def is_registered(self) -> bool:
        """Whether this process has registered, and Redis has not said that this has ended."""
        return self.instance is not None and self._pid == os.getpid()

    @property
    def is_unsure(self) -> bool:
        """Whether our own list may hold a task that we have not reserved; see `settle`."""
        return self._is_unsure or self._popped is not None

    @property
    def has_popped(self) -> bool:
        """Whether the end of the last task has popped the next one, or found none; see `take`."""
        return self._popped is not None

    @property
    def has_marker(self) -> bool:
        """Whether a wake-up call has come to us for which we have not taken a task yet."""
        return self._has_marker

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
        patience, turn = Patience(self._redis.patience), Turn(timeout)
        while True:
            try:
                if not self.is_registered:
                    self.register(None)
                task = self.take()
                if task is not None:
                    break
                if turn.is_over:
                    return None
                self.idle(turn.seconds, turn.is_answered)
                patience = Patience(self._redis.patience)
            except NotRegistered:
                self.instance = None
            except (RedisAway, RedisRefused) as error:
                self._redis.close()
                if not patience.may_reconnect(error):
                    patience.pause_or_raise(error)
        if callback is not None:
            callback(task)
        return task

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
            task_id = protocol.claim(
                self._redis, self.queue, self.node, other, known.get("instance")
            )
            if task_id is not None:
                log.info(
                    "claim task=%s queue=%s node=%s dead=%s", task_id, self.queue, self.node, other
                )
                return inspector.task(task_id)
        return None

    def register(
        self, timing: Timing | None, spool: str | None = None, retry: Retry | None = None
    ) -> None:
        """Make this listener known.

        timing: by which others may judge it; None: it does not beat.
        spool: where the files of its attempts lie. retry: the policy of tasks that have none of
            their own.
        Source: docs/protocol.md, "register".
        """
        facts = self._facts(timing, spool, retry)
        instance = os.urandom(16).hex()
        # Keep the name that we had: a task of ours may be under it. Take no name under which another
        # listener has left tasks: its name would count as alive, and its tasks would stay there.
        node = self.node
        if self._node != node and Inspector(self._redis).reserved(self.queue, node):
            node = _another_name()
        while True:
            known = Inspector(self._redis).registration(self.queue, node)
            # One that had our pid: either it was us, or it cannot be there any more.
            dead = known.get("instance") if process.shares_pids(known) else None
            try:
                protocol.register(self._redis, self.queue, node, instance, facts, time.time(), dead)
            except NodeTaken as taken:
                # Containers may all have one host name, and pid 1. The other is judged by its beat,
                # like everybody.
                node = _another_name()
                log.info("%s; taking the name %s", taken, node)
            else:
                break
        self._node = node
        self.instance = instance
        self._pid = os.getpid()
        self._beat = 0
        self._news.clear()
        self._is_unsure = True
        log.info("register queue=%s node=%s", self.queue, self.node)

    def _facts(
        self, timing: Timing | None, spool: str | None, retry: Retry | None
    ) -> dict[str, str | int | float]:
        facts: dict[str, str | int | float] = (
            {"beat_every": 0}
            if timing is None
            else {"beat_every": timing.beat, "lease": timing.lease, "lost_after": timing.lost_after}
        )
        facts |= {"pid": os.getpid(), "version": __version__, **process.identity(os.getpid())}
        facts |= {} if spool is None else {"spool": spool}
        facts |= {} if retry is None else {"retry": retry.to_text()}
        facts |= {} if self.time_left is None else self.time_left.facts()
        facts |= {} if self.pool is None else {"resources": write_needs(self.pool.totals)}
        return facts

    def beat(self, task_id: str | None = None, may_hold: bool = True) -> Standing:
        """Beat, and read our orders and the state of the task that we watch.

        may_hold: whether to read our own list.
        Raises NotRegistered. Source: docs/protocol.md, "beat".
        """
        queue, node, instance, beat, facts = self.pulse()
        now = time.time()
        standing = protocol.beat(
            self._redis, queue, node, instance, beat, now, task_id, may_hold, facts
        )
        self.note_beaten(facts)
        return standing

    def pulse(self) -> Pulse:
        """Count a beat, and return what it writes."""
        self._beat += 1
        facts = tuple(self._news.items()) if self.obeys_settings else None
        return Pulse(self.queue, self.node, self.instance or "", self._beat, facts)

    def note_beaten(self, facts: News | None) -> None:
        """Note that a beat has written these fields of our registration."""
        for name, value in facts or ():
            if self._news.get(name) == value:
                del self._news[name]

    def change(self, retry: Retry | None, time_limit: float | None) -> None:
        """Use another policy and time limit for tasks that have none of their own; the next beat
        writes them into our registration.
        """
        self._news["retry"] = "" if retry is None else retry.to_text()
        if self.time_left is not None:
            self.time_left.set_limit(time_limit)
            self._news["time_limit"] = "" if time_limit is None else time_limit

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
                self._do_for_others(lambda: protocol.wake(self._redis, self.queue))

    def _take_next(self, line: str | None) -> tuple[Task | None, Popped]:
        """Pop until a task is reserved, the line is empty, or a task has to wait for others; return
        the task, and the last pop.
        """
        misplaced = 0
        while True:
            popped = self._pop(line)
            if popped.task is None:
                return None, popped
            if not self._has_time(popped.task):  # another listener has taken the one before it
                self._put_back(popped.task)
                return None, popped._replace(refusal="time")
            try:
                task = self._offered(popped.task, line or DEFAULT)
                if task is None:
                    task = self._reserve(popped.task, line=line or DEFAULT)
            except NotFree as error:
                if error.want == EXPIRED:
                    protocol.expire(self._redis, self.queue, popped.task, time.time())
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
        return protocol.pop(self._redis, self.queue, self.node, self.instance or "", line)

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
                protocol.drop_line(self._redis, self.queue, head.line)
            elif needs is None:  # by another program's grace; the doctor names it
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
            self._do_for_others(lambda: protocol.drop_line(self._redis, self.queue, line))
        return task, popped

    def _has_time(self, task_id: str) -> bool:
        """Tell whether the task ends, by its limit, before our node ends it."""
        if self.time_left is None:
            return True
        fields = Inspector(self._redis).time_limit(task_id)
        return self.time_left.is_enough(task_id, fields)

    def _call_for_time(self) -> None:
        if self.time_left is not None:
            self._peer_wakeup.call_for_time(self.time_left.wanted, self.node)

    def _claim(self, needs: Needs) -> Claim | Literal[False] | None:
        """Take what a task needs of our node: a claim, None if it needs nothing, False if it is not
        available now.
        """
        if not needs.resources:
            return None
        claim = self.pool.claim(dict(needs.resources)) if self.pool is not None else None
        return claim if claim is not None else False

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

    def idle(self, seconds: float, is_answered: Callable[[Connection], bool]) -> bool:
        """Wait for work or an order, and return whether there may be work. Source:
        docs/protocol.md, "wait".
        """
        self.is_bare = False
        self.take_marker(
            protocol.wait(
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

    def take_marker(self, marker: str | None) -> None:
        """Take notice of a marker that has come, if it is ours. Source: docs/protocol.md, "wait"."""
        self._has_marker = self._has_marker or marker == keys.wake(self.queue)
        self.has_order = self.has_order or marker == keys.orders(self.queue, self.node)

    def announce(
        self, what: Literal["drain", "leave", "pause", "work"], by: str = "a signal"
    ) -> None:
        """Write into our registration what we do. drain: take no task, ask ours to stop, and exit
        after it. leave: the same without asking. pause: take no task, but do not exit. work: take
        tasks again.

        by: the cause.
        Source: docs/protocol/operator.md, "order".
        """
        protocol.order(self._redis, self.queue, self.node, what, by)

    def watch_orders(self, seconds: float, is_answered: Callable[[Connection], bool]) -> None:
        """Wait for an order, busy with a task. Source: docs/protocol.md, "wait"."""
        self.take_marker(
            protocol.wait(
                self._redis, [(self.queue, self.node)], seconds, is_answered, is_idle=False
            )
        )

    def held(self) -> list[Task]:
        """Return the tasks in our own list that are reserved or started under our node id."""
        inspector = Inspector(self._redis)
        tasks = [inspector.task(task_id) for task_id in inspector.reserved(self.queue, self.node)]
        return [
            task
            for task in tasks
            if task.status in ("reserved", "started") and task.node == self.node
        ]

    def put_back(self, task_id: str) -> None:
        """Put a task of our own list back in its line, if it is pending: Redis has lost that we
        reserved it.

        One that we have reserved or started stays. Source: docs/protocol.md, "beat" and "reserve".
        """
        if self._put_back(task_id):
            log.warning(
                "put back task=%s queue=%s: Redis had lost its reservation", task_id, self.queue
            )
            self._do_for_others(lambda: protocol.wake(self._redis, self.queue))

    def _put_back(self, task_id: str) -> bool:
        attempt = AttemptRef(self.queue, task_id, os.urandom(16).hex(), self.node)
        try:
            protocol.reserve(self._redis, attempt, self.instance or "", time.time(), is_met=False)
        except NotFree:
            return True
        return False

    def release(self, task: Task, reason: str | None = None) -> str:
        """Hand back an attempt of ours; return the status that the task has now. Source:
        docs/protocol.md, "release".

        reason: one word, for the history of the task.
        """
        now, node = time.time(), task.node or ""
        status = protocol.release(
            self._redis, AttemptRef(self.queue, task.id, task.token, node), now, reason=reason
        )
        lock = task.fields.get("lock")
        if lock is not None:
            self._do_for_others(lambda: protocol.wake_waiting(self._redis, lock))
        return status

    def adopt(self, task: Task) -> Task | None:
        """Take over a started attempt from a listener that the caller knows to be dead; None:
        another was first.

        Source: docs/protocol/recovery.md, "adopt".
        """
        now, instance = time.time(), self.instance or ""
        fields = protocol.adopt(
            self._redis,
            AttemptRef(self.queue, task.id, task.token, task.node or ""),
            self.node,
            instance,
            now,
        )
        if fields is None:
            return None
        log.warning(
            "adopt task=%s queue=%s node=%s pid=%s from=%s",
            task.id,
            self.queue,
            self.node,
            task.pid,
            task.node,
        )
        return Task(task.id, fields)

    def reassert(self, task: Task, pid: int) -> Task | None:
        """Put back a running attempt of ours that Redis has lost; None: it is not ours to put back.

        Source: docs/protocol/recovery.md, "reassert".
        """
        identity = {name: str(value) for name, value in process.identity(pid).items()}
        ours = {**identity, **task.fields, "pid": str(pid)}
        now = time.time()
        fields = protocol.reassert(
            self._redis, self.queue, task.id, self.node, self.instance or "", ours, now
        )
        if fields is None:
            return None
        log.warning(
            "reassert task=%s queue=%s node=%s pid=%d: Redis had lost it",
            task.id,
            self.queue,
            self.node,
            pid,
        )
        return Task(task.id, fields)

    def restore(self, task: Task, pid: int, started: float) -> Task | None:
        """Take back a task that was declared lost although its process is there; None: it has
        another attempt by now.

        task: as it was when the attempt ran. Source: docs/protocol/recovery.md, "restore".
        """
        fields = protocol.restore(
            self._redis,
            AttemptRef(self.queue, task.id, task.token or "", self.node),
            self.instance or "",
            pid,
            process.identity(pid),
            started,
            time.time(),
        )
        if fields is None:
            return None
        log.warning("restore task=%s queue=%s node=%s pid=%d", task.id, self.queue, self.node, pid)
        return Task(task.id, fields)

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
        has_left = protocol.deregister(self._redis, self.queue, self.node, self.instance or "")
        if self._has_marker or Inspector(self._redis).has_work(self.queue):
            protocol.wake(self._redis, self.queue)
        if has_left:
            log.info("deregister queue=%s node=%s", self.queue, self.node)
            self.instance = None
        else:
            log.warning("leaving a task behind queue=%s node=%s", self.queue, self.node)
        return has_left

    def _empty_list(self) -> None:
        """Put back what we have popped and not reserved."""
        self._popped, self._is_unsure = None, True
        with contextlib.suppress(NotRegistered):  # we were found dead: others see to it
            self.beat()  # a pop that we gave up on does nothing any more when it arrives
            for task_id in Inspector(self._redis).reserved(self.queue, self.node):
                self._put_back(task_id)
            self._is_unsure = False

    def _pass_marker_on(self, is_work_left: bool) -> None:
        """Wake the next idle listener, if we have taken the marker and are not going to do all the
        work.
        """
        if not (self._has_marker and is_work_left) or self._do_for_others(
            lambda: protocol.wake(self._redis, self.queue)
        ):
            self._has_marker = False  # else it is ours still, and goes on with the next

    def _do_for_others(self, action: Callable[[], object]) -> bool:
        """Do it if Redis is there, and return whether it is done: no task that we have reserved is
        forgotten over it.
        """
        try:
            action()
        except (RedisAway, RedisRefused, Contended, NotRegistered) as error:
            log.info("take queue=%s node=%s: %s", self.queue, self.node, error)
            return False
        return True

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
        with contextlib.suppress(
            NotOwner
        ):  # we were found dead: another listener has put it in line
            self.release(task, "needs_taken")
        del self._tokens[task.id]
        log.info(
            "release task=%s queue=%s node=%s: what it needs is taken",
            task.id,
            self.queue,
            self.node,
        )

    def _reserve(self, task_id: str, is_met: bool = True, line: str | None = None) -> Task | None:
        # The same token until the outcome is known: it is how a reservation that was made after all
        # is recognised.
        token = self._tokens.setdefault(task_id, os.urandom(16).hex())
        now = time.time()
        node, instance = self.node, self.instance or ""
        try:
            fields = protocol.reserve(
                self._redis,
                AttemptRef(self.queue, task_id, token, node),
                instance,
                now,
                is_met,
                line,
                self.newest_attempts(task_id),
            )
        except NotFree as error:
            del self._tokens[task_id]
            log.info("reserve queue=%s node=%s: %s", self.queue, node, error)
            if error.want == "resources":  # another node may have them free
                self._do_for_others(lambda: protocol.wake(self._redis, self.queue))
            raise
        del self._tokens[task_id]
        if fields is None:
            log.info(
                "reserve task=%s queue=%s node=%s: not to be had", task_id, self.queue, self.node
            )
            return None
        log.info(
            "reserve task=%s queue=%s node=%s attempt=%s",
            task_id,
            self.queue,
            self.node,
            fields["attempt"],
        )
        return Task(task_id, fields)


class Turn:
    """How long a call waits for a task: the waits of `listen`, each for one beat at most.

    timeout: of the call; None: no limit. Raises InvalidInput.
    """

    def __init__(self, timeout: float | None) -> None:
        if timeout is not None and not timeout >= 0:  # or NaN
            raise InvalidInput(f"timeout is {timeout!r}; it has to be 0 or more seconds")
        self._deadline = math.inf if timeout is None else time.monotonic() + timeout

    @property
    def seconds(self) -> float:
        """For how long to wait now."""
        return min(max(self._deadline - time.monotonic(), 0.0), units.BEAT)

    @property
    def is_over(self) -> bool:
        return time.monotonic() >= self._deadline

    def is_answered(self, connection: Connection) -> bool:
        """Wait for the answer to a command that waits for that long."""
        return connection.wait(self.seconds + 5)


def _is_misplaced(error: NotFree, line: str) -> bool:
    """Tell whether the task that has to wait belongs to another line than this, from which it was
    popped.
    """
    # What this line's tasks need of the node was set aside. Its lock may just have been taken by
    # another.
    return error.want == "resources" or (
        error.want == "lock" and (needs_of(line) or Needs()).lock is None
    )


def _another_name() -> str:
    return f"{hosts.host_name()}-{os.urandom(3).hex()}_{os.getpid()}"
