"""Registration: a listener in one of its queues.

It has the node id, the registration, the markers that arrive for it, and the attempts under its node id.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from blueque.connection.redis import Redis
from blueque.errors import Contended, NotFree, NotRegistered, RedisAway, RedisRefused, Taken
from blueque.model import keys
from blueque.model.attempt_ref import AttemptRef
from blueque.model.retry import Retry
from blueque.model.task import Task
from blueque.protocol.membership import Heartbeat, News
from blueque.queries.inspector import Inspector
from blueque.system import hosts, process

if TYPE_CHECKING:
    from blueque.listener.time_left import TimeLeft
from blueque.protocol import membership, operator, recover, reserving

log = logging.getLogger("blueque")

Facts = dict[str, str | int | float]


class Registration:
    """One queue of a listener, in which it is registered under the node id `[fqdn]_[pid]`."""

    def __init__(self, redis: Redis, queue: str) -> None:
        self.queue = queue
        self.instance: str | None = None  # set while we believe to be registered
        self._redis = redis
        self._node: str | None = None  # under which we are, or were, registered
        self._pid = 0
        self._beat = 0
        self._news: dict[str, str | float] = {}  # fields to write with the next beat
        self._offered: str | int | float | None = None  # `resources` as we have written it
        self.is_list_unsure = True  # our own list may hold an id that we never reserved
        self.tokens: dict[str, str] = {}  # of reservations whose outcome we do not know yet
        self.has_marker = False  # a wake-up call has come for which we have not taken a task yet
        self.has_order = False  # there is an order for us: beat, to see which
        # until when tasks may run here; None: that is not known
        self.time_left: TimeLeft | None = None

    @property
    def node(self) -> str:
        """Our id in this queue: `[fqdn]_[pid]`, or `[fqdn]-[random]_[pid]` if another has that."""
        return (
            self._node if self._node is not None and self._pid == os.getpid() else process.node_id()
        )

    @property
    def is_registered(self) -> bool:
        """Whether this process has registered, and Redis has not ended that."""
        return self.instance is not None and self._pid == os.getpid()

    def register(self, facts: Facts) -> None:
        """Register the listener in this queue. Source: docs/protocol.md, "register".

        facts: fields of the registration.
        """
        if self.time_left is not None:
            facts = {**facts, **self.time_left.facts()}
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
                membership.register(
                    self._redis, self.queue, node, instance, facts, time.time(), dead
                )
            except Taken as taken:
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
        self._offered = facts.get("resources")
        self._news.clear()
        self.is_list_unsure = True
        log.info("register queue=%s node=%s", self.queue, self.node)

    def heartbeat(self, obeys_settings: bool) -> Heartbeat:
        """Count a beat and return what it writes."""
        self._beat += 1
        facts = tuple(self._news.items()) if obeys_settings else None
        return Heartbeat(self.queue, self.node, self.instance or "", self._beat, facts)

    def note_beaten(self, facts: News | None) -> None:
        """Record that a beat has written these fields of our registration."""
        for name, value in facts or ():
            if self._news.get(name) == value:
                del self._news[name]

    def change(self, retry: Retry | None, time_limit: float | None) -> None:
        """Change the policy and time limit of tasks that have none, written with the next beat."""
        self._news["retry"] = "" if retry is None else retry.to_text()
        if self.time_left is not None:
            self.time_left.set_limit(time_limit)
            self._news["time_limit"] = "" if time_limit is None else time_limit

    def offer(self, resources: str) -> None:
        """Let the next beat write what our node has, if that has changed: a key of payloads."""
        if resources != (self._offered or ""):
            self._offered = self._news["resources"] = resources

    def say_stuck(self, stuck: str) -> None:
        """Let the next beat report a task that SIGKILL does not end: docs/protocol/placement.md."""
        self._news["stuck"] = stuck

    def announce(
        self, what: Literal["drain", "leave", "pause", "work"], by: str = "a signal"
    ) -> None:
        """Write into our registration what we do; see `Listener.announce`."""
        operator.order(self._redis, self.queue, self.node, what, by)

    def take_marker(self, marker: str) -> None:
        """Record a marker that has arrived, if it is ours. Source: docs/protocol.md, "wait"."""
        self.has_marker = self.has_marker or marker == keys.wake(self.queue)
        self.has_order = self.has_order or marker == keys.orders(self.queue, self.node)

    def pass_marker_on(self, is_work_left: bool) -> None:
        """Wake the next idle listener, if we have taken the marker and will not do all the work."""
        if not (self.has_marker and is_work_left) or self.do_for_others(self.wake):
            self.has_marker = False  # else it is ours still, and goes on with the next

    def wake(self) -> None:
        """Wake an idle listener of this queue. Source: docs/protocol.md, "wake"."""
        reserving.wake(self._redis, self.queue)

    def do_for_others(self, action: Callable[[], object]) -> bool:
        """Do it if Redis answers; return whether it is done. A lost Redis must not cost a task."""
        try:
            action()
        except (RedisAway, RedisRefused, Contended, NotRegistered) as error:
            log.info("take queue=%s node=%s: %s", self.queue, self.node, error)
            return False
        return True

    def leave(self) -> bool:
        """Deregister, and wake another listener if a wake-up came to us in vain. False: we still
        hold a task.

        Source: docs/protocol.md, "deregister" and "wake".
        """
        has_left = membership.deregister(self._redis, self.queue, self.node, self.instance or "")
        if self.has_marker or Inspector(self._redis).has_work(self.queue):
            self.wake()
        if has_left:
            log.info("deregister queue=%s node=%s", self.queue, self.node)
            self.instance = None
        else:
            log.warning("leaving a task behind queue=%s node=%s", self.queue, self.node)
        return has_left

    def put_back(self, task_id: str) -> bool:
        """Put a pending task of our own list back in its line. Return whether it is back.

        A task that we have reserved or started stays.
        Source: docs/protocol.md, "beat" and "reserve".
        """
        attempt = AttemptRef(self.queue, task_id, os.urandom(16).hex(), self.node)
        try:
            reserving.reserve(self._redis, attempt, self.instance or "", time.time(), is_met=False)
        except NotFree:
            return True
        return False

    def put_back_lost(self, task_id: str) -> None:
        """Do the same with a task that we had reserved, if Redis has lost the reservation."""
        if self.put_back(task_id):
            text = "put back task=%s queue=%s: Redis had lost its reservation"
            log.warning(text, task_id, self.queue)
            self.do_for_others(self.wake)

    def claim_orphan(self) -> Task | None:
        """Claim a task of a dead listener of this queue; see `Listener.claim_orphan`."""
        queue, node, inspector = self.queue, self.node, Inspector(self._redis)
        for other in sorted(inspector.listeners(queue)):
            pid = process.pid_of(other.rpartition("_")[2])
            if other == node or pid == 0:
                continue
            known = inspector.registration(queue, other)
            is_here = process.shares_pids(known) if known else process.is_legacy_here(other)
            if not is_here or process.is_alive(pid, known):
                continue
            task_id = membership.claim(self._redis, queue, node, other, known.get("instance"))
            if task_id is not None:
                log.info("claim task=%s queue=%s node=%s dead=%s", task_id, queue, node, other)
                return inspector.task(task_id)
        return None

    def adopt(self, task: Task) -> Task | None:
        """Take over a started attempt of a listener that is known to be dead; None: another was first.

        Source: docs/protocol/recovery.md, "adopt".
        """
        attempt = AttemptRef(self.queue, task.id, task.token, task.node or "")
        fields = recover.adopt(self._redis, attempt, self.node, self.instance or "", time.time())
        if fields is None:
            return None
        text = "adopt task=%s queue=%s node=%s pid=%s from=%s"
        log.warning(text, task.id, self.queue, self.node, task.pid, task.node)
        return Task(task.id, fields)

    def reassert(self, task: Task, pid: int, since: str | None = None) -> Task | None:
        """Put back a running attempt of ours that Redis has lost; None: it is not ours to put back.

        since: our `instance` when we began to watch it. Source: docs/protocol/recovery.md,
            "reassert".
        """
        identity = {name: str(value) for name, value in process.identity(pid).items()}
        ours = {**identity, **task.fields, "pid": str(pid)}
        now = time.time()
        fields = recover.reassert(
            self._redis, self.queue, task.id, self.node, self.instance or "", ours, now, since
        )
        if fields is None:
            return None
        text = "reassert task=%s queue=%s node=%s pid=%d: Redis had lost it"
        log.warning(text, task.id, self.queue, self.node, pid)
        return Task(task.id, fields)

    def restore(self, task: Task, pid: int, started: float) -> Task | None:
        """Take back a task that was declared lost although its process is alive; None: it has
        another attempt.

        task: as it was when the attempt ran. Source: docs/protocol/recovery.md, "restore".
        """
        attempt = AttemptRef(self.queue, task.id, task.token or "", self.node)
        instance, identity = self.instance or "", process.identity(pid)
        fields = recover.restore(
            self._redis, attempt, instance, pid, identity, started, time.time()
        )
        if fields is None:
            return None
        log.warning("restore task=%s queue=%s node=%s pid=%d", task.id, self.queue, self.node, pid)
        return Task(task.id, fields)


def _another_name() -> str:
    return f"{hosts.host_name()}-{os.urandom(3).hex()}_{os.getpid()}"
