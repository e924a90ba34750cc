"""AsyncClient: the way into one Redis for programs with an event loop."""

from __future__ import annotations

import asyncio
import functools
import os
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import aclosing
from datetime import datetime
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, Unpack, overload

from blueque.client import Client, ids_of
from blueque.connection.awaiting import awaited, connect, sleep
from blueque.connection.redis import Connection
from blueque.errors import InvalidInput, NoSuchTask, WaitTimedOut
from blueque.model.encoding import require_timeout, require_whole
from blueque.model.ids import TaskId
from blueque.model.options import EnqueueOptions
from blueque.model.parts import in_parts
from blueque.model.retry import Retry
from blueque.model.states import FINISHED
from blueque.model.task import Task
from blueque.producer.bulk import Count, ManyOptions
from blueque.producer.queue import Queue
from blueque.queries.awaited_ends import Told, Waiters
from blueque.queries.history import Event
from blueque.queries.task_ends import TASKS_AT_ONCE
from blueque.queries.tasks import load_many
from blueque.settings.contents import Config

T = TypeVar("T")

P = ParamSpec("P")

CONNECTIONS, MOST_CONNECTIONS = 10, 10_000
BATCH = 100  # tasks; packing more of them would hold up the event loop


class _LoopClient(Client):
    """A client whose methods `awaited` runs."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        if self._address is None or not self._address.is_plain or self._options:
            raise InvalidInput(
                f"{self!r} needs options of redis-py: an AsyncClient takes redis://, rediss://, unix:// and "
                "redis+sentinel:// without them"
            )
        self._redis.sleep = sleep

    def _connect(self) -> Connection:
        return connect(super()._connect)


class AsyncClient:
    """The way into one Redis for a program with an event loop. Making one neither connects nor checks
    anything. It needs the extra `async`.

        async with blueque.AsyncClient() as client:
            task_id = await client.get_queue("video.encode").enqueue({"file": "a.mov"})
            task = await client.wait(task_id, timeout=60)

    Its calls are those of `Client`, with the same arguments, results and errors, and the event loop
    goes on meanwhile. When a call is cancelled, nothing of it stays behind here; what it was about to
    change may have been changed. With a `key`, a task that is enqueued again is the same task.

    url, patience, max_bytes, replicas, config: as for `Client`.
    connections: how many calls use Redis at a time; others wait for their turn. All waits together
        use one more, and each `events` has its own.
    Use it in one event loop.
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
        require_whole(connections, "connections", 1, MOST_CONNECTIONS)
        self._client = _LoopClient(
            url, patience=patience, max_bytes=max_bytes, replicas=replicas, config=config
        )
        self._places = asyncio.Semaphore(connections)
        self._idle: list[Client] = []
        self._waiters = Waiters(self._client.connections.another())

    def __repr__(self) -> str:
        return repr(self._client).replace("Client", "AsyncClient")

    def get_queue(self, name: str, retry: Retry | int | None = None) -> AsyncQueue:
        """Return the queue with this name. The arguments are those of `Client.get_queue`."""
        self._client.get_queue(name, retry)  # refuses what is wrong
        return AsyncQueue(self, name, retry)

    async def call(
        self, function: Callable[Concatenate[Client, P], T], *arguments: P.args, **named: P.kwargs
    ) -> T:
        """Call a function with a `Client`, for all that has no method here, and return its result.

            await client.call(lambda blocking: blocking.group("import").close())

        Where the function waits for Redis, the event loop goes on. Elsewhere it does not: the function
        must neither sleep nor read files, and must not keep the client.
        """
        async with self._places:
            client = self._idle.pop() if self._idle else self._new()
            try:
                return await awaited(functools.partial(function, client, *arguments, **named))
            finally:
                self._idle.append(client)

    async def get_task(self, task_id: str) -> Task:
        """Return a snapshot of the task; see `Client.get_task`."""
        (task,) = await self.call(_seen, ids_of([task_id]))
        return task

    @overload
    async def wait(  # type: ignore[overload-overlap]  # a str is an iterable of str, too
        self, ids: str, timeout: float | None = None
    ) -> Task: ...

    @overload
    async def wait(
        self, ids: Iterable[str], timeout: float | None = None, at_least: int | None = None
    ) -> list[Task]: ...

    async def wait(
        self, ids: str | Iterable[str], timeout: float | None = None, at_least: int | None = None
    ) -> Task | list[Task]:
        """Wait until a task, or each of several, is complete, failed or cancelled, and return them; see
        `Client.wait`.
        """
        wanted = [ids] if isinstance(ids, str) else ids_of(ids)
        ended: dict[str, Task] = {}
        enough = len(set(wanted)) if at_least is None else at_least
        async with aclosing(self.as_ended(wanted, timeout)) as ends:
            while len(ended) < enough:
                task = await anext(ends)
                ended[task.id] = task
        if isinstance(ids, str):
            return ended[ids]
        return [ended[task_id] for task_id in wanted if task_id in ended]

    async def as_ended(
        self, ids: Iterable[str], timeout: float | None = None
    ) -> AsyncGenerator[Task, None]:
        """Yield each task when it ends. The arguments and errors are those of `wait`."""
        require_timeout(timeout)
        left = set(ids_of(ids))
        deadline = None if timeout is None else asyncio.get_running_loop().time() + timeout
        told: Told = asyncio.Queue()
        try:
            async with asyncio.timeout_at(deadline):
                tasks = await self.call(_seen, [*left])
            for task in tasks:
                if task.status is None:
                    raise NoSuchTask(task.id)
                if task.status in FINISHED:
                    told.put_nowait(task)
            self._waiters.begin([task for task in tasks if task.status not in FINISHED], told)
            while left:
                async with asyncio.timeout_at(deadline):
                    what = await told.get()
                if isinstance(what, Exception):
                    raise what
                left.discard(what.id)
                yield what
        except TimeoutError:
            raise WaitTimedOut(timeout or 0, self._waiters.statuses(left)) from None
        finally:
            self._waiters.end(left, told)

    async def events(
        self, *queue_names: str, after: Mapping[str, str] | None = None
    ) -> AsyncGenerator[Event, None]:
        """Yield the events of these queues as they happen; see `Client.events`. It never ends."""
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
        """Close the connections; the next call opens others. RedisAway is raised where a wait still
        goes on.
        """
        await self._waiters.close()
        while self._idle:
            self._idle.pop().close()

    def _new(self) -> Client:
        return self._client.with_patience(self._client.patience)


class AsyncQueue:
    """A named line of tasks of one type, for a program with an event loop: see `Queue`."""

    def __init__(self, client: AsyncClient, name: str, retry: Retry | int | None) -> None:
        self.name, self._client, self._retry = name, client, retry

    def __repr__(self) -> str:
        return f"<AsyncQueue {self.name!r}>"

    async def enqueue(self, parameters: Any, **options: Unpack[EnqueueOptions]) -> TaskId:
        """Put a new task in line and return its id. Options and errors are those of
        `Queue.enqueue`.
        """
        return await self.call(lambda queue: queue.enqueue(parameters, **options))

    async def schedule(
        self, parameters: Any, eta: float | datetime, **options: Unpack[EnqueueOptions]
    ) -> TaskId:
        """Create a task that joins the line at `eta` and return its id; see `Queue.schedule`."""
        return await self.call(lambda queue: queue.schedule(parameters, eta, **options))

    async def enqueue_many(
        self, iterable: Iterable[Any], *, batch: int = BATCH, **options: Unpack[ManyOptions]
    ) -> Count:
        """Put a task in line for each of the parameters, and return how many; see
        `Queue.enqueue_many`. The event loop goes on between two batches.
        """
        return await self.call(lambda queue: queue.enqueue_many(iterable, batch=batch, **options))

    async def cancel(
        self,
        task_id: str,
        by: str | None = None,
        reason: str | None = None,
        *,
        only: Collection[str] | None = None,
    ) -> str:
        """Cancel a task; see `Queue.cancel`."""
        return await self.call(lambda queue: queue.cancel(task_id, by, reason, only=only))

    async def requeue(self, task_id: str, by: str | None = None) -> str:
        """Put a failed or cancelled task in line again; see `Queue.requeue`."""
        return await self.call(lambda queue: queue.requeue(task_id, by))

    async def call(self, function: Callable[[Queue], T]) -> T:
        """Call a function with this queue as a `Queue`; see `AsyncClient.call`."""
        return await self._client.call(
            lambda client: function(client.get_queue(self.name, self._retry))
        )


def _seen(client: Client, ids: Sequence[str]) -> list[Task]:
    """Return a snapshot of each task; of one that does not exist, all attributes but the id are
    None.
    """
    redis = client.connections
    known = {
        task.id: task for some in in_parts(ids, TASKS_AT_ONCE) for task in load_many(redis, some)
    }
    return [known.get(task_id) or Task(task_id, {}) for task_id in ids]
