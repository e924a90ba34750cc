"""AsyncClient: the way into one Redis for programs with an event loop."""

from __future__ import annotations

import asyncio
import functools
import os
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from typing import Concatenate, ParamSpec, Self, TypeVar, overload

from blueque.async_queue import AsyncQueue
from blueque.client import Client, ids_of
from blueque.connection.awaiting import LoopWaits, awaited, require_greenlet, sleep
from blueque.errors import WaitTimedOut
from blueque.model.encoding import require_timeout, require_whole
from blueque.model.retry import Retry
from blueque.model.states import FINISHED
from blueque.model.task import Task
from blueque.model.task_id import TaskId
from blueque.queries.awaited_ends import Told, Waiters, statuses_of
from blueque.queries.history import Event
from blueque.queries.tasks import load
from blueque.settings.contents import Config

T = TypeVar("T")
R = TypeVar("R")

P = ParamSpec("P")

CONNECTIONS, MOST_CONNECTIONS = 10, 10_000


class _Loop:
    """The connections of an AsyncClient in one event loop."""

    def __init__(self, client: Client, connections: int) -> None:
        self.places = asyncio.Semaphore(connections)
        self.idle: list[Client] = []
        self.waiters = Waiters(client.connections.another())
        self.is_closed = False

    async def close(self) -> None:
        try:
            await self.waiters.close()
        finally:
            self.drop()

    def drop(self) -> None:
        """Close the connections that no call uses now."""
        self.is_closed = True
        while self.idle:
            self.idle.pop().close()
        self.waiters.drop()


class AsyncClient:
    """The way into one Redis for a program with an event loop. Needs the extra `async`.

        async with blueque.AsyncClient() as client:
            task_id = await client.get_queue("video.encode").enqueue({"file": "a.mov"})
            task = await client.wait(task_id, timeout=60)

    Creating one neither connects nor checks anything. Its methods have the arguments, results and
    errors of those of `Client`, and do not block the event loop. For anything without a method
    here, use `call`. A cancelled call leaves nothing behind in the program, but its change may have
    been made. So give a `key` to what you enqueue: a repeated call then makes no second task.
    url, patience, max_bytes, replicas, config: as for `Client`, without options of redis-py.
    connections: how many calls use Redis at a time (10); the others wait. All waits together use
        one more, and each `events` has its own.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        patience: float = 5.0,
        max_bytes: int | None = None,
        replicas: int | None = None,
        config: Config | str | os.PathLike[str] | None = None,
        connections: int = CONNECTIONS,
    ) -> None:
        require_greenlet()
        self._connections = require_whole(connections, "connections", 1, MOST_CONNECTIONS)
        self._client = Client(
            url, patience=patience, max_bytes=max_bytes, replicas=replicas, config=config
        )
        self._client.wait_by(LoopWaits(), sleep)
        self._loops: dict[asyncio.AbstractEventLoop, _Loop] = {}

    def __repr__(self) -> str:
        return repr(self._client).replace("Client", "AsyncClient", 1)

    def get_queue(self, name: str, retry: Retry | int | None = None) -> AsyncQueue:
        """Return the queue with this name. The arguments are those of `Client.get_queue`."""
        return AsyncQueue(self, self._client.get_queue(name, retry).name, retry)

    async def call(
        self, function: Callable[Concatenate[Client, P], T], *arguments: P.args, **named: P.kwargs
    ) -> T:
        """Call a function with a `Client` and return its result.

            await client.call(lambda blocking: blocking.group("import").close())

        The event loop goes on only while the function waits for Redis. So it must neither sleep nor
        read files. It must not keep the client.
        """
        loop = self._loop()
        async with loop.places:
            client = loop.idle.pop() if loop.idle else self._another()
            try:
                return await awaited(functools.partial(function, client, *arguments, **named))
            finally:
                if loop.is_closed:
                    client.close()
                else:
                    loop.idle.append(client)

    @overload
    async def get_task(self, task_id: TaskId[R]) -> Task[R]: ...

    @overload
    async def get_task(self, task_id: str) -> Task: ...

    async def get_task(self, task_id: str) -> Task:
        """Return a snapshot of the task; see `Client.get_task`. To wait for it, await `wait` of
        this client, not `wait` of the task.
        """
        (wanted,) = ids_of([task_id])
        return await self.call(_load, wanted)

    @overload
    async def wait(  # type: ignore[overload-overlap]  # a TaskId is a str, which is an iterable of str
        self, ids: TaskId[R], timeout: float | None = None
    ) -> Task[R]: ...

    @overload
    async def wait(  # type: ignore[overload-overlap]
        self, ids: str, timeout: float | None = None
    ) -> Task: ...

    @overload
    async def wait(
        self, ids: Iterable[TaskId[R]], timeout: float | None = None, at_least: int | None = None
    ) -> list[Task[R]]: ...

    @overload
    async def wait(
        self, ids: Iterable[str], timeout: float | None = None, at_least: int | None = None
    ) -> list[Task]: ...

    async def wait(
        self, ids: str | Iterable[str], timeout: float | None = None, at_least: int | None = None
    ) -> Task | list[Task]:
        """Wait until a task, or each of several, has ended, and return them; see `Client.wait`."""
        wanted = [ids] if isinstance(ids, str) else ids_of(ids)
        ended: dict[str, Task] = {}
        enough = len(set(wanted)) if at_least is None or isinstance(ids, str) else at_least
        if enough > 0:
            async with aclosing(self.as_ended(wanted, timeout)) as ends:
                async for task in ends:
                    ended[task.id] = task
                    if len(ended) >= enough:
                        break
        if isinstance(ids, str):
            return ended[ids]
        return [ended[task_id] for task_id in wanted if task_id in ended]

    @overload
    def as_ended(
        self, ids: Iterable[TaskId[R]], timeout: float | None = None
    ) -> AsyncGenerator[Task[R], None]: ...

    @overload
    def as_ended(
        self, ids: Iterable[str], timeout: float | None = None
    ) -> AsyncGenerator[Task, None]: ...

    def as_ended(
        self, ids: Iterable[str], timeout: float | None = None
    ) -> AsyncGenerator[Task, None]:
        """Yield each task when it ends. Arguments and errors are those of `wait`."""
        timeout = require_timeout(timeout)
        return self._as_ended(ids_of(ids), timeout)

    async def events(
        self, *queue_names: str, after: Mapping[str, str] | None = None
    ) -> AsyncGenerator[Event, None]:
        """Yield the events of these queues as they happen, without end. See `Client.events`."""
        events = self._client.events(*queue_names, after=after)
        try:
            while (event := await awaited(next, events, None)) is not None:
                yield event
        finally:
            events.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections of this event loop, and those of closed loops. The next call opens
        new ones. Waits that still run raise RedisAway.
        """
        self._drop_ended()
        loop = self._loops.pop(asyncio.get_running_loop(), None)
        if loop is not None:
            await loop.close()

    async def _as_ended(
        self, ids: Sequence[str], timeout: float | None
    ) -> AsyncGenerator[Task, None]:
        deadline = None if timeout is None else asyncio.get_running_loop().time() + timeout
        patience = self._client.patience if timeout is None else min(timeout, self._client.patience)
        own = {task_id: task_id for task_id in ids}  # that of another waiter has another type
        statuses = await self.call(_statuses, [*own], patience)
        waiters, told, left = self._loop().waiters, asyncio.Queue[str | Exception](), {*own}
        for task_id, status in statuses.items():
            if status in FINISHED:
                told.put_nowait(task_id)
        waiters.begin(
            {task: statuses[task] for task in left if statuses[task] not in FINISHED}, told
        )
        try:
            while left:
                what = await _take(told, deadline)
                if what is None:
                    raise WaitTimedOut(timeout or 0, waiters.statuses([*left]))
                if isinstance(what, Exception):
                    raise what.with_traceback(None)  # it may be raised by others, too
                task = await self.call(_load, own[what])
                if task.status in FINISHED:
                    left.discard(what)
                    yield task
                else:  # it was put in line again
                    waiters.begin({what: task.status}, told)
        finally:
            waiters.end(told, [*left])

    def _loop(self) -> _Loop:
        running = asyncio.get_running_loop()
        if running not in self._loops:
            self._drop_ended()
            self._loops[running] = _Loop(self._client, self._connections)
        return self._loops[running]

    def _drop_ended(self) -> None:
        """Close what loops have left that were closed without `close`, perhaps in other threads."""
        for running in [*self._loops]:
            if running.is_closed() and (loop := self._loops.pop(running, None)) is not None:
                loop.drop()

    def _another(self) -> Client:
        return self._client.with_patience(self._client.patience)


async def _take(told: Told, deadline: float | None) -> str | Exception | None:
    """Return what was told, or is told before the deadline. None: nothing."""
    if told.empty():
        try:
            async with asyncio.timeout_at(deadline):
                return await told.get()
        except TimeoutError:
            pass
    return None if told.empty() else told.get_nowait()


def _load(client: Client, task_id: str) -> Task:
    return load(client.connections, task_id)


def _statuses(client: Client, ids: Sequence[str], patience: float) -> dict[str, str]:
    """Return the status of each task. Raises NoSuchTask."""
    redis = client.connections
    usual, redis.patience = redis.patience, patience
    try:
        return statuses_of(redis, ids)
    finally:
        redis.patience = usual
