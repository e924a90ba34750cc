"""Recovery: finds dead listeners of some queues and handles what they held.

Any number of judges may do this at the same time. A listener is certainly dead when its process is
gone, which only a judge on its own host can see. Other judges see only its beat. They take it for
dead when its beat did not change for a whole lease, by their own clock. During that time they must
have looked often, with quick replies, and must have been able to write. So no lease expires while
Redis is unavailable or refuses writes. The lease is in the registration of the listener.
"""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from itertools import chain

from blueque.connection.redis import Redis
from blueque.errors import RedisRefused
from blueque.listener.peer_wakeup import wake_for_lock_of
from blueque.model import units
from blueque.model.attempt_ref import AttemptRef
from blueque.model.retry import Retry
from blueque.model.task import Task
from blueque.model.wrong_types import all_or_each
from blueque.protocol import membership, recover
from blueque.protocol.recover import Loss
from blueque.queries.inspector import Inspector
from blueque.recovery.observed import Observed, ObservedQueue, number
from blueque.system import process

log = logging.getLogger("blueque")

Observe = Callable[[Sequence[str]], list[tuple[dict[str, float], Set[str]]]]


class Recovery:
    """A judge of the listeners of some queues.

    redis: without patience, because a look that must be repeated has failed.
    observe: reads the beats as `membership.observe` does without `members`; None: over `redis`.
    """

    def __init__(self, redis: Redis, observe: Observe | None = None) -> None:
        self._redis, self._inspector = redis, Inspector(redis)
        self._observe = observe
        self._queues: dict[str, ObservedQueue] = {}
        # Queues, and nodes of queues, whose keys Redis refused to read, and that were logged.
        self._refused: set[tuple[str, str]] = set()

    def own(self, queue: str, node: str) -> None:
        """Set the node id of the judge in this queue: a listener does not judge itself."""
        self._of(queue).own_node = node

    def forget(self, queue: str) -> None:
        """Forget the observations of a queue."""
        self._queues.pop(queue, None)

    def rest(self, queues: Iterable[str]) -> float:
        """Return in how many seconds to look at these queues again."""
        now = time.monotonic()
        return min(self._of(queue).rest(now) for queue in queues)

    def step(
        self, queues: Sequence[str], members: Mapping[str, Set[str]] | None = None
    ) -> list[Task]:
        """Check the listeners of these queues once, and recover what dead ones hold.

        Return the started tasks of this host that no listener watches. While nothing happens that
        takes one round trip, or up to three.
        members: the listeners of each queue, as a beat of the judge has just read them.
        Raises RedisAway, RedisRefused, Contended; each lease then starts again.
        """
        if members is not None and not members.keys() >= set(queues):
            members = None
        some = [self._of(queue) for queue in queues]
        if members is not None:
            now = time.monotonic()
            some = [each for each in some if not each.is_still_alone(members[each.queue], now)]
        try:
            return [task for each in self._look(some, members) for task in self._judge(each)]
        except BaseException:
            for each in some:
                each.note_failure()
            raise

    def _of(self, queue: str) -> ObservedQueue:
        return self._queues.setdefault(queue, ObservedQueue(queue))

    def _look(
        self, some: Sequence[ObservedQueue], members: Mapping[str, Set[str]] | None
    ) -> Sequence[ObservedQueue]:
        """Read the listeners of all these queues at once; return the queues that could be read."""
        if not some:
            return []

        def leave_out(each: ObservedQueue, error: RedisRefused) -> None:
            if not error.is_wrong_type or len(some) == 1:
                raise error
            each.note_failure()
            self._log_refusal(each.queue, "", error)

        read = all_or_each(
            some, lambda all_or_one: self._look_at_once(all_or_one, members), leave_out
        )
        return [*chain(*read)]

    def _look_at_once(
        self, some: Sequence[ObservedQueue], members: Mapping[str, Set[str]] | None
    ) -> Sequence[ObservedQueue]:
        queues = [each.queue for each in some]
        observe = self._observe or functools.partial(
            membership.observe, self._redis, members=members
        )
        seen = observe(queues)
        now = time.monotonic()
        late = [each for each in some if each.looks_at_started(now)]
        started = self._inspector.nodes_of_started([each.queue for each in late]) if late else []
        for each, (beats, found) in zip(some, seen, strict=True):
            each.note_beats(beats, found, now)
        for each, nodes in zip(late, started, strict=True):
            each.note_started(nodes, now)
        unread = [listener for each in some for listener in each.unread()]
        registrations = self._inspector.registrations(unread)
        for (queue, node), registration in zip(unread, registrations, strict=True):
            self._of(queue).listeners[node].registration = registration
        for each in some:
            each.note_look(now)
        return some

    def _judge(self, each: ObservedQueue) -> list[Task]:
        """Judge the listeners of a queue by the observations, and recover what dead ones hold.

        Return as `step` does.
        """
        orphans: list[Task] = []
        for node, observed in list(each.listeners.items()):
            if node == each.own_node:
                continue
            try:
                if self._is_dead(each, node, observed):
                    orphans += self._recover_all(each, node, observed)
            except RedisRefused as error:
                # One of its keys has a wrong type; go on with the other listeners.
                self._log_refusal(each.queue, node, error)
        return orphans

    def _log_refusal(self, queue: str, node: str, error: RedisRefused) -> None:
        if (queue, node) not in self._refused:
            what = f"node={node}" if node else "the listeners of"
            log.warning("cannot judge %s queue=%s: %s", what, queue, error)
            self._refused.add((queue, node))

    def _is_dead(self, each: ObservedQueue, node: str, observed: Observed) -> bool:
        """Return whether the listener is dead; fence it if that is new."""
        queue, now = each.queue, each.looked_at
        registration = observed.registration or {}
        if not registration:
            return self._is_legacy_dead(each, node, observed)
        if registration.get("state") == "dead":
            return True
        pid = process.pid_of(registration.get("pid", ""))
        is_here = process.shares_pids(registration)
        is_gone = pid > 0 and is_here and not process.is_alive(pid, registration)
        is_still = observed.may_be_judged_by_time() and now - observed.since >= observed.lease
        if not (is_gone or is_still):
            return False
        observed.registration = fresh = self._inspector.registration(queue, node)
        has_beaten = is_still and number(fresh, "beat_at", 0.0) != observed.beat
        if fresh.get("instance") != registration.get("instance") or has_beaten:
            observed.restart(now)
            return False
        instance, beat = fresh.get("instance", ""), fresh.get("beat")
        if not membership.fence(self._redis, queue, node, instance, beat, time.time()):
            observed.restart(now)
            return False
        seconds = now - observed.since
        why = "its process is gone" if is_gone else f"its beat did not change for {seconds:.0f} s"
        log.warning("fence node=%s queue=%s: %s", node, queue, why)
        observed.registration = self._inspector.registration(queue, node)
        return True

    def _is_legacy_dead(self, each: ObservedQueue, node: str, observed: Observed) -> bool:
        """Judge a listener without a registration: one of 1.0.0, or one that is gone."""
        queue, is_member = each.queue, node in each.members
        if not is_member and not self._inspector.reserved(queue, node):
            del each.listeners[node]  # it has deregistered
            return False
        if not is_member:
            # It may have been struck off by mistake, and 1.0.0 runs what it has popped without
            # asking again.
            return _is_gone_here(node) or (
                not process.is_legacy_here(node)
                and each.looked_at - observed.since >= units.LOST_AFTER
            )
        if _is_gone_here(node):
            observed.is_struck_by_us = membership.fence(
                self._redis, queue, node, None, None, time.time()
            )
        if observed.is_struck_by_us:
            log.warning("fence node=%s queue=%s: its process is gone", node, queue)
        return observed.is_struck_by_us

    def _recover_all(self, each: ObservedQueue, node: str, observed: Observed) -> list[Task]:
        """Recover everything that a dead listener holds. Return its started tasks of this host."""
        queue, now = each.queue, each.looked_at
        orphans: list[Task] = []
        instance = (observed.registration or {}).get("instance")
        held = self._inspector.reserved(queue, node)
        left = len(held)
        for task_id in held:
            task = self._inspector.task(task_id)
            if task_id == held[0] and self._may_be_claimed(observed, task, now):
                continue
            done = self._recover(queue, node, instance, task)
            if done == "started":
                is_here = _is_of_this_host(task)
                if self._is_lost(observed, task, is_here, now):
                    done = self._lose(queue, node, observed, task)
                elif is_here and task.token is not None:
                    orphans.append(task)
            left -= done not in ("started", "claimed")
        if left == 0 and membership.deregister(self._redis, queue, node, instance, is_dead=True):
            level = logging.INFO if instance else logging.DEBUG
            log.log(level, "deregister node=%s queue=%s", node, queue)
            del each.listeners[node]
        return orphans

    def _may_be_claimed(self, observed: Observed, task: Task, now: float) -> bool:
        """Return whether a 1.0.0 listener, which removed the dead one, may claim the newest entry."""
        is_struck_by_legacy = not observed.registration or "struck" in observed.registration
        is_doubtful = (
            is_struck_by_legacy
            and not observed.is_struck_by_us
            and now - observed.since < units.LOST_AFTER
        )
        return is_doubtful and task.status == "reserved" and "reclaimed_node" not in task.fields

    def _recover(self, queue: str, node: str, instance: str | None, task: Task) -> str | None:
        done = recover.recover(self._redis, queue, task.id, node, instance, time.time())
        if done == "claimed":
            claimant = task.fields.get("reclaimed_node", "")
            if _is_gone_here(claimant):
                done = recover.recover(
                    self._redis, queue, task.id, node, instance, time.time(), claimant
                )
        if done in ("released", "dropped"):
            log.warning("recover task=%s queue=%s from=%s: %s", task.id, queue, node, done)
            wake_for_lock_of(self._redis, task)
        return done

    def _is_lost(self, observed: Observed, task: Task, is_here: bool, now: float) -> bool:
        """Return whether to give up a started task of a dead listener."""
        if is_here:
            if process.is_alive(task.pid or 0, task.fields):
                return False
            # A task of ours may have left an exit record in a spool, for a listener to find. A
            # task of 1.0.0 has none.
            return task.token is None or now - observed.since >= observed.lost_after
        return (
            task.token is not None
            and now - observed.since >= observed.lost_after
            and not self._is_unattended(observed)
        )

    def _is_unattended(self, observed: Observed) -> bool:
        return bool(observed.registration) and not observed.may_be_judged_by_time()

    def _lose(self, queue: str, node: str, observed: Observed, task: Task) -> str | None:
        registration = observed.registration or {}
        seen = number(registration, "beat_at", 0.0)
        now = time.time()
        error = f"lost: listener {node}{last_seen(seen)} is dead, and how far process {task.pid} got there is not known"
        facts: dict[str, str | int | float] = {
            "lost_node": node,
            **({"last_seen": seen} if seen else {}),
        }
        default = Retry.parse(registration.get("retry"))
        became = recover.lose(
            self._redis,
            AttemptRef(queue, task.id, task.token, node),
            registration.get("instance"),
            Loss(error, facts),
            default,
            now,
        )
        log.warning("lose task=%s queue=%s node=%s status=%s", task.id, queue, node, became)
        wake_for_lock_of(self._redis, task)
        return became


def last_seen(at: float | str | None) -> str:
    """Return the part of a sentence about when a listener was last seen. at: Unix seconds, or None."""
    try:
        return (
            time.strftime(", last seen at %Y-%m-%d %H:%M:%S UTC,", time.gmtime(float(at)))
            if at
            else ""
        )
    except (ValueError, OverflowError, OSError):  # malformed; written by another program
        return ""


def _is_of_this_host(task: Task) -> bool:
    """Return whether the process of the task is on this host. 1.0.0 records only the host name."""
    if "boot" in task.fields:
        return process.shares_pids(task.fields)
    return process.is_legacy_here(task.node or "")


def _is_gone_here(node: str) -> bool:
    """Return whether a listener of 1.0.0 was a process of this host that is gone."""
    pid = process.pid_of(node.rpartition("_")[2])
    return process.is_legacy_here(node) and pid > 0 and not process.is_alive(pid, {})
