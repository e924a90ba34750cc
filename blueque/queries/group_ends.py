"""The wait for the end of a group."""

from __future__ import annotations

from collections.abc import Iterator

from blueque.connection.redis import Redis, raise_refusal
from blueque.errors import NoSuchGroup, WaitTimedOut
from blueque.model import keys
from blueque.model.task import Task
from blueque.queries.queue_ends import COALESCE
from blueque.queries.task_ends import Watcher

UNSETTLED_AT_ONCE = 10_000  # ends that groups have not noted


class GroupWatcher(Watcher):
    """Watches a group until it is closed and all its members have ended."""

    least_rest = COALESCE

    def __init__(self, redis: Redis, group: str) -> None:
        super().__init__(redis, [group])
        self._group = group

    def timed_out(self, timeout: float) -> WaitTimedOut:
        what = self.statuses[self._group]
        message = f"group {self._group!r} has not ended after {timeout:g} s: {what}"
        return WaitTimedOut(timeout, self.statuses, message)

    def _look(self) -> Iterator[Task]:
        self._tracked.changed()
        group = self._group
        replies = self._tracked.exchange(
            ("HGET", keys.group(group), "state"), ("SCARD", keys.open_members(group))
        )
        raise_refusal(replies)
        state, left = replies
        if state is None:
            raise NoSuchGroup(group)
        self.has_looked = True
        self.statuses[group] = f"{state}, {left} tasks left"
        is_over = state in ("closed", "ended") and not left
        if is_over and not self._is_any_put_in_line_again():
            del self.statuses[group]
        yield from ()

    def _is_any_put_in_line_again(self) -> bool:
        """Return whether a failed member was just requeued and the group has not recorded it."""
        unsettled = ("ZRANGE", keys.UNSETTLED_MEMBERS, 0, UNSETTLED_AT_ONCE - 1)
        (tasks,) = replies = self._tracked.exchange(unsettled)
        raise_refusal(replies)
        if not tasks:
            return False
        replies = self._tracked.exchange(("SMISMEMBER", keys.bad_members(self._group), *tasks))
        raise_refusal(replies)
        return any(replies[0])
