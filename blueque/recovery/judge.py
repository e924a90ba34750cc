"""Recovery: finds dead listeners of a queue and handles what they held.

Any number of judges may do this at the same time. A listener is dead for certain when its process
is gone; only a judge on its own host can see that. From elsewhere only its beat can be seen. A
listener is taken for dead when its beat did not change for a whole lease, by the clock of a judge
that looked often, got every reply soon, and could have written itself: while Redis is unavailable,
or refuses writes, no lease expires. The lease is in the registration of the listener.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Set

from blueque.connection.redis import Redis
from blueque.errors import RedisAway, RedisRefused
from blueque.model import units
from blueque.model.attempt_ref import AttemptRef
from blueque.model.retry import Retry
from blueque.model.task import Task
from blueque.protocol import membership, placement, recover
from blueque.protocol.recover import Loss
from blueque.queries.inspector import Inspector
from blueque.system import process

log = logging.getLogger("blueque")

LONGEST_PACE = 10.0  # seconds between two looks
LOOK_AT_STARTED = 60.0  # seconds between two looks for started tasks of unregistered listeners


Observe = Callable[[str], tuple[dict[str, float], Set[str]]]


class _Observed:
    """One listener, as this judge has observed it."""

    def __init__(self, beat: float | None, since: float) -> None:
        self.beat, self.since = beat, since  # since: when the beat was first seen
        # Empty for a listener of 1.0.0; None: to be read.
        self.registration: dict[str, str] | None = None
        self.is_struck_by_us = False  # then no listener of 1.0.0 is about to claim its tasks

    @property
    def lease(self) -> float:
        # At least three beats, even if the registration says less: see docs/protocol.md.
        return max(
            _number(self.registration, "lease", units.LEASE),
            3 * _number(self.registration, "beat_every", 0.0),
        )

    @property
    def lost_after(self) -> float:
        return _number(self.registration, "lost_after", units.LOST_AFTER)

    @property
    def longest_gap(self) -> float:
        """Seconds without a look after which the observation starts anew."""
        is_dead = bool(self.registration) and (self.registration or {}).get("state") == "dead"
        return (self.lost_after if is_dead else self.lease) / 4

    def may_be_judged_by_time(self) -> bool:
        """Tell whether the listener beats. One used as a library does not, nor does 1.0.0."""
        return _number(self.registration, "beat_every", 0.0) > 0

    def restart(self, now: float) -> None:
        """Wait for a whole lease anew."""
        self.since = now


class Recovery:
    """A judge of the listeners of one queue.

    redis: without patience, because a look that has to be repeated has failed.
    observe: looks at the beats as `protocol.observe`; None: over `redis`.
    """

    def __init__(self, redis: Redis, queue: str, observe: Observe | None = None) -> None:
        self.own_node = ""  # of the listener that judges, if one does
        self.queue = queue
        self._redis = redis
        self._observe = observe
        self._inspector = Inspector(redis)
        self._observed: dict[str, _Observed] = {}
        self._members: Set[str] = frozenset()
        self._last_look: float | None = None  # None: it failed
        self._look_before: float | None = None
        self._next_look_at_started = 0.0
        # Nodes whose keys Redis refused to read, and that were logged.
        self._refused: set[str] = set()

    @property
    def pace(self) -> float:
        """Seconds from one look to the next."""
        if not self._observed:
            return LOOK_AT_STARTED
        beating = [each for each in self._observed.values() if each.may_be_judged_by_time()]
        return min([LONGEST_PACE, *(each.lease / 6 for each in beating)])

    @property
    def rest(self) -> float:
        """Seconds until the next look."""
        # The pace is from look to look: recovering tasks takes time, and a late look is a gap.
        spent = 0.0 if self._last_look is None else time.monotonic() - self._last_look
        return max(self.pace - spent, self.pace / 2)

    def step(self, members: Set[str] | None = None) -> list[Task]:
        """Look once, and handle what dead listeners hold. Return the started tasks of this host
        that no listener watches.

        members: the listeners of the queue, as a beat of the judge has just read them.
        Raises RedisAway, RedisRefused, Contended; each lease then starts anew.
        """
        if members is not None and self.is_still_alone(members):
            return []
        self.begin()
        if self._observe is None:
            beats, found = membership.observe(self._redis, self.queue, members)
        else:
            beats, found = self._observe(self.queue)
        now = time.monotonic()
        self.note_beats(beats, found, now)
        if self.looks_at_started(now):
            (nodes,) = self._inspector.nodes_of_started([self.queue])
            self.note_started(nodes, now)
        unread = self.unread()
        self.note_registrations(
            dict(zip(unread, self._inspector.registrations(unread), strict=True))
        )
        return self.judge(now)

    # The parts of a step, for a judge of several queues

    def is_still_alone(self, members: Set[str]) -> bool:
        """Tell whether there is no one to look at, as at the last look; this counts as a look."""
        now, alone = time.monotonic(), {self.own_node}
        # A listener that comes becomes a member.
        if not members == self._observed.keys() == alone or self.looks_at_started(now):
            return False
        self._last_look = now
        return True

    def begin(self) -> None:
        """Begin a look. It counts as failed until `judge` has ended it."""
        self._look_before, self._last_look = self._last_look, None

    def judge(self, now: float) -> list[Task]:
        """Judge the listeners by what was noted at `now`, and handle what the dead ones hold.
        Return as `step` does.
        """
        for observed in self._observed.values():
            # No look for too long, or the reply was late.
            if self._look_before is None or now - self._look_before > observed.longest_gap:
                observed.restart(now)
        orphans: list[Task] = []
        for node, observed in list(self._observed.items()):
            if node == self.own_node:
                continue
            try:
                if self._is_dead(node, observed, node in self._members, now):
                    orphans += self._recover_all(node, observed, now)
            except RedisRefused as error:
                # One of its keys has a wrong type; go on with the other listeners.
                self._log_refusal(node, error)
        self._last_look = now
        return orphans

    def note_beats(self, beats: dict[str, float], members: Set[str], now: float) -> None:
        """Note which listeners have a new beat. A listener that is in neither argument stays noted
        until a look finds that it holds no task.
        """
        self._members = members
        for node in {*beats, *members}:
            observed = self._observed.get(node)
            if observed is None:
                self._observed[node] = _Observed(beats.get(node), now)
            elif observed.beat != beats.get(node):
                observed.beat, observed.since = beats.get(node), now
                registration = observed.registration
                if registration is not None and registration.get("state") != "alive":
                    observed.registration = None  # it has registered again, or for the first time
        for node in self._observed.keys() - beats.keys() - members:
            # It may have deregistered, or been recovered by another judge.
            self._observed[node].registration = None

    def looks_at_started(self, now: float) -> bool:
        """Tell whether it is time to look for listeners that only started tasks name."""
        return now >= self._next_look_at_started

    def note_started(self, nodes: set[str], now: float) -> None:
        for node in nodes:
            self._observed.setdefault(node, _Observed(None, now))
        self._next_look_at_started = now + LOOK_AT_STARTED

    def unread(self) -> list[tuple[str, str]]:
        """Return the queue and node of each listener whose registration has to be read."""
        return [
            (self.queue, node)
            for node, observed in self._observed.items()
            if observed.registration is None
        ]

    def note_registrations(self, registrations: Mapping[tuple[str, str], dict[str, str]]) -> None:
        for queue, node in self.unread():
            self._observed[node].registration = registrations[queue, node]

    def _log_refusal(self, node: str, error: RedisRefused) -> None:
        if node not in self._refused:
            log.warning("cannot judge node=%s queue=%s: %s", node, self.queue, error)
            self._refused.add(node)

    def _is_dead(self, node: str, observed: _Observed, is_member: bool, now: float) -> bool:
        """Tell whether the listener is dead; fence it if that is new."""
        registration = observed.registration or {}
        if not registration:
            return self._is_legacy_dead(node, observed, is_member, now)
        if registration.get("state") == "dead":
            return True
        pid = _pid(registration.get("pid", ""))
        is_here = process.shares_pids(registration)
        is_gone = pid > 0 and is_here and not process.is_alive(pid, registration)
        is_still = observed.may_be_judged_by_time() and now - observed.since >= observed.lease
        if not (is_gone or is_still):
            return False
        observed.registration = fresh = self._inspector.registration(self.queue, node)
        has_beaten = is_still and _number(fresh, "beat_at", 0.0) != observed.beat
        if fresh.get("instance") != registration.get("instance") or has_beaten:
            observed.restart(now)
            return False
        instance, beat = fresh.get("instance", ""), fresh.get("beat")
        if not membership.fence(self._redis, self.queue, node, instance, beat, time.time()):
            observed.restart(now)
            return False
        seconds = now - observed.since
        why = "its process is gone" if is_gone else f"its beat did not change for {seconds:.0f} s"
        log.warning("fence node=%s queue=%s: %s", node, self.queue, why)
        observed.registration = self._inspector.registration(self.queue, node)
        return True

    def _is_legacy_dead(self, node: str, observed: _Observed, is_member: bool, now: float) -> bool:
        """Judge a listener without a registration: one of 1.0.0, or one that is gone."""
        if not is_member and not self._inspector.reserved(self.queue, node):
            del self._observed[node]  # it has deregistered
            return False
        if not is_member:
            # It may have been struck off by mistake, and 1.0.0 runs what it has popped without
            # asking again.
            return _is_gone_here(node) or (
                not process.is_legacy_here(node) and now - observed.since >= units.LOST_AFTER
            )
        if _is_gone_here(node):
            observed.is_struck_by_us = membership.strike(self._redis, self.queue, node)
        if observed.is_struck_by_us:
            log.warning("strike node=%s queue=%s: its process is gone", node, self.queue)
        return observed.is_struck_by_us

    def _recover_all(self, node: str, observed: _Observed, now: float) -> list[Task]:
        """Recover everything that a dead listener holds. Return its started tasks of this host."""
        orphans: list[Task] = []
        instance = (observed.registration or {}).get("instance")
        held = self._inspector.reserved(self.queue, node)
        left = len(held)
        for task_id in held:
            task = self._inspector.task(task_id)
            if task_id == held[0] and self._may_be_claimed(observed, task, now):
                continue
            done = self._recover(node, instance, task)
            if done == "started":
                is_here = _is_of_this_host(task)
                if self._is_lost(observed, task, is_here, now):
                    done = self._lose(node, observed, task)
                elif is_here and task.token is not None:
                    orphans.append(task)
            left -= done not in ("started", "claimed")
        if left == 0 and membership.forget(self._redis, self.queue, node, instance):
            log.log(
                logging.INFO if instance else logging.DEBUG,
                "forget node=%s queue=%s",
                node,
                self.queue,
            )
            del self._observed[node]
        return orphans

    def _may_be_claimed(self, observed: _Observed, task: Task, now: float) -> bool:
        """Tell whether a listener of 1.0.0 may be about to claim the newest entry, because it struck
        the dead listener off.
        """
        is_struck_by_legacy = not observed.registration or "struck" in observed.registration
        is_doubtful = (
            is_struck_by_legacy
            and not observed.is_struck_by_us
            and now - observed.since < units.LOST_AFTER
        )
        return is_doubtful and task.status == "reserved" and "reclaimed_node" not in task.fields

    def _recover(self, node: str, instance: str | None, task: Task) -> str | None:
        done = recover.recover(self._redis, self.queue, task.id, node, instance, time.time())
        if done == "claimed":
            claimant = task.fields.get("reclaimed_node", "")
            if _is_gone_here(claimant):
                done = recover.recover(
                    self._redis, self.queue, task.id, node, instance, time.time(), claimant
                )
        if done in ("released", "dropped"):
            log.warning("recover task=%s queue=%s from=%s: %s", task.id, self.queue, node, done)
            self._wake_waiting(task)
        return done

    def _is_lost(self, observed: _Observed, task: Task, is_here: bool, now: float) -> bool:
        """Tell whether to give up a started task of a dead listener."""
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

    def _is_unattended(self, observed: _Observed) -> bool:
        return bool(observed.registration) and not observed.may_be_judged_by_time()

    def _lose(self, node: str, observed: _Observed, task: Task) -> str | None:
        registration = observed.registration or {}
        seen = _number(registration, "beat_at", 0.0)
        now = time.time()
        error = f"lost: listener {node}{last_seen(seen)} is dead, and nobody knows how far process {task.pid} there had come"
        facts: dict[str, str | int | float] = {
            "lost_node": node,
            **({"last_seen": seen} if seen else {}),
        }
        default = Retry.parse(registration.get("retry"))
        became = recover.lose(
            self._redis,
            AttemptRef(self.queue, task.id, task.token, node),
            registration.get("instance"),
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
            placement.wake_waiting(self._redis, task.fields["lock"])
        except (RedisAway, RedisRefused) as error:
            # The task is recorded; listeners look for themselves at each beat.
            log.info("wake_waiting lock=%r: %s", task.fields["lock"], error)


def last_seen(at: float | str | None) -> str:
    """Return the part of a sentence that says when a listener was last seen. at: Unix seconds, or
    None.
    """
    try:
        return (
            time.strftime(", last seen at %Y-%m-%d %H:%M:%S UTC,", time.gmtime(float(at)))
            if at
            else ""
        )
    except (ValueError, OverflowError, OSError):  # malformed; written by another program
        return ""


def _is_of_this_host(task: Task) -> bool:
    """Tell whether the process of the task is on this host. 1.0.0 records only the host name."""
    if "boot" in task.fields:
        return process.shares_pids(task.fields)
    return process.is_legacy_here(task.node or "")


def _is_gone_here(node: str) -> bool:
    """Tell whether a listener of 1.0.0 was a process of this host that is gone."""
    pid = _pid(node.rpartition("_")[2])
    return process.is_legacy_here(node) and pid > 0 and not process.is_alive(pid, {})


def _pid(text: str) -> int:
    """Return the pid; 0 for text that is not a pid."""
    return int(text) if text.isdecimal() and len(text) < 10 else 0


def _number(registration: dict[str, str] | None, name: str, default: float) -> float:
    try:
        return float((registration or {}).get(name, default))
    except ValueError:
        return default
