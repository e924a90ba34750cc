"""Firing: make the tasks of schedules whose time has come, in schedulers and listeners."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping, Sequence

from blueque.connection.redis import Redis
from blueque.errors import Contended, RedisAway, RedisRefused
from blueque.model.parts import in_parts
from blueque.model.schedule import Occurrence
from blueque.protocol import occurrences
from blueque.protocol.occurrences import Plan, plan_of
from blueque.queries import schedules
from blueque.system.outage import Outage

log = logging.getLogger("blueque")

SCHEDULES_AT_ONCE = 100  # schedules that are looked at in one step
IN_MEMORY = 16  # whose records are read together: each may have parameters of a MiB
MOVED_ON = 1.0  # seconds until a schedule that made nothing is looked at again
REFUSED = 60.0  # seconds until a schedule that cannot be read is looked at again


class Firing:
    """Finds the schedules that are due, and decides about each.

    queues: only schedules of these; None: all.
    """

    def __init__(self, redis: Redis, queues: Collection[str] | None = None) -> None:
        self._redis, self._queues = redis, queues
        # name -> when to look at it again, on the monotonic clock
        self._left_alone: dict[str, float] = {}
        self._named: set[str] = set()  # unreadable schedules that the log names already
        self._skip = 0  # how many of other queues are due before ours
        self._refusals = Outage("")

    def step(self) -> float | None:
        """Decide about at most a hundred schedules. Return in how many seconds the next is due.

        0: more may be due now. None: nothing is planned.
        Raises RedisAway, Contended. Schedules that this user may not read or write are logged once
            and left to others.
        """
        try:
            wait = self._step()
        except RedisRefused as error:
            if not self.note(error):
                raise
            return None
        self.note(None)
        return wait

    def note(self, error: RedisRefused | None, name: str = "") -> bool:
        """Log once that Redis refuses a command for schedules, or for one schedule, and once that
        it no longer does. False: it is another refusal.
        """
        if error is not None and not error.concerns_keys:
            return False
        return self._refusals.note(error, "making no tasks of schedules", name)

    def _step(self) -> float | None:
        monotonic = time.monotonic()
        self._left_alone = {name: at for name, at in self._left_alone.items() if at > monotonic}
        skip = self._skip
        now, first = schedules.first(
            self._redis, SCHEDULES_AT_ONCE + len(self._left_alone) + 1, skip
        )
        due = [name for name, score in first.items() if score <= now]
        names = [name for name in due if name not in self._left_alone][:SCHEDULES_AT_ONCE]
        if not names:
            self._skip = 0
            return self._wait(now, first)
        ours = self._ours(names)
        for some in in_parts(ours, IN_MEMORY):
            self._decide(some, now)
        if self._queues is not None:
            self._skip = skip + len(names) - len(ours) if len(names) == SCHEDULES_AT_ONCE else 0
        is_more = bool(ours or self._skip) or len(names) == SCHEDULES_AT_ONCE
        return 0.0 if is_more else self._wait(now, first)

    def _ours(self, names: Sequence[str]) -> list[str]:
        """Return the names of schedules of our queues."""
        if self._queues is None:
            return [*names]
        # Not by the whole records: those of others may be many and large.
        found = zip(names, schedules.queues(self._redis, names), strict=True)
        return [
            name
            for name, queue in found
            if self._is_readable(name, queue) and queue in self._queues
        ]

    def _decide(self, names: Sequence[str], now: float) -> None:
        found = zip(names, schedules.records(self._redis, names), strict=True)
        records = {name: record for name, record in found if self._is_readable(name, record)}
        self._fire(self._plans(records, now))

    def _wait(self, now: float, first: Mapping[str, float]) -> float | None:
        """Return in how many seconds to check a schedule."""
        coming = [score - now for score in first.values() if now < score < float("inf")]
        again = [at - time.monotonic() for at in self._left_alone.values()]
        return max(min([*coming, *again]), 0.0) if coming or again else None

    def _is_readable(self, name: str, reply: object) -> bool:
        if isinstance(reply, RedisRefused):
            self._leave_alone(name, reply)
            return False
        return True

    def _plans(
        self, records: Mapping[str, Mapping[str, str] | RedisRefused], now: float
    ) -> dict[str, Plan]:
        plans: dict[str, Plan] = {}
        for name, record in records.items():
            assert not isinstance(record, RedisRefused)  # see _is_readable
            try:
                plan = plan_of(name, record, now)
            except Exception as error:  # whatever another program has written, the others come
                self._leave_alone(name, error)
                continue
            if plan is None:  # another was faster, or its score is wrong, which doctor mends
                self._left_alone[name] = time.monotonic() + MOVED_ON
            else:
                plans[name] = plan
        return plans

    def _fire(self, plans: Mapping[str, Plan]) -> None:
        for name, plan in plans.items():
            try:
                _log(name, occurrences.fire(self._redis, name, plan), plan.step.missed)
                self._named.discard(name)
                self.note(None, name)
            except (RedisAway, Contended):
                raise
            except Exception as error:
                self._leave_alone(name, error)

    def _leave_alone(self, name: str, error: Exception) -> None:
        self._left_alone[name] = time.monotonic() + REFUSED
        if isinstance(error, RedisRefused) and error.code == "NOPERM":  # of many schedules
            self.note(error, name)
        elif name not in self._named:
            self._named.add(name)
            log.warning("skipping schedule %r: %s", name, error)


def _log(name: str, came: Occurrence | None, missed: Sequence[tuple[int, str]]) -> None:
    """missed: planned times and reasons, as in the step that was fired."""
    if came is None:
        return
    if missed:
        first, last = missed[0][0], missed[-1][0]
        log.info("missed schedule=%s planned=%d until=%d times=%d", name, first, last, len(missed))
    if came.task is not None:
        log.info("%s schedule=%s planned=%d task=%s", came.what, name, came.planned, came.task)
