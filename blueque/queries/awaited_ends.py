"""Waits for the ends of tasks in an event loop. All waiters share one connection."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from blueque.connection.awaiting import awaited
from blueque.connection.redis import Redis
from blueque.errors import NoSuchTask, RedisAway
from blueque.model import keys
from blueque.model.parts import in_parts
from blueque.model.task import Task
from blueque.queries.task_ends import STATUSES_AT_ONCE, Watcher
from blueque.system.outage import Outage

# What one waiter is told: the ids of tasks that have ended, and errors.
Told: TypeAlias = "asyncio.Queue[str | Exception]"

LONGEST = 60.0  # seconds that it waits for a change


def statuses_of(redis: Redis, ids: Sequence[str]) -> dict[str, str]:
    """Return the status of each task. Raises NoSuchTask."""
    found: dict[str, str] = {}
    for some in in_parts(ids, STATUSES_AT_ONCE):
        replies = redis.read(*[("HGET", keys.task(task_id), "status") for task_id in some])
        for task_id, status in zip(some, replies, strict=True):
            if status is None:
                raise NoSuchTask(task_id)
            found[task_id] = status
    return found


class _Ends(Watcher):
    """Watches tasks that are added and removed while it watches; yields their ends without fields.

    gone: the errors for those that were deleted.
    """

    def __init__(self, redis: Redis) -> None:
        super().__init__(redis, ())
        self.gone: list[NoSuchTask] = []

    def add(self, task_id: str, status: str | None) -> None:
        if task_id not in self.statuses:
            self.statuses[task_id] = status
            self._by_key[keys.task(task_id)] = task_id
            self._unread.add(task_id)

    def remove(self, task_id: str) -> None:
        self.statuses.pop(task_id, None)
        self._by_key.pop(keys.task(task_id), None)
        self._missing.pop(task_id, None)

    def _note(self, task_id: str, status: str | None) -> bool:
        if task_id not in self.statuses:  # no waiter is left
            return False
        try:
            return super()._note(task_id, status)
        except NoSuchTask as error:
            self.gone.append(error)
            return False

    def _load(self, ids: Sequence[str]) -> Iterator[Task]:
        for task_id in ids:
            yield Task(task_id, {})


class Waiters:
    """All waits for tasks through one client in one event loop."""

    def __init__(self, redis: Redis) -> None:
        self.ends = _Ends(redis)
        self.waiting: defaultdict[str, set[Told]] = defaultdict(set)
        self._news = asyncio.Event()  # a new task to wait for, or no waiter is left
        self.watching: asyncio.Task[None] | None = None
        self._is_closed = False

    def begin(self, statuses: Mapping[str, str | None], told: Told) -> None:
        """Put the id of each task into `told` when it ends, or NoSuchTask if it is deleted.

        An outage of Redis does not end the wait. If Redis refuses to answer, RedisRefused is put there.
        statuses: of the tasks as they were just before.
        """
        if self._is_closed:
            told.put_nowait(_closed())
            return
        for task_id, status in statuses.items():
            self.waiting[task_id].add(told)
            self.ends.add(task_id, status)
        self._news.set()
        if self.waiting and self.watching is None:
            self.watching = asyncio.ensure_future(self._watch())

    def end(self, told: Told, ids: Sequence[str]) -> None:
        """Stop waiting for those of these tasks that have not ended."""
        for task_id in ids:
            waiting = self.waiting.get(task_id)
            if waiting is not None:
                waiting.discard(told)
                if not waiting:
                    self._forget(task_id)
        if not self.waiting:
            self._news.set()

    def statuses(self, ids: Sequence[str]) -> dict[str, str | None]:
        """Return the last known status of each task."""
        return {task_id: self.ends.statuses.get(task_id) for task_id in ids}

    async def close(self) -> None:
        """Stop watching. All waits that are left get RedisAway."""
        self._is_closed = True
        for task_id in [*self.waiting]:
            self._tell(task_id, _closed())
        if self.watching is not None:
            self.watching.cancel()
            await asyncio.wait({self.watching})

    def drop(self) -> None:
        """Close the connection after the last wait."""
        self.ends.close()

    async def _watch(self) -> None:
        """Watch the tasks until no wait is left."""
        outage = Outage("Redis answers again")
        try:
            while self.waiting:
                self._news.clear()
                try:
                    await awaited(self._look)
                    outage.note(None)
                    await self._unless_news(awaited(self.ends.rest, LONGEST))
                except RedisAway as error:
                    outage.note(error, "waiting")
                    await self._unless_news(asyncio.sleep(outage.pause()))
        except Exception as error:  # such as RedisRefused
            for task_id in [*self.waiting]:
                self._tell(task_id, error)
        finally:
            self.watching = None

    def _look(self) -> None:
        for task in self.ends.look():
            self._tell(task.id, task.id)
        gone, self.ends.gone = self.ends.gone, []
        for error in gone:
            self._tell(error.task_id, error)

    def _tell(self, task_id: str, what: str | Exception) -> None:
        """Tell all waits for a task, which end with that."""
        for told in self.waiting.get(task_id, ()):
            told.put_nowait(what)
        self._forget(task_id)

    def _forget(self, task_id: str) -> None:
        self.waiting.pop(task_id, None)
        self.ends.remove(task_id)

    async def _unless_news(self, rest: Coroutine[Any, Any, None]) -> None:
        """Rest until there is news, at the longest."""
        resting = asyncio.ensure_future(rest)
        news = asyncio.ensure_future(self._news.wait())
        try:
            await asyncio.wait({resting, news}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            resting.cancel()
            news.cancel()
            await asyncio.wait({resting, news})
            failed = None if resting.cancelled() else resting.exception()
        if failed is not None:
            raise failed


def _closed() -> RedisAway:
    return RedisAway("the client was closed")
