"""AsyncQueue: what producers do with one queue in an event loop."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from datetime import datetime
from typing import Any, Literal, Protocol, TypeVar, Unpack, overload

from blueque.client import Client
from blueque.model.options import EnqueueOptions
from blueque.model.retry import Retry
from blueque.model.task_id import TaskId
from blueque.producer.bulk import Batched, Count, ManyOptions
from blueque.producer.queue import Queue

T = TypeVar("T")

BATCH = 100  # tasks; packing more of them would hold up the event loop


class Calls(Protocol):
    """The part of AsyncClient that a queue needs."""

    async def call(self, function: Callable[[Client], T]) -> T: ...


class AsyncQueue:
    """A named line of tasks of one type, for a program with an event loop: see `Queue`."""

    def __init__(self, client: Calls, name: str, retry: Retry | int | None) -> None:
        self.name, self._client, self._retry = name, client, retry

    def __repr__(self) -> str:
        return f"<AsyncQueue {self.name!r}>"

    async def enqueue(self, parameters: Any, **options: Unpack[EnqueueOptions]) -> TaskId:
        """Put a new task in line and return its id; see `Queue.enqueue`."""
        return await self.call(lambda queue: queue.enqueue(parameters, **options))

    async def schedule(
        self, parameters: Any, eta: float | datetime, **options: Unpack[EnqueueOptions]
    ) -> TaskId:
        """Create a task that joins the line at `eta` and return its id; see `Queue.schedule`."""
        return await self.call(lambda queue: queue.schedule(parameters, eta, **options))

    @overload
    async def enqueue_many(
        self, iterable: Iterable[Any], *, ids: Literal[True], **options: Unpack[Batched]
    ) -> list[TaskId]: ...

    @overload
    async def enqueue_many(
        self, iterable: Iterable[Any], *, ids: Literal[False] = False, **options: Unpack[Batched]
    ) -> Count: ...

    @overload
    async def enqueue_many(
        self, iterable: Iterable[Any], *, ids: bool, **options: Unpack[Batched]
    ) -> Count | list[TaskId]: ...

    async def enqueue_many(
        self,
        iterable: Iterable[Any],
        *,
        ids: bool = False,
        batch: int = BATCH,
        **options: Unpack[ManyOptions],
    ) -> Count | list[TaskId]:
        """Put a task in line for each of the parameters and return how many, or their ids. See
        `Queue.enqueue_many`.

        The event loop goes on between two batches; by default, each has 100 tasks.
        """
        return await self.call(
            lambda queue: queue.enqueue_many(iterable, ids=ids, batch=batch, **options)
        )

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
