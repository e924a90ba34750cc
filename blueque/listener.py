"""Listener: takes tasks from one queue, one at a time."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable

from blueque import keys, process, protocol, settings
from blueque.connection import Connection, Patience, Redis
from blueque.errors import NodeTaken, NotRegistered, RedisAway
from blueque.inspector import Inspector
from blueque.protocol.membership import Standing
from blueque.retry import Retry
from blueque.settings import Timing
from blueque.task import Task
from blueque.version import __version__

log = logging.getLogger("blueque")


class Listener:
    """One listener of one queue, under the node id `[fqdn]_[pid]`.

    `listen` is for programs of your own. Nobody beats for such a listener, and its registration says so. The listener
    program uses the others, which return at once or when told to.
    """

    def __init__(self, redis: Redis, queue: str) -> None:
        self.queue = queue
        self.instance: str | None = None               # set while we believe to be registered
        self._redis = redis
        self._node: str | None = None                  # under which we are, or were, registered
        self._pid = 0
        self._beat = 0
        self._is_unsure = True                         # our own list may hold an id that we never reserved
        self._has_marker = False
        self.has_order = False                         # somebody has left an order for us: beat, to see which
        self._tokens: dict[str, str] = {}              # of reservations whose outcome we do not know yet

    @property
    def node(self) -> str:
        """The id of this listener, `[fqdn]_[pid]`; where another uses that, `[fqdn]-[random]_[pid]`."""
        return self._node if self._node is not None and self._pid == os.getpid() else process.node_id()

    def listen(self, callback: Callable[[Task], object] | None = None) -> Task:
        """Wait until a task is reserved for this listener and return it; `callback`, if given, is called with it first.

        Source: docs/protocol.md, "pop", "reserve", "wait".
        """
        patience = Patience(self._redis.patience)
        while True:
            try:
                if self.instance is None or self._pid != os.getpid():
                    self.register(None)
                task = self.take()
                if task is not None:
                    break
                self.idle(settings.BEAT, lambda connection: connection.wait(settings.BEAT + 5))
                patience = Patience(self._redis.patience)
            except NotRegistered:
                self.instance = None
            except RedisAway as error:
                self._redis.close()
                patience.pause_or_raise(error)
        if callback is not None:
            callback(task)
        return task

    def claim_orphan(self) -> Task | None:
        """Claim a task of a listener on this host whose process is gone; None when there is none.

        The task keeps the dead listener's node. A reserved one has not started: run it with a Processor. A started one
        may still be running: wait for its pid. Source: docs/protocol.md, "claim".
        """
        inspector = Inspector(self._redis)
        host, _, _ = self.node.rpartition("_")
        for other in sorted(inspector.listeners(self.queue)):
            its_host, _, its_pid = other.rpartition("_")
            if its_host != host or other == self.node or not its_pid.isdecimal() or len(its_pid) > 9:
                continue
            known = inspector.registration(self.queue, other)
            if process.is_alive(int(its_pid), known):
                continue
            task_id = protocol.claim(self._redis, self.queue, self.node, other, known.get("instance"))
            if task_id is not None:
                log.info("claim task=%s queue=%s node=%s dead=%s", task_id, self.queue, self.node, other)
                return inspector.task(task_id)
        return None

    def register(self, timing: Timing | None, spool: str | None = None, retry: Retry | None = None) -> None:
        """Make this listener known.

        timing: by which others may judge it; None when nobody beats for it.
        spool: where the files of its attempts lie. retry: the policy of tasks that have none of their own.
        Source: docs/protocol.md, "register".
        """
        facts: dict[str, str | int | float] = {"beat_every": 0} if timing is None else {
            "beat_every": timing.beat, "lease": timing.lease, "lost_after": timing.lost_after
        }
        facts |= {"pid": os.getpid(), "version": __version__, **process.identity(os.getpid())}
        facts |= {} if spool is None else {"spool": spool}
        facts |= {} if retry is None else {"retry": retry.to_text()}
        instance = os.urandom(16).hex()
        # The name that we had: a task of ours may be under it. One under which another has left something is not for us:
        # who registers under it lives, and nobody would see to what the other has left.
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
                # Containers may all have one host name, and pid 1. The other is judged by its beat, like everybody.
                node = _another_name()
                log.info("%s; taking the name %s", taken, node)
            else:
                break
        self._node, self.instance, self._pid, self._beat, self._is_unsure = node, instance, os.getpid(), 0, True
        log.info("register queue=%s node=%s", self.queue, self.node)

    def beat(self, task_id: str | None = None) -> Standing:
        """Show that we live, and see what is wanted of us and how the task that we watch stands.

        Raises NotRegistered. Source: docs/protocol.md, "beat".
        """
        self._beat += 1
        return protocol.beat(
            self._redis, self.queue, self.node, self.instance or "", self._beat, time.time(), task_id
        )

    def take(self) -> Task | None:
        """Reserve the next task, if there is one now.

        Raises NotRegistered; RedisAway, after which the next call looks through our own list first.
        Source: docs/protocol.md, "pop" and "reserve".
        """
        if self._is_unsure:
            # A pop that we gave up on may still arrive. It does nothing any more once our registration has changed.
            self.beat()
            self._pass_marker_on(True)
            for task_id in reversed(Inspector(self._redis).reserved(self.queue, self.node)):
                task = self._reserve(task_id)
                if task is not None:
                    return task
            self._tokens.clear()                       # whatever they were for is not in our list any more
        while True:
            self._is_unsure = True                     # from here on an id may be in our list that we know nothing of
            popped, left = protocol.pop(self._redis, self.queue, self.node, self.instance or "")
            self._pass_marker_on(left > 0)
            task = None if popped is None else self._reserve(popped)
            self._is_unsure = False
            if popped is None or task is not None:
                return task

    def idle(self, seconds: float, is_answered: Callable[[Connection], bool]) -> bool:
        """Wait for work or an order, and return whether there may be work. Source: docs/protocol.md, "wait"."""
        marker = protocol.wait(self._redis, self.queue, self.node, seconds, is_answered)
        if marker == keys.wake(self.queue):
            self._has_marker = True
        self.has_order = self.has_order or marker == keys.orders(self.queue, self.node)
        # A 1.0.0 producer wakes nobody, so look for ourselves as well.
        return self._has_marker or Inspector(self._redis).pending(self.queue) > 0

    def announce_leaving(self) -> None:
        """Let everybody see that we take nothing new. Source: docs/protocol.md, "order"."""
        protocol.order(self._redis, self.queue, self.node, "drain", "a signal")

    def watch_orders(self, seconds: float, is_answered: Callable[[Connection], bool]) -> None:
        """Wait for an order, busy with a task. Source: docs/protocol.md, "wait"."""
        if protocol.wait(self._redis, self.queue, self.node, seconds, is_answered, is_idle=False) is not None:
            self.has_order = True

    def held(self) -> list[Task]:
        """Return the tasks in our own list that are reserved or started under our node id."""
        inspector = Inspector(self._redis)
        tasks = [inspector.task(task_id) for task_id in inspector.reserved(self.queue, self.node)]
        return [task for task in tasks if task.status in ("reserved", "started") and task.node == self.node]

    def release(self, task: Task) -> str:
        """Hand back an attempt of ours; return the status that the task has now. Source: docs/protocol.md, "release"."""
        return protocol.release(self._redis, self.queue, task.id, task.token, task.node or "", time.time())

    def adopt(self, task: Task) -> Task | None:
        """Take over a started attempt from a listener that the caller knows to be dead; None: another was first.

        Source: docs/protocol.md, "adopt".
        """
        now, instance = time.time(), self.instance or ""
        fields = protocol.adopt(self._redis, self.queue, task.id, task.token, task.node or "", self.node, instance, now)
        if fields is None:
            return None
        log.warning("adopt task=%s queue=%s node=%s pid=%s from=%s", task.id, self.queue, self.node, task.pid, task.node)
        return Task(task.id, fields)

    def reassert(self, task: Task, pid: int) -> Task | None:
        """Put back a running attempt of ours that Redis has lost; None: it is not ours to put back.

        Source: docs/protocol.md, "reassert".
        """
        identity = {name: str(value) for name, value in process.identity(pid).items()}
        ours = {**identity, **task.fields, "pid": str(pid)}
        now = time.time()
        fields = protocol.reassert(self._redis, self.queue, task.id, self.node, self.instance or "", ours, now)
        if fields is None:
            return None
        log.warning("reassert task=%s queue=%s node=%s pid=%d: Redis had lost it", task.id, self.queue, self.node, pid)
        return Task(task.id, fields)

    def restore(self, task: Task, pid: int, started: float) -> Task | None:
        """Take back a task that was declared lost although its process is there; None: it has another attempt by now.

        task: as it was when the attempt ran. Source: docs/protocol.md, "restore".
        """
        fields = protocol.restore(
            self._redis, self.queue, task.id, task.token or "", self.node, self.instance or "", pid,
            process.identity(pid), started, time.time(),
        )
        if fields is None:
            return None
        log.warning("restore task=%s queue=%s node=%s pid=%d", task.id, self.queue, self.node, pid)
        return Task(task.id, fields)

    def decline(self) -> None:
        """Take nothing now, and let another listener have the wake-up call if it came to us."""
        self._pass_marker_on(True)

    def leave(self) -> bool:
        """Take leave, and hand on the wake-up call if one went to us for nothing. False: we still hold a task.

        Source: docs/protocol.md, "deregister" and "wake".
        """
        has_left = protocol.deregister(self._redis, self.queue, self.node, self.instance or "")
        if Inspector(self._redis).pending(self.queue):
            protocol.wake(self._redis, self.queue)
        if has_left:
            log.info("deregister queue=%s node=%s", self.queue, self.node)
            self.instance = None
        return has_left

    def _pass_marker_on(self, is_work_left: bool) -> None:
        """Wake the next idle listener, if we have taken the marker and are not going to do all the work."""
        if self._has_marker and is_work_left:
            protocol.wake(self._redis, self.queue)
        self._has_marker = False

    def _reserve(self, task_id: str) -> Task | None:
        # The same token until the outcome is known: it is how a reservation that was made after all is recognised.
        token = self._tokens.setdefault(task_id, os.urandom(16).hex())
        now = time.time()
        fields = protocol.reserve(self._redis, self.queue, task_id, token, self.node, self.instance or "", now)
        del self._tokens[task_id]
        if fields is None:
            log.info("reserve task=%s queue=%s node=%s: not to be had", task_id, self.queue, self.node)
            return None
        log.info("reserve task=%s queue=%s node=%s attempt=%s", task_id, self.queue, self.node, fields["attempt"])
        return Task(task_id, fields)


def _another_name() -> str:
    return f"{process.host_name()}-{os.urandom(3).hex()}_{os.getpid()}"
