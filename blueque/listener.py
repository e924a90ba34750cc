"""Listener: takes tasks from one queue, one at a time."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable

from blueque import process, protocol, settings
from blueque.connection import Connection, Patience, Redis
from blueque.errors import NotRegistered, RedisAway
from blueque.inspector import Inspector
from blueque.task import Task
from blueque.version import __version__

log = logging.getLogger("blueque")


class Listener:
    """One listener of one queue, under the node id `[fqdn]_[pid]`.

    `listen` is for programs of your own. Nobody beats for such a listener, and its registration says so. The listener
    program uses `register`, `beat`, `take`, `idle` and `leave`, which return at once or when told to.
    """

    def __init__(self, redis: Redis, queue: str) -> None:
        self.queue = queue
        self.instance: str | None = None               # set while we believe to be registered
        self._redis = redis
        self._pid = 0
        self._beat = 0
        self._is_unsure = True                         # our own list may hold an id that we never reserved
        self._has_marker = False
        self._tokens: dict[str, str] = {}              # of reservations whose outcome we do not know yet

    @property
    def node(self) -> str:
        """The id of this listener, `[fqdn]_[pid]`."""
        return process.node_id()

    def listen(self, callback: Callable[[Task], object] | None = None) -> Task:
        """Wait until a task is reserved for this listener and return it; `callback`, if given, is called with it first.

        Source: docs/protocol.md, "pop", "reserve", "wait".
        """
        patience = Patience(self._redis.patience)
        while True:
            try:
                if self.instance is None or self._pid != os.getpid():
                    self.register(beat_every=0)
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

    def register(self, beat_every: float = settings.BEAT, dead: str | None = None) -> None:
        """Make this listener known.

        beat_every: 0 when nobody beats for it.
        dead: the instance of a former listener under our node id that is known to be dead.
        Raises NodeTaken. Source: docs/protocol.md, "register".
        """
        instance = os.urandom(16).hex()
        facts = {"beat_every": beat_every, "pid": os.getpid(), "version": __version__, **process.identity(os.getpid())}
        known = Inspector(self._redis).registration(self.queue, self.node)
        if process.shares_pids(known):
            dead = known.get("instance")               # it had our pid: either it was us, or it cannot be there any more
        protocol.register(self._redis, self.queue, self.node, instance, facts, time.time(), dead)
        self.instance, self._pid, self._beat, self._is_unsure = instance, os.getpid(), 0, True
        log.info("register queue=%s node=%s", self.queue, self.node)

    def beat(self) -> None:
        """Show that we live. Raises NotRegistered. Source: docs/protocol.md, "beat"."""
        self._beat += 1
        protocol.beat(self._redis, self.queue, self.node, self.instance or "", self._beat, time.time())

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
        """Wait for work and return whether there may be some. Source: docs/protocol.md, "wait"."""
        if protocol.wait(self._redis, self.queue, seconds, is_answered):
            self._has_marker = True
        # A 1.0.0 producer wakes nobody, so look for ourselves as well.
        return self._has_marker or Inspector(self._redis).pending(self.queue) > 0

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
