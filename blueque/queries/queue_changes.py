"""Sees at once when a queue gets work or a scheduled task, without polling.

Redis reports which keys that it read have changed. An idle Redis gets no commands, and a task of a
1.0.0 producer, which sends no wake-up, is seen in milliseconds. Where Redis does not report
changes, the caller has to refresh each second.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from blueque.connection.redis import Command, Connection, as_scores, raise_refusal, time_of
from blueque.connection.tracked import Tracked
from blueque.errors import RedisRefused
from blueque.model import keys
from blueque.model.parts import in_parts

_UNSETTLED = (keys.UNSETTLED_TASKS, keys.UNSETTLED_MEMBERS, keys.GROUPS)

BATCH = 500  # queues that are read in one write


class View(NamedTuple):
    """The state of one queue.

    is_pending: a task is in line, or may be: another line than the default line is listed.
    next_eta: of its next scheduled task, in Unix seconds.
    next_recheck: when to recheck a blocked task.
    refusal: the answer of Redis instead, for a key of a wrong type or without the right to read it.
    """

    is_pending: bool = False
    next_eta: float | None = None
    next_recheck: float | None = None
    refusal: str | None = None


class Unsettled(NamedTuple):
    """Ends that the waiting tasks may not know of.

    tasks: a few, oldest first, and when each ended. has_members: there are some of members of
        groups. group_at: when to check a group; None: there is no group.
    """

    tasks: Mapping[str, float]
    has_members: bool
    group_at: float | None


class Lookout:
    """Watches all queues of one Redis. `views` is their last state; `fileno()` is readable when it
    may have changed.

    listeners: how many each queue has, as `blueque_queues` counts them.
    """

    def __init__(self, connect: Callable[[], Connection]) -> None:
        self.views: dict[str, View] = {}
        self.listeners: dict[str, float] = {}
        # What `unsettled` returns may have changed since it was called.
        self.is_unsettled = True
        # What `next_occurrence` returns may have changed since it was called.
        self.is_replanned = True
        self._tracked = Tracked(connect)
        self._stale: set[str] = set()

    @property
    def is_tracking(self) -> bool:
        return self._tracked.is_tracking

    def fileno(self) -> int | None:
        return self._tracked.fileno()

    def has_news(self) -> bool:
        """Return whether a change arrived with another reply, where `fileno()` does not show it."""
        return self._tracked.has_news()

    def look_again_at(self, queue: str) -> None:
        """Make the next refresh read this queue."""
        self._stale.add(queue)

    def unsettled(self, limit: int) -> Unsettled:
        """Return ends that the waiting tasks may not know of, at most `limit` of tasks.

        Raises RedisAway, RedisRefused.
        """
        replies = self._tracked.exchange(
            ("ZRANGE", keys.UNSETTLED_TASKS, 0, limit - 1, "WITHSCORES"),
            ("EXISTS", keys.UNSETTLED_MEMBERS),
            ("ZRANGE", keys.GROUPS, 0, 0, "WITHSCORES"),
        )
        raise_refusal(replies)
        tasks, has_members, group = replies
        self.is_unsettled = bool(tasks)
        return Unsettled(as_scores(tasks), bool(has_members), _lowest(group))

    def next_occurrence(self) -> float | None:
        """Return in how many seconds, by the clock of Redis, to check a schedule; None: there is none.

        Raises RedisAway, RedisRefused.
        """
        replies = self._tracked.exchange(("TIME",), ("ZRANGE", keys.SCHEDULES, 0, 0, "WITHSCORES"))
        raise_refusal(replies)
        self.is_replanned = False
        at = _lowest(replies[1])
        return None if at is None or at == float("inf") else at - time_of(replies[0])

    def refresh(self, whole: bool = False) -> set[str]:
        """Read what has changed, or everything; return the queues that were read. Raises RedisAway."""
        try:
            return self._refresh(whole)
        except BaseException:  # what was reported is to be read the next time
            self.close()
            raise

    def close(self) -> None:
        self._tracked.close()

    def _refresh(self, whole: bool) -> set[str]:
        changed = self._tracked.changed()
        if whole or changed is None:
            changed = {keys.QUEUES, keys.SCHEDULES, *_UNSETTLED}
            self.views.clear()
        self.is_unsettled = self.is_unsettled or not changed.isdisjoint(_UNSETTLED)
        self.is_replanned = self.is_replanned or keys.SCHEDULES in changed
        stale = {queue for queue in self.views if changed.intersection(_watched(queue))}
        stale |= self._stale & set(self.views)
        self._stale.clear()
        if keys.QUEUES in changed:
            replies = self._tracked.exchange(("ZRANGE", keys.QUEUES, 0, -1, "WITHSCORES"))
            raise_refusal(replies)
            self.listeners = as_scores(replies[0])
            stale |= set(self.listeners) - set(self.views)
            self.views = {
                queue: view for queue, view in self.views.items() if queue in self.listeners
            }
        for queues in in_parts(sorted(stale), BATCH):
            self._read(queues)
        return stale

    def _read(self, queues: Sequence[str]) -> None:
        """Read some queues. One command for all comes first, because usually none has anything."""
        every = [key for queue in queues for key in _watched(queue)]
        (anything,) = self._tracked.exchange(("EXISTS", *every))
        if anything == 0:
            self.views.update(dict.fromkeys(queues, View()))
            return
        commands: list[Command] = []
        for queue in queues:
            commands += [("EXISTS", keys.pending(queue), keys.lines(queue))]
            commands += [("ZRANGE", keys.scheduled(queue), 0, 0, "WITHSCORES")]
        # Few queues have blocked tasks.
        any_blocked, *replies = self._tracked.exchange(
            ("EXISTS", *map(keys.blocked, queues)), *commands
        )
        blocked: list[Any] = [[]] * len(queues)
        if any_blocked:
            asked = [("ZRANGE", keys.blocked(queue), 0, 0, "WITHSCORES") for queue in queues]
            blocked = self._tracked.exchange(*asked)
        for queue, exists, *firsts in zip(
            queues, replies[::2], replies[1::2], blocked, strict=True
        ):
            refusal = next(
                (reply for reply in (exists, *firsts) if isinstance(reply, RedisRefused)), None
            )
            if refusal is not None:
                self.views[queue] = View(refusal=refusal.answer)
            else:
                self.views[queue] = View(bool(exists), _lowest(firsts[0]), _lowest(firsts[1]))


def _watched(queue: str) -> tuple[str, ...]:
    """Return the keys that show whether a queue has, or will have, something to do."""
    return keys.pending(queue), keys.lines(queue), keys.scheduled(queue), keys.blocked(queue)


def _lowest(reply: list[str]) -> float | None:
    """Return the lowest score of a sorted set, from the reply with its first member."""
    return next(iter(as_scores(reply).values()), None)
