"""Work that is due for ended members of groups, and for groups."""

from __future__ import annotations

import logging
import random
from collections.abc import Sequence
from functools import lru_cache

from blueque.connection.redis import Redis
from blueque.errors import Contended, RedisRefused, WrongQueue, WrongState
from blueque.model.states import FINISHED
from blueque.producer.dependents import recheck_dependents
from blueque.protocol import operator
from blueque.protocol.groups import MEMBERS_AT_ONCE, finish_group, settle_group, settle_members
from blueque.protocol.parents import GroupParent
from blueque.protocol.settling import DEPENDENTS_AT_ONCE
from blueque.queries import groups, unsettled_groups
from blueque.queries.groups import Member
from blueque.queries.unsettled_groups import Cancellation
from blueque.recovery.left_alone import LeftAlone

log = logging.getLogger("blueque")

GROUPS_AT_ONCE = 10
DUE = 100  # groups that one look reads: some may have keys of a wrong type
PICKED = 100  # open members of a group that one look reads
ENDED_AT_ONCE = 1000  # members of a group that one look finds to have ended


class GroupsLeftAlone:
    """Groups and members that have a key of a wrong type."""

    def __init__(self) -> None:
        self.groups, self.members = LeftAlone(), LeftAlone()


def settle_groups_step(redis: Redis, now: float, left_alone: GroupsLeftAlone | None = None) -> bool:
    """Record which members of groups have ended, end groups, and tell their dependents. Return
    whether there is more to do.

    A step handles at most 100 members, ten groups, 100 dependents of each, and 100 cancellations.
    It records at most 1,000 members of each group that ended unnoticed. Any number of programs may
    do it at once. With nothing to do, it takes one round trip. A key of a wrong type stops only the
    group or the member that has it.
    left_alone: passed from one step to the next, so that any number of these delay no other.
    """
    left = left_alone or GroupsLeftAlone()
    skipped, refused = left.members.names(), left.groups.names()
    most = DUE + len(refused)
    unsettled = unsettled_groups.unsettled(redis, now, MEMBERS_AT_ONCE + len(skipped), most)
    due, has_settled = unsettled.groups, False
    members = [task for task in unsettled.members if task not in skipped][:MEMBERS_AT_ONCE]
    if members:
        has_settled = _settle_members(redis, members, left)
        # A group that was due before goes first: the others may be cancelled ones that never end.
        due = due or unsettled_groups.due(redis, now, most)
    looks = _Looks(redis, now, left)
    for group, score in due:
        if len(looks.done) == GROUPS_AT_ONCE:
            break
        if group not in refused:
            looks.look(group, score)
    looks.cancel()
    return looks.is_more or has_settled or len(looks.done) == GROUPS_AT_ONCE


def _settle_members(redis: Redis, tasks: Sequence[str], left: GroupsLeftAlone) -> bool:
    """Record the ends of members of any groups. Return whether there were any."""
    members: dict[str, list[str]] = {}
    for member in groups.look_at(redis, tasks):
        # Without a group, it is gone: only its entry is dropped.
        members.setdefault(member.group or "", []).append(member.task)
    left.members.add({*tasks}.difference(*members.values()))
    has_settled = False
    for group, those in members.items():
        try:
            settle_members(redis, group, those)
            has_settled = True
        except (Contended, RedisRefused) as error:  # others do the same
            _require_only_one(group, error)
    return has_settled


def _require_only_one(group: str, error: Contended | RedisRefused) -> None:
    """Raise a refusal that concerns more than one group."""
    if isinstance(error, Contended):
        log.debug("settle group=%s: %s", group, error)
    elif error.is_wrong_type:
        _warn_once(group, str(error))
    else:
        raise error


@lru_cache(maxsize=1000)
def _warn_once(group: str, reason: str) -> None:
    log.warning("cannot settle group=%s: %s", group, reason)


class _Looks:
    """The work of one step for groups. done: those that it could read."""

    def __init__(self, redis: Redis, now: float, left: GroupsLeftAlone) -> None:
        self._redis, self._now, self._left = redis, now, left
        self.done: list[str] = []
        self.is_more = False
        self._cancelled: list[str] = []

    def look(self, group: str, score: float) -> None:
        """Handle a group whose time has come."""
        try:
            self.is_more = self._look(group, score) or self.is_more
            self.done.append(group)
        except (Contended, RedisRefused) as error:  # others do the same, or its members change
            _require_only_one(group, error)
            if isinstance(error, RedisRefused):
                self._left.groups.add([group])

    def _look(self, group: str, score: float) -> bool:
        state = finish_group(self._redis, group, self._now)
        if state == "ended":
            if score and self._has_dropped(group):
                return True
            settled = settle_group(self._redis, group, self._now)
            if settled.removed:
                told, freed = settled.removed, settled.freed
                log.info("settle_group group=%s told=%d freed=%d", group, told, freed)
            for error in settled.refused.values():
                _require_only_one(group, error)
                self._left.groups.add([group])
            return not settled.is_over
        if state is None:
            return False
        if unsettled_groups.cancellation(self._redis, group).at is not None:
            self._cancelled.append(group)
            return False
        # With the score 0, something was noted: it has not been quiet for a minute.
        return bool(score) and self._has_noted(group)

    def _has_dropped(self, group: str) -> bool:
        """Check a hundred tasks that still wait for a group that ended long ago, from a random one on.

        Return whether some are gone.
        """
        size = unsettled_groups.count_waiting(self._redis, group)
        first = random.randrange(max(size - DEPENDENTS_AT_ONCE, 0) + 1)
        return recheck_dependents(self._redis, GroupParent(group), self._now, first).removed > 0

    def _has_noted(self, group: str) -> bool:
        """Record open members that have ended unnoticed, as after a 1.0.0 listener, while some are found.

        Return whether there is more to do.
        """
        return all(self._note(group, self._pick(group)) for _ in range(ENDED_AT_ONCE // PICKED))

    def _pick(self, group: str) -> list[Member]:
        return groups.look_at(self._redis, groups.pick(self._redis, group, PICKED))

    def _note(self, group: str, picked: Sequence[Member]) -> list[str]:
        """Record the members that have ended, and return them."""
        ended = [each.task for each in picked if each.group != group or each.status in FINISHED]
        if ended:
            settle_members(self._redis, group, ended)
            self.is_more = True
        return ended

    def cancel(self) -> None:
        """Cancel some open members of the cancelled groups among them."""
        for group in self._cancelled:
            try:
                self._cancel(group, max(PICKED // len(self._cancelled), 1))
            except (Contended, RedisRefused) as error:
                _require_only_one(group, error)

    def _cancel(self, group: str, most: int) -> None:
        cancellation, picked = unsettled_groups.cancellation(self._redis, group), self._pick(group)
        ended = self._note(group, picked)
        going = [each for each in picked if each.task not in ended]
        # Blocked ones first: the end of another one may let them go.
        going.sort(key=lambda each: (each.cancel is not None, each.status != "blocked"))
        for each in going[:most]:
            is_cancelled = _is_cancelled(self._redis, each, cancellation, self._now)
            self.is_more = self.is_more or is_cancelled


def _is_cancelled(redis: Redis, member: Member, cancellation: Cancellation, now: float) -> bool:
    """Cancel a member. Return whether this has ended it."""
    queue, by = member.queue or "", cancellation.by or ""
    try:
        status = operator.cancel(redis, queue, member.task, by, cancellation.reason, now)
    except (WrongState, WrongQueue):  # it has ended or moved, or a listener of 1.0.0 has it
        return False
    log.info("cancel task=%s queue=%s by=%s status=%s", member.task, queue, by, status)
    return status == "cancelled"
