"""Recovery: notices listeners that have died, and sees to what they left. Anybody may do it, any
number at once.

A listener is dead for certain when its process is gone: that can be seen on its own host only. From
elsewhere all there is to see is its beat. It is taken for dead when its beat stood still for a
whole lease, by the clock of whoever judges, who looked often, got every answer soon, and could have
written himself: a Redis that is away, or too full to write, stops every beat, and nobody is dead
    for it. What is known of a listener, its lease among it, is what it said itself.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping

from blueque import protocol
from blueque.connection.redis import Redis
from blueque.errors import RedisAway, RedisRefused
from blueque.model import units
from blueque.model.attempt_ref import AttemptRef
from blueque.model.retry import Retry
from blueque.model.task import Task
from blueque.protocol.recover import Loss
from blueque.queries.inspector import Inspector
from blueque.system import process

log = logging.getLogger("blueque")

LONGEST_PACE = 10.0  # seconds between two looks
LOOK_AT_STARTED = 60.0  # seconds between two looks for tasks of listeners nobody remembers


class _Seen:
    """One listener, as this judge has seen it."""

    def __init__(self, beat: float | None, since: float) -> None:
        self.beat, self.since = beat, since  # since when the beat has stood still
        self.known: dict[str, str] | None = None  # its registration; empty for one of 1.0.0
        self.is_struck_by_us = False  # nobody of 1.0.0 can be about to claim what it held

    @property
    def lease(self) -> float:
        # Three beats at least, whatever its program may have written there: see docs/protocol.md.
        return max(
            _number(self.known, "lease", units.LEASE), 3 * _number(self.known, "beat_every", 0.0)
        )

    @property
    def lost_after(self) -> float:
        return _number(self.known, "lost_after", units.LOST_AFTER)

    @property
    def longest_gap(self) -> float:
        """After how many seconds without a look the observation begins anew."""
        is_dead = bool(self.known) and (self.known or {}).get("state") == "dead"
        return (self.lost_after if is_dead else self.lease) / 4

    def may_be_judged_by_time(self) -> bool:
        """Tell whether somebody beats for it: nobody does for a Listener used as a library, nor for
        1.0.0.
        """
        return _number(self.known, "beat_every", 0.0) > 0

    def forget_time(self, now: float) -> None:
        self.since = now


class Recovery:
    """A judge of the listeners of one queue.

    redis: without patience, for a look that had to be repeated is a look that failed.
    """

    def __init__(self, redis: Redis, queue: str) -> None:
        self.own_node = ""  # of the listener that judges, if one does
        self.queue = queue
        self._redis = redis
        self._inspector = Inspector(redis)
        self._seen: dict[str, _Seen] = {}
        self._members: set[str] = set()
        self._last_look: float | None = None  # None: the last one failed
        self._last: float | None = None  # the one before this one
        self._next_look_at_started = 0.0
        # nodes that Redis would not tell us of, and that we have named
        self._refused: set[str] = set()

    @property
    def pace(self) -> float:
        """How many seconds there are from one look to the next."""
        if not self._seen:
            return LOOK_AT_STARTED  # there is nobody to be judged
        leases = [one.lease for one in self._seen.values() if one.may_be_judged_by_time()]
        return min([LONGEST_PACE, *(lease / 6 for lease in leases)])

    @property
    def rest(self) -> float:
        """For how many seconds there is nothing to do after a look."""
        # The pace is from look to look: seeing to what the dead hold takes its time, and a late
        # look is a gap.
        spent = 0.0 if self._last_look is None else time.monotonic() - self._last_look
        return max(self.pace - spent, self.pace / 2)

    def step(self) -> list[Task]:
        """Look once and do what is to be done now; return the started tasks of this host that
        nobody watches any more.

        Raises RedisAway, RedisRefused, Contended; all that was seen standing still has then to
        stand still anew.
        """
        self.begin()
        beats, members = protocol.observe(self._redis, self.queue)
        now = time.monotonic()
        self.take_notice(beats, members, now)
        if self.looks_at_started(now):
            (nodes,) = self._inspector.nodes_of_started([self.queue])
            self.take_notice_of_started(nodes, now)
        unread = self.unread()
        self.take_registrations(
            dict(zip(unread, self._inspector.registrations(unread), strict=True))
        )
        return self.judge(now)

    # The parts of a step, for a judge of several queues

    def begin(self) -> None:
        """Take the look that is about to begin for one that has failed, until it has come to its
        end.
        """
        self._last, self._last_look = self._last_look, None

    def judge(self, now: float) -> list[Task]:
        """Judge by what has been taken notice of `now`, and see to what the dead have left; return
        as `step` does.
        """
        for one in self._seen.values():
            # away for too long, or the answer was late
            if self._last is None or now - self._last > one.longest_gap:
                one.forget_time(now)
        orphans: list[Task] = []
        for node, one in list(self._seen.items()):
            if node == self.own_node:
                continue
            try:
                if self._is_dead(node, one, node in self._members, now):
                    orphans += self._see_to(node, one, now)
            except RedisRefused as error:
                # a key of it is not what it should be; the others are not to blame
                self._complain(node, error)
        self._last_look = now
        return orphans

    def take_notice(self, beats: dict[str, float], members: set[str], now: float) -> None:
        """Note who has moved. One that is not mentioned any more is kept until it is seen that it
        holds nothing.
        """
        self._members = members
        for node in {*beats, *members}:
            one = self._seen.get(node)
            if one is None:
                self._seen[node] = _Seen(beats.get(node), now)
            elif one.beat != beats.get(node):
                one.beat, one.since = beats.get(node), now
                if one.known is not None and one.known.get("state") != "alive":
                    one.known = None  # it has registered again, or for the first time
        for node in self._seen.keys() - beats.keys() - members:
            self._seen[node].known = None  # it may have taken leave, or been recovered by another

    def looks_at_started(self, now: float) -> bool:
        """Tell whether it is time to look for listeners that hold started tasks and are mentioned
        nowhere else.
        """
        return now >= self._next_look_at_started

    def take_notice_of_started(self, nodes: set[str], now: float) -> None:
        for node in nodes:
            self._seen.setdefault(node, _Seen(None, now))
        self._next_look_at_started = now + LOOK_AT_STARTED

    def unread(self) -> list[tuple[str, str]]:
        """Return the queue and node of each listener whose registration has to be read."""
        return [(self.queue, node) for node, one in self._seen.items() if one.known is None]

    def take_registrations(self, registrations: Mapping[tuple[str, str], dict[str, str]]) -> None:
        for queue, node in self.unread():
            self._seen[node].known = registrations[queue, node]

    def _complain(self, node: str, error: RedisRefused) -> None:
        if node not in self._refused:
            log.warning("cannot judge node=%s queue=%s: %s", node, self.queue, error)
            self._refused.add(node)

    def _is_dead(self, node: str, one: _Seen, is_member: bool, now: float) -> bool:
        """Tell whether it is dead by now, having declared it so if need be."""
        known = one.known or {}
        if not known:
            return self._is_legacy_dead(node, one, is_member, now)
        if known.get("state") == "dead":
            return True
        pid = _pid(known.get("pid", ""))
        is_gone = pid > 0 and process.shares_pids(known) and not process.is_alive(pid, known)
        is_still = one.may_be_judged_by_time() and now - one.since >= one.lease
        if not (is_gone or is_still):
            return False
        one.known = fresh = self._inspector.registration(self.queue, node)
        if fresh.get("instance") != known.get("instance") or (
            is_still and _number(fresh, "beat_at", 0.0) != one.beat
        ):
            one.forget_time(now)  # it has moved after all
            return False
        if not protocol.fence(
            self._redis, self.queue, node, fresh.get("instance", ""), fresh.get("beat")
        ):
            one.forget_time(now)
            return False
        why = (
            "its process is gone"
            if is_gone
            else f"its beat stood still for {now - one.since:.0f} s"
        )
        log.warning("fence node=%s queue=%s: %s", node, self.queue, why)
        one.known = self._inspector.registration(self.queue, node)
        return True

    def _is_legacy_dead(self, node: str, one: _Seen, is_member: bool, now: float) -> bool:
        """Judge a listener that has no registration: one of 1.0.0, or one that is not mentioned any
        more.
        """
        if not is_member and not self._inspector.reserved(self.queue, node):
            del self._seen[node]  # it has left in peace
            return False
        if not is_member:
            # Who struck it off may have been wrong, and 1.0.0 runs what it has popped without
            # asking again.
            return _is_gone_here(node) or (
                not process.is_legacy_here(node) and now - one.since >= units.LOST_AFTER
            )
        if _is_gone_here(node):
            one.is_struck_by_us = protocol.strike(self._redis, self.queue, node)
        if one.is_struck_by_us:
            log.warning("strike node=%s queue=%s: its process is gone", node, self.queue)
        return one.is_struck_by_us

    def _see_to(self, node: str, one: _Seen, now: float) -> list[Task]:
        """See to everything that a dead listener holds; return its started tasks that are of this
        host.
        """
        orphans: list[Task] = []
        instance = (one.known or {}).get("instance")
        held = self._inspector.reserved(self.queue, node)
        left = len(held)
        for task_id in held:
            task = self._inspector.task(task_id)
            if task_id == held[0] and self._may_be_claimed(one, task, now):
                continue
            done = self._recover(node, instance, task)
            if done == "started":
                is_here = _is_of_this_host(task)
                if self._is_lost(one, task, is_here, now):
                    done = self._lose(node, one, task)
                elif is_here and task.token is not None:
                    orphans.append(task)
            left -= done not in ("started", "claimed")
        if left == 0 and protocol.forget(self._redis, self.queue, node, instance):
            log.log(
                logging.INFO if instance else logging.DEBUG,
                "forget node=%s queue=%s",
                node,
                self.queue,
            )
            del self._seen[node]
        return orphans

    def _may_be_claimed(self, one: _Seen, task: Task, now: float) -> bool:
        """Tell whether a listener of 1.0.0 may be about to claim the newest entry: it struck the
        dead one off, not we.
        """
        is_struck_by_legacy = not one.known or "struck" in one.known
        is_doubtful = (
            is_struck_by_legacy and not one.is_struck_by_us and now - one.since < units.LOST_AFTER
        )
        return is_doubtful and task.status == "reserved" and "reclaimed_node" not in task.fields

    def _recover(self, node: str, instance: str | None, task: Task) -> str | None:
        done = protocol.recover(self._redis, self.queue, task.id, node, instance, time.time())
        if done == "claimed":
            claimant = task.fields.get("reclaimed_node", "")
            if _is_gone_here(claimant):
                done = protocol.recover(
                    self._redis, self.queue, task.id, node, instance, time.time(), claimant
                )
        if done in ("released", "dropped"):
            log.warning("recover task=%s queue=%s from=%s: %s", task.id, self.queue, node, done)
            self._wake_waiting(task)
        return done

    def _is_lost(self, one: _Seen, task: Task, is_here: bool, now: float) -> bool:
        """Tell whether a started task of a dead listener is to be given up."""
        if is_here:
            if process.is_alive(task.pid or 0, task.fields):
                return False
            # One of ours may have left an exit record in a spool, for a listener to find. One of
            # 1.0.0 has none.
            return task.token is None or now - one.since >= one.lost_after
        return (
            task.token is not None
            and now - one.since >= one.lost_after
            and not self._is_unattended(one)
        )

    def _is_unattended(self, one: _Seen) -> bool:
        return bool(one.known) and not one.may_be_judged_by_time()

    def _lose(self, node: str, one: _Seen, task: Task) -> str | None:
        known = one.known or {}
        seen = _number(known, "beat_at", 0.0)
        now = time.time()
        error = (
            f"lost: listener {node}{last_seen(seen)} is dead, and nobody knows how far process {task.pid} there had come; "
            f"to run it again: blueque requeue {task.id}"
        )
        facts: dict[str, str | int | float] = {
            "lost_node": node,
            **({"last_seen": seen} if seen else {}),
        }
        default = Retry.parse(known.get("retry"))
        became = protocol.lose(
            self._redis,
            AttemptRef(self.queue, task.id, task.token, node),
            known.get("instance"),
            Loss(error, facts),
            default,
            now,
        )
        log.warning("lose task=%s queue=%s node=%s status=%s", task.id, self.queue, node, became)
        self._wake_waiting(task)
        return became

    def _wake_waiting(self, task: Task) -> None:
        """Wake listeners of all queues that have tasks waiting for the lock that the attempt held."""
        if "lock" not in task.fields:
            return
        try:
            protocol.wake_waiting(self._redis, task.fields["lock"])
        except (RedisAway, RedisRefused) as error:
            # it is done; they look for themselves at each beat
            log.info("wake_waiting lock=%r: %s", task.fields["lock"], error)


def last_seen(at: float | str | None) -> str:
    """Return the part of a sentence that says when a listener was seen last; at: Unix seconds, or
    nothing.
    """
    try:
        return (
            time.strftime(", last seen at %Y-%m-%d %H:%M:%S UTC,", time.gmtime(float(at)))
            if at
            else ""
        )
    except (ValueError, OverflowError, OSError):  # another program may write anything there
        return ""


def _is_of_this_host(task: Task) -> bool:
    """Tell whether the task's process can be looked at here. 1.0.0 tells no more of one than its
    listener's host name.
    """
    if "boot" in task.fields:
        return process.shares_pids(task.fields)
    return process.is_legacy_here(task.node or "")


def _is_gone_here(node: str) -> bool:
    """Tell whether the process of a listener of 1.0.0, of which only the node is known, was on this
    host and is gone.
    """
    pid = _pid(node.rpartition("_")[2])
    return process.is_legacy_here(node) and pid > 0 and not process.is_alive(pid, {})


def _pid(text: str) -> int:
    """Return the pid; 0 for what is none."""
    return int(text) if text.isdecimal() and len(text) < 10 else 0


def _number(known: dict[str, str] | None, name: str, default: float) -> float:
    try:
        return float((known or {}).get(name, default))
    except ValueError:
        return default
