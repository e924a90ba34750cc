"""Waits for the ends of tasks in an event loop: all waiters share one connection."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Coroutine, Iterable
from typing import Any, TypeAlias

from blueque.connection.awaiting import awaited
from blueque.connection.redis import Redis
from blueque.errors import NoSuchTask, RedisAway
from blueque.model import keys
from blueque.model.task import Task
from blueque.queries.task_ends import Watcher
from blueque.system.outage import Outage

Told: TypeAlias = "asyncio.Queue[Task | Exception]"

LONGEST = 60.0  # seconds that it waits for a change


class _Ends(Watcher):
    """Watches tasks that come and go while it looks. `gone` has the errors for those that were
    deleted.
    """

    def __init__(self, redis: Redis) -> None:
        super().__init__(redis, ())
        self.gone: list[NoSuchTask] = []

    def add(self, seen: Task) -> None:
        """Watch a task from now on. seen: as it was just before."""
        if seen.id not in self.statuses:
            self.statuses[seen.id] = seen.status
            self._by_key[keys.task(seen.id)] = seen.id
            self._unread.add(seen.id)

    def remove(self, task_id: str) -> None:
        self.statuses.pop(task_id, None)
        self._by_key.pop(keys.task(task_id), None)
        self._missing.pop(task_id, None)

    def _note(self, task_id: str, status: str | None) -> bool:
        if task_id not in self.statuses:  # nobody waits for it any more
            return False
        try:
            return super()._note(task_id, status)
        except NoSuchTask as error:
            self.remove(task_id)
            self.gone.append(error)
            return False


class Waiters:
    """All that wait for tasks by one client. Each has a queue, into which comes what it waits for."""

    def __init__(self, redis: Redis) -> None:
        self._ends = _Ends(redis)
        self._waiting: defaultdict[str, set[Told]] = defaultdict(set)
        self._news = asyncio.Event()  # somebody waits for another task, or no longer waits
        self._watching: asyncio.Task[None] | None = None

    def begin(self, tasks: Iterable[Task], told: Told) -> None:
        """Put each task into `told` when it ends: NoSuchTask if it is deleted, RedisRefused. If Redis
        goes away, the wait goes on.

        tasks: as they were just before.
        """
        for seen in tasks:
            self._waiting[seen.id].add(told)
            self._ends.add(seen)
        self._news.set()
        if self._waiting and self._watching is None:
            self._watching = asyncio.ensure_future(self._watch())

    def end(self, ids: Iterable[str], told: Told) -> None:
        """Wait no longer for these tasks."""
        for task_id in ids:
            self._waiting[task_id].discard(told)
            if not self._waiting[task_id]:
                del self._waiting[task_id]
                self._ends.remove(task_id)
        self._news.set()

    def statuses(self, ids: Iterable[str]) -> dict[str, str | None]:
        """Return the last status that was seen of each task."""
        return {task_id: self._ends.statuses.get(task_id) for task_id in ids}

    async def close(self) -> None:
        """Close the connection. RedisAway is told to all that still wait."""
        for task_id in [*self._waiting]:
            self._tell(task_id, RedisAway("the client was closed"))
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait({self._watching})
        self._ends.close()

    async def _watch(self) -> None:
        """Look at the tasks as long as anybody waits for one."""
        outage = Outage("Redis answers again")
        try:
            while self._waiting:
                self._news.clear()
                try:
                    await awaited(self._look)
                    outage.note(None)
                    await self._either(awaited(self._ends.rest, LONGEST))
                except RedisAway as error:
                    outage.note(error, "waiting")
                    await self._either(asyncio.sleep(outage.pause()))
        except Exception as error:  # such as RedisRefused
            for task_id in [*self._waiting]:
                self._tell(task_id, error)
        finally:
            self._watching = None

    def _look(self) -> None:
        for task in self._ends.look():
            self._tell(task.id, task)
        gone, self._ends.gone = self._ends.gone, []
        for error in gone:
            self._tell(error.task_id, error)

    def _tell(self, task_id: str, what: Task | Exception) -> None:
        for told in self._waiting.get(task_id, ()):
            told.put_nowait(what)

    async def _either(self, rest: Coroutine[Any, Any, None]) -> None:
        """Rest, but not longer than until there is news."""
        resting = asyncio.ensure_future(rest)
        news = asyncio.ensure_future(self._news.wait())
        try:
            await asyncio.wait({resting, news}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            resting.cancel()
            news.cancel()
            await asyncio.wait({resting, news})
        if not resting.cancelled():
            resting.result()
