"""Member: the part of a Listener that makes it known: its node id, its registration, its beats, and
the wake-up calls that come to it.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from blueque.connection.redis import Connection, Redis
from blueque.errors import Contended, NodeTaken, NotRegistered, RedisAway, RedisRefused
from blueque.listener.resources import Pool
from blueque.model import keys
from blueque.model.lines import write_needs
from blueque.model.retry import Retry
from blueque.model.units import Timing
from blueque.protocol import membership, operator, reserving
from blueque.protocol.many_queues import Pulse
from blueque.protocol.membership import News, Standing
from blueque.queries.inspector import Inspector
from blueque.system import hosts, process
from blueque.version import __version__

if TYPE_CHECKING:
    from blueque.listener.time_left import TimeLeft

log = logging.getLogger("blueque")


class Member:
    """The registration of one listener, under the node id `[fqdn]_[pid]`."""

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
        self.pool: Pool | None = None  # what our node has for tasks that need some of it
        # until when tasks may run here; None: that is not known
        self.time_left: TimeLeft | None = None
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
    def has_marker(self) -> bool:
        """Whether a wake-up call has come to us for which we have not taken a task yet."""
        return self._has_marker

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
                membership.register(
                    self._redis, self.queue, node, instance, facts, time.time(), dead
                )
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

    def lost(self, error: NotRegistered) -> None:
        """Note that we are no longer registered. error: it counts for a ListenerGroup only."""
        self.instance = None

    def beat(self, task_id: str | None = None, may_hold: bool = True) -> Standing:
        """Beat, and read our orders and the state of the task that we watch.

        may_hold: whether to read our own list.
        Raises NotRegistered. Source: docs/protocol.md, "beat".
        """
        queue, node, instance, beat, facts = self.pulse()
        now = time.time()
        standing = membership.beat(
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

    def say_stuck(self, stuck: str) -> None:
        """Have the next beat say which task SIGKILL does not end, see docs/protocol/placement.md."""
        self._news["stuck"] = stuck

    def announce(
        self, what: Literal["drain", "leave", "pause", "work"], by: str = "a signal"
    ) -> None:
        """Write into our registration what we do. drain: take no task, ask ours to stop, and exit
        after it. leave: the same without asking. pause: take no task, but do not exit. work: take
        tasks again.

        by: the cause.
        Source: docs/protocol/operator.md, "order".
        """
        operator.order(self._redis, self.queue, self.node, what, by)

    def watch_orders(self, seconds: float, is_answered: Callable[[Connection], bool]) -> None:
        """Wait for an order, busy with a task. Source: docs/protocol.md, "wait"."""
        self.take_marker(
            reserving.wait(
                self._redis, [(self.queue, self.node)], seconds, is_answered, is_idle=False
            )
        )

    def take_marker(self, marker: str | None) -> None:
        """Take notice of a marker that has come, if it is ours. Source: docs/protocol.md, "wait"."""
        self._has_marker = self._has_marker or marker == keys.wake(self.queue)
        self.has_order = self.has_order or marker == keys.orders(self.queue, self.node)

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

    def _pass_marker_on(self, is_work_left: bool) -> None:
        """Wake the next idle listener, if we have taken the marker and are not going to do all the
        work.
        """
        if not (self._has_marker and is_work_left) or self._do_for_others(
            lambda: reserving.wake(self._redis, self.queue)
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


def _another_name() -> str:
    return f"{hosts.host_name()}-{os.urandom(3).hex()}_{os.getpid()}"
