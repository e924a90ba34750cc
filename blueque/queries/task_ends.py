"""Sees tasks end without polling.

Redis reports when the hash of a task changes, see `Tracked`. A running task changes about once a
second, so only its status is read then. Without tracking, all tasks are read each second.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence

from blueque.connection.redis import Patience, Redis, as_hash, raise_refusal
from blueque.connection.tracked import Tracked
from blueque.errors import NoSuchTask, RedisAway, WaitTimedOut
from blueque.model import keys
from blueque.model.parts import in_parts
from blueque.model.states import FINISHED, HELD
from blueque.model.task import Task
from blueque.system.outage import Outage

STATUSES_AT_ONCE = 1000
TASKS_AT_ONCE = 100  # with their results
PACE = 1.0  # seconds between two reads without tracking
COMES_BACK = 20.0  # seconds, two beats: a listener restores a task that Redis has lost
NOTICE_EVERY = 5.0  # seconds between two looks at what holds up blocked tasks


class Watcher:
    """Watches tasks until they have ended. `statuses` has the last status of those that have not.

    wait: the function that `Task.wait` of the yielded tasks calls.
    """

    least_rest = 0.0  # seconds; more where changes come all the time

    def __init__(
        self, redis: Redis, ids: Iterable[str], wait: Callable[..., Task] | None = None
    ) -> None:
        self.statuses: dict[str, str | None] = dict.fromkeys(ids)
        self.has_looked = False
        # tasks that a listener had, and until when it may restore them
        self._missing: dict[str, float] = {}
        self._tracked, self._wait, self.sleep = Tracked(redis.connect), wait, redis.sleep
        self._by_key = {keys.task(task_id): task_id for task_id in self.statuses}
        self._unread: set[str] = set()  # those that were added since the last look

    def look(self) -> Iterator[Task]:
        """Yield the tasks that have ended since the last call. Raises RedisAway, NoSuchTask."""
        try:
            yield from self._look()
        except BaseException:
            self.close()
            raise

    def rest(self, seconds: float) -> None:
        """Wait at most this long for a change; may return earlier. Raises RedisAway."""
        began, longest = time.monotonic(), min(seconds, PACE) if self._missing else seconds
        if self._tracked.is_tracking:
            self._tracked.wait(longest)
        else:
            self.sleep(min(longest, PACE))
        if (left := min(self.least_rest, seconds) - (time.monotonic() - began)) > 0:
            self.sleep(left)

    def close(self) -> None:
        self._tracked.close()

    def blocked(self) -> list[str]:
        """Return the ids of the blocked ones."""
        return [task for task, status in self.statuses.items() if status == "blocked"]

    def timed_out(self, timeout: float) -> WaitTimedOut:
        """Return the error when the timeout is over."""
        return WaitTimedOut(timeout, self.statuses)

    def _look(self) -> Iterator[Task]:
        changed = self._tracked.changed()
        unread, self._unread = self._unread, set()
        stale = [
            task_id
            for task_id in (
                self.statuses
                if changed is None
                else {*map(self._by_key.get, changed), *self._missing, *unread}
            )
            if task_id in self.statuses
        ]
        for ids in in_parts(stale, STATUSES_AT_ONCE):
            statuses = self._tracked.exchange(
                *[("HGET", keys.task(task_id), "status") for task_id in ids]
            )
            raise_refusal(statuses)
            ended = [
                task_id
                for task_id, status in zip(ids, statuses, strict=True)
                if self._note(task_id, status)
            ]
            for some in in_parts(ended, TASKS_AT_ONCE):
                yield from self._load(some)
        self.has_looked = True

    def _note(self, task_id: str, status: str | None) -> bool:
        """Record a status; return whether the task has ended."""
        if status is None:
            if self._may_come_back(task_id):
                return False
            raise NoSuchTask(task_id, self.statuses[task_id])
        self._missing.pop(task_id, None)
        self.statuses[task_id] = status
        return status in FINISHED

    def _may_come_back(self, task_id: str) -> bool:
        """Return whether a listener may still restore the task, which a failover may have lost."""
        if self.statuses[task_id] not in HELD:
            return False
        return time.monotonic() < self._missing.setdefault(task_id, time.monotonic() + COMES_BACK)

    def _load(self, ids: Sequence[str]) -> Iterator[Task]:
        replies = self._tracked.exchange(*[("HGETALL", keys.task(task_id)) for task_id in ids])
        raise_refusal(replies)
        for task_id, reply in zip(ids, replies, strict=True):
            task = Task(task_id, reply if isinstance(reply, dict) else as_hash(reply), self._wait)
            if self._note(task_id, task.status):  # else it was put in line again
                del self.statuses[task_id]
                yield task


def ends(
    watcher: Watcher,
    patience: float,
    timeout: float | None,
    notice: Callable[[list[str]], None] | None = None,
) -> Iterator[Task]:
    """Yield each task as it ends. An outage of Redis does not end this.

    patience: how many seconds the first read is retried while Redis does not answer. Later reads
        are retried for ever.
    notice: called every NOTICE_EVERY seconds with the ids of blocked tasks, while there are any.
        What holds them up changes nothing in their hashes.
    Raises NoSuchTask, only after two beats if a listener had the task; WaitTimedOut; RedisAway
        before the first read only.
    """
    deadline = math.inf if timeout is None else time.monotonic() + timeout
    first = Patience(patience if timeout is None else min(patience, timeout), watcher.sleep)
    outage = Outage("Redis answers again")
    due = 0.0  # the next notice
    try:
        while watcher.statuses:
            try:
                for task in watcher.look():
                    outage.note(None)
                    yield task
                outage.note(None)
                blocked = watcher.blocked()
                if notice is not None and blocked and time.monotonic() >= due:
                    notice(blocked)
                    due = time.monotonic() + NOTICE_EVERY
                left = deadline - time.monotonic()
                if watcher.statuses and left > 0:
                    watcher.rest(min(left, NOTICE_EVERY) if notice and blocked else left)
            except RedisAway as error:
                if not watcher.has_looked:
                    first.pause_or_raise(error)
                    continue
                outage.note(str(error), "waiting")
                left = deadline - time.monotonic()
                watcher.sleep(max(0.0, min(outage.pause(), left)))
            if timeout is not None and watcher.statuses and left <= 0:
                raise watcher.timed_out(timeout)
    finally:
        watcher.close()
